// SPDX-License-Identifier: Apache-2.0
// Kernels without a mask program: it hides nothing.
#pragma once

#include "cpu/parts/none/features.hpp"

namespace none {

struct Shown {
  static constexpr bool lo = true, hi = true;  // as in mask_stage.hpp
};

template <class Scores, class Rows, class Keys>
inline Shown range_of_rows(const Scores&, Rows, Keys) {
  return {};
}
template <class Scores, class Rows, class Keys>
inline Shown narrow_to(const Scores&, Rows, Keys) {
  return {};
}
template <class Arguments, class Rows, class Keys>
inline Shown shown_to(const Arguments&, const Rows&, Keys&) {
  return {};
}
template <class Arguments, class Rows, class Keys, class Panel>
inline void hide_scores(const Arguments&, const Rows&, const Keys&, Panel*, Panel&) {}

}  // namespace none
