// SPDX-License-Identifier: Apache-2.0
// Default constants of backward_sm90_band, for editors and nvcc. The renderer replaces this file
// with the constants of a config.
#pragma once

#include "cuda/backward_sm90/default_spec_gradients.cuh"

namespace attune {

constexpr int kBlockM = 64, kKeyBlockM = 64;  // rows, and keys, per step

}  // namespace attune
