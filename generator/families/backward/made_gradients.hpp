// SPDX-License-Identifier: Apache-2.0
// Says which gradients the kernels of a spec make, and the knobs of those that it lacks.
#pragma once

#include <vector>

#include "generator/core/problem/kernel_spec.hpp"

namespace attune {

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
