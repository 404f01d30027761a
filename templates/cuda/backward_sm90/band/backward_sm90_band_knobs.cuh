// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_sm90_band, for editors and nvcc. The renderer replaces this file
// with the constants of a config.
#pragma once

#include "cuda/parts/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr int kL2SectionMb = 32;  // MB of streamed operands, for heads processed together

constexpr int kBlockM = 64, kKeyBlockM = 64;  // rows, and keys, per step

}  // namespace attune
