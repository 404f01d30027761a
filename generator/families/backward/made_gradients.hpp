// SPDX-License-Identifier: Apache-2.0
// Says which gradients the kernels of a spec make.
#pragma once

#include "generator/core/problem/kernel_spec.hpp"

namespace attune {

inline bool makes(const KernelSpec& spec, Gradients one) {
  return asks(spec.backward.gradients, one);
}
inline bool makes_keys(const KernelSpec& spec) {
  return makes(spec, Gradients::kK) || makes(spec, Gradients::kV);
}

}  // namespace attune
