// SPDX-License-Identifier: Apache-2.0
// Shared memory and workspace of the score_gradient_sm80 kernels. Kernels, search space and launch
// read this one text.
//
// | workspace    | fp32                                                                           |
// |--------------|--------------------------------------------------------------------------------|
// | row sums     | [batch, num_heads_q, 2, rows]: L2 and delta, rows padded to tiles              |
// | partial sums | [batch, num_heads_q, tiles, partial_columns], from a multiple of 256 bytes on, |
// |              | if tiles leave partial sums                                                    |
#pragma once

#include "shared/layouts/backward_sm80_layout.h"
#include "shared/score_gradient.h"

namespace attune {

// True if blocks write elements of dscores themselves.
constexpr bool writes_dscores(int gradient, int repeats) {
  return gradient == kOfBias && (repeats & (kRepeatsRows | kRepeatsKeys)) == 0;
}

// Returns the fp32 values that a tile leaves: a sum per key, a sum per diagonal that it crosses, or
// one sum.
constexpr long long partial_columns(int gradient, int repeats, int block_m, int block_n,
                                    long long seqlen_kv) {
  if (gradient == kOfSinks || writes_dscores(gradient, repeats)) return 0;
  const long long keys = (seqlen_kv + block_n - 1) / block_n * block_n;
  if (gradient == kOfBias) return keys;
  return gradient == kOfRelativeBias ? keys + block_m : 4;
}

// Returns the row stride of a tile of dz in shared memory. A warp's writes to columns of two rows
// then hit different banks.
constexpr int dz_stride(int block_n) { return block_n + 8; }

constexpr int kMaxWarps = 32;
constexpr int kSumThreads = 256, kSumBytes = 4 * kSumThreads / 32;  // of attune_sum

// Returns the bytes after the ring: a tile of dz that is summed along lines, or one sum per warp.
constexpr int score_gradient_tile_bytes(int gradient, int repeats, int block_m, int block_n) {
  const bool has_lines =
      gradient == kOfRelativeBias || (gradient == kOfBias && !writes_dscores(gradient, repeats));
  if (gradient == kOfAlibi) return 4 * kMaxWarps;
  return has_lines ? 4 * block_m * dz_stride(block_n) : 0;
}

}  // namespace attune
