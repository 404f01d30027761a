// SPDX-License-Identifier: Apache-2.0
// dQ in fp32 in the workspace of backward_sm90 with fuse_dq, and the turns in which blocks add to
// it. For each head of Q and block of kKeyBlockM rows, the workspace holds the accumulators of both
// warpgroups, in register order, and the count of blocks of keys that have added. The counts follow
// dQ of all blocks. If blocks add in no fixed order, each part instead has a word with its state
// right after dQ of its block (dq_free.cuh). The number of drawn tiles is at the end.
#pragma once

#include "cuda/parts/row_sums.cuh"
#include "shared/layouts/backward_free_layout.h"  // where kDqFree

namespace attune {

constexpr int kFusedFloats = kKeyBlockM * kHeadDimQk;    // of a block of rows
#if 1                                                    // where kDqFree
constexpr int kFusedStride = kFusedFloats + kFreeWords;  // where kDqFree
#else                                                    // where kDqFree
constexpr int kFusedStride = kFusedFloats;
#endif                                                   // where kDqFree

class FusedWorkspace {
 public:
  __device__ __forceinline__ explicit FusedWorkspace(const AttentionArgs& args)
      : blocks_((args.seqlen_q + kKeyBlockM - 1) / kKeyBlockM),
        heads_(static_cast<long long>(args.batch) * args.num_heads_q),
        dq_(static_cast<char*>(args.workspace) + backward_sums_bytes(heads_, padded_rows(args))) {}

  __device__ __forceinline__ int blocks() const { return blocks_; }
  // Return dQ and the turn of block `at`, counted over all heads of all batch entries.
  __device__ __forceinline__ float* dq(long long at) const {
    return reinterpret_cast<float*>(dq_) + at * kFusedStride;
  }
  __device__ __forceinline__ int* turn(int at) const {
    return reinterpret_cast<int*>(dq(at) + kFusedFloats);      // where kDqFree
    return reinterpret_cast<int*>(dq(heads_ * blocks_)) + at;  // unless kDqFree
  }
  __device__ __forceinline__ int* drawn() const {
    return reinterpret_cast<int*>(dq(heads_ * blocks_)) + heads_ * blocks_;
  }

 private:
  int blocks_;
  long long heads_;
  char* dq_;
};

}  // namespace attune
