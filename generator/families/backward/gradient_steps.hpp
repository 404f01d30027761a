// SPDX-License-Identifier: Apache-2.0
// Work of one tile of a gradient kernel. Used by the cost models of the gradients' families.
#pragma once

#include <algorithm>
#include <vector>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/problem/visibility.hpp"
#include "templates/shared/visible_rows.h"

namespace attune {

// Returns the number of steps of the tile whose first row, or key, is `first`.
template <class Kernel>
int64_t gradient_steps(const Kernel& kernel, const KernelSpec& spec, const Shape& shape,
                       int64_t first) {
  const int64_t step = kernel.tile.step_rows;
  const auto blocks = [&](int64_t from, int64_t to) {
    return to < from ? 0 : to / step - from / step + 1;
  };
  if (kernel.of_rows()) {
    const int64_t last = std::min(first + kernel.tile.stay_rows, shape.seqlen_q) - 1;
    const auto keys = keys_of_rows(spec, shape, first, last);
    return blocks(keys.first, keys.last);
  }
  const int64_t last = std::min(first + kernel.tile.stay_rows, shape.seqlen_kv) - 1;
  return spec.gqa_ratio *
         blocks(visible_rows(spec, shape, first).first, visible_rows(spec, shape, last).last);
}

// Says which gradients the kernels of a spec make, and the knobs of those that it lacks.

inline bool makes(const KernelSpec& spec, Gradients one) {
  return asks(spec.backward.gradients, one);
}
inline bool makes_keys(const KernelSpec& spec) {
  return makes(spec, Gradients::kK) || makes(spec, Gradients::kV);
}

// Returns the values of a knob; knobs of an absent kernel have one value.
inline std::vector<int64_t> values_if(bool there, std::vector<int64_t> all) {
  if (!there) all.resize(1);
  return all;
}

}  // namespace attune
