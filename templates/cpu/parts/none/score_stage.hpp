// SPDX-License-Identifier: Apache-2.0
// Kernels without a score program: scores stay as they are.
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

}  // namespace none
