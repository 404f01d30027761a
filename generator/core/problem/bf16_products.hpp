// SPDX-License-Identifier: Apache-2.0
// The instructions of a CPU that multiply bf16. Used by families, reports and tests.
#pragma once

#include "generator/core/problem/arch.hpp"

namespace attune {

// True if the CPU has AMX with products of bf16.
inline bool has_bf16_tiles(const Arch& arch) {
  return arch.has_feature("+amx-tile") && arch.has_feature("+amx-bf16");
}
// True if the CPU has AVX512_BF16, and its kernels use registers of 64 bytes.
inline bool has_bf16_pairs(const Arch& arch) {
  return arch.has_feature("+avx512bf16") && arch.vector_bytes == 64;
}

}  // namespace attune
