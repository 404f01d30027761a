// SPDX-License-Identifier: Apache-2.0
// Kernels without a score program: scores stay as they are, and their derivative is 1.
#pragma once

#include "cpu/parts/none/features.hpp"

namespace none {

struct ScoreStage {
  template <class Arguments>
  ScoreStage(const Arguments&, int, int, long long) {}
  template <class Keys>
  void fetch(const Keys&) const {}
  template <class Keys, class Panel>
  void apply(Keys, Panel*, Panel&) const {}
};

template <class Scores, class... Indices>
inline float score_of(const Scores&, float score, Indices...) {
  return score;
}

template <class Scores, class... Indices>
inline float slope_of(const Scores&, float, Indices...) {
  return 1.0f;
}

template <class Arguments, class Tile, class Keys, class Panel>
inline void find_slopes(const Arguments&, const Tile&, long long, Keys, const Panel*, Panel*) {}

}  // namespace none
