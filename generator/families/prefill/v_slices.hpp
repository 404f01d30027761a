// SPDX-License-Identifier: Apache-2.0
// Knob v_slices: parts of V's columns, each a separate work tile, for a head_dim_v whose O does not
// fit the registers. Specs with a narrower V have no such knob. Kernels use it in
// templates/cuda/parts/v_slice.cuh. Used by the families of sm90/rules.hpp and
// mma/prefill_mma.hpp.
#pragma once

#include <cstdint>
#include <vector>

#include "generator/core/problem/config.hpp"
#include "generator/core/problem/kernel_spec.hpp"
#include "generator/kernel_template.hpp"
#include "generator/search_space.hpp"

namespace attune {

constexpr int kWidestWholeV = 256;  // head_dim_v
inline bool has_wide_v(const KernelSpec& spec) { return spec.head_dim_v > kWidestWholeV; }
// True if a head of Q and K, or of V, is wider than most kernels serve.
inline bool has_wide_heads(const KernelSpec& spec) {
  return has_wide_v(spec) || spec.head_dim_qk > kWidestWholeV;
}

// Returns the number of slices of V, the knob v_slices; 1 if the config has no such knob.
int v_slices(const Config& config);
// Returns the spec of one slice, for which a kernel is compiled.
KernelSpec slice_of(const KernelSpec& spec, const Config& config);

// For specs with a wide V: the knob with the values of a family, and the constants about slices
// that a kernel needs besides its own width.
void add_v_slices(const KernelSpec& spec, const std::vector<int64_t>& values,
                  std::vector<Knob>* knobs);
std::vector<Constant> v_slice_constants(const KernelSpec& spec, const Config& config);

}  // namespace attune
