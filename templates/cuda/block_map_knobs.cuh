// SPDX-License-Identifier: Apache-2.0
// Default constants of block_map: what an editor or nvcc sees. The renderer puts the chosen ones in
// this file's place.
#pragma once

#include "cuda/default_spec.cuh"

namespace attune {

constexpr int kArch = 90;
constexpr int kWarps = 8;  // of a block of threads

}  // namespace attune
