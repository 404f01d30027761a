// SPDX-License-Identifier: Apache-2.0
// The workspace of backward_lists_sm80 (shared/layouts/backward_lists_layout.h), for all its
// kernels.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "shared/layouts/backward_lists_layout.h"

namespace attune {

constexpr int kHeadTiles = (kGqaRatio + kHeads - 1) / kHeads;  // blocks for a row and head of K
constexpr int kSumColumns = backward_lists_columns(kHeadDimQk, kHeadDimV, kValuesInKeys);

// Rows of Q of all batch entries.
struct RowRange {
  int first, count;
};

// Returns the address of L2 of a row and head; delta follows. A row that sees no key has L2 = +inf
// and delta = 0.
__device__ __forceinline__ float* statistics_of(const AttentionArgs& args, int batch, int row,
                                                int head) {
  const long long rows = static_cast<long long>(batch) * args.seqlen_q + row;
  return static_cast<float*>(args.workspace) + 2 * (rows * args.num_heads_q + head);
}

// Returns the sums of all keys: [batch, seqlen_kv, num_heads_kv, kSumColumns], dK before dV.
__device__ __forceinline__ float* key_sums(const AttentionArgs& args) {
  const long long rows = 2LL * args.batch * args.num_heads_q * args.seqlen_q;
  return static_cast<float*>(args.workspace) + backward_lists_aligned(rows);
}
__device__ __forceinline__ long long num_key_sums(const AttentionArgs& args) {
  return static_cast<long long>(args.batch) * args.seqlen_kv * args.num_heads_kv * kSumColumns;
}
// Returns the parts of a round: [rows, num_heads_kv, entries of a list, kHeadTiles, kSumColumns].
__device__ __forceinline__ float* key_parts(const AttentionArgs& args) {
  return key_sums(args) + backward_lists_aligned(num_key_sums(args));
}

}  // namespace attune
