// SPDX-License-Identifier: Apache-2.0
// dQ in fp32 in the workspace of backward_sm90_one_kernel, and what blocks of keys must know of
// each other. For each head of Q and block of kKeyBlockM rows, the workspace holds the accumulators
// of both warpgroups, in register order. The number of drawn tiles follows all of these. With
// split_heads 1, sums of dK and dV are at the end.
//
//   ordered dQ:    a turn for each block of rows, the count of blocks of keys that have added. The
//                  turns follow dQ of all blocks.
//   unordered dQ:  a claim for each half of a block of rows, right after dQ of the block
#pragma once

#include "cuda/parts/row_sums.cuh"
#include "shared/layouts/backward_unordered_layout.h"

namespace attune {

// The fp32 values of dQ of a block of rows, with padded columns.
constexpr int kOneKernelFloats = kKeyBlockM * backward_dq_columns(kKeyBlockM, kHeadDimQk);
constexpr int kOneKernelStride = kOneKernelFloats + (kOrdered != 0 ? 0 : kClaimWords);

class OneKernelWorkspace {
 public:
  __device__ __forceinline__ explicit OneKernelWorkspace(const AttentionArgs& args)
      : blocks_((args.seqlen_q + kKeyBlockM - 1) / kKeyBlockM),
        heads_(static_cast<long long>(args.batch) * args.num_heads_q),
        dq_(static_cast<char*>(args.workspace) + backward_sums_bytes(heads_, padded_rows(args))) {}

  __device__ __forceinline__ int blocks() const { return blocks_; }
  // Returns dQ of block `at`, counted over all heads of all batch entries.
  __device__ __forceinline__ float* dq(long long at) const {
    return reinterpret_cast<float*>(dq_) + at * kOneKernelStride;
  }
  // Returns the turn of block `at`, or the claim of its first half.
  __device__ __forceinline__ int* turn(int at) const {
    if constexpr (kOrdered != 0)
      return reinterpret_cast<int*>(dq(heads_ * blocks_)) + at;
    else
      return reinterpret_cast<int*>(dq(at) + kOneKernelFloats);
  }
  __device__ __forceinline__ int* drawn() const {
    return reinterpret_cast<int*>(dq(heads_ * blocks_)) + heads_ * blocks_;
  }
  // Returns the address after all of this: a multiple of 256 bytes.
  __device__ __forceinline__ char* end() const {
    return reinterpret_cast<char*>((reinterpret_cast<unsigned long long>(drawn() + 1) + 255) &
                                   ~255ull);
  }

 private:
  int blocks_;
  long long heads_;
  char* dq_;
};

// Returns the sums of all parts of heads (head_parts.cuh).
__device__ __forceinline__ float* slices_of(const AttentionArgs& args) {
  return reinterpret_cast<float*>(OneKernelWorkspace(args).end());
}

// Sets the number of drawn tiles to zero. attune_prepare calls this and begin_rows().
__device__ __forceinline__ void begin_launch(const AttentionArgs& args) {
  *OneKernelWorkspace(args).drawn() = 0;
}

// Sets the turn, or the claims, of the block that begins with row `row` to zero.
__device__ __forceinline__ void begin_rows(const AttentionArgs& args, int head, int row) {
  if (row % kKeyBlockM != 0) return;
  const OneKernelWorkspace sums(args);
  *sums.turn(head * sums.blocks() + row / kKeyBlockM) = 0;
  if constexpr (kOrdered == 0) sums.turn(head * sums.blocks() + row / kKeyBlockM)[1] = 0;
}

}  // namespace attune
