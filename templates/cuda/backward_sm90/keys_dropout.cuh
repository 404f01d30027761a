// SPDX-License-Identifier: Apache-2.0
// Dropout in kernels of dK and dV, by keys (dropout.cuh).
#pragma once

#include "cuda/backward_sm90/dropout.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "shared/layouts/backward_sm90_layout.h"

namespace attune {

// Dropout of a warpgroup whose 64 keys stay.
class KeysDropout : public GradientDropout<kKeyBlockM, true> {
 public:
  static constexpr int kRegisters = backward_dropout_registers(kKeyBlockM);

  using GradientDropout::GradientDropout;

  // Begins the steps of a head of Q. `first_key`: first key of the warpgroup.
  __device__ __forceinline__ void begin(const AttentionArgs& args, int batch, int head,
                                        int first_key) {
    const int warp = reread_thread_index() % kWarpgroupThreads / 32;
    source_ = Squares::staying(DropoutSource(args_, dropout_head(args, batch, head)),
                               static_cast<unsigned>(first_key) / 16 + warp);
  }

  // Sets dropped elements of rounded P to zero.
  template <int kPairs>
  __device__ __forceinline__ void keep(unsigned (&p)[kPairs]) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) p[i] = keep(p[i], i);
  }

  // Makes rounded P and dS of the four elements from i on again, without dropped elements. The
  // compiler removes what was made before. `delta` has a value for each of two queries.
  template <int kCount, int kPairs>
  __device__ __forceinline__ void redo(int i, const float (&s)[kCount], const float (&dp)[kCount],
                                       const float (&delta)[2], unsigned (&p)[kPairs],
                                       unsigned (&ds)[kPairs]) const {
#pragma unroll
    for (int j = i; j < i + 4; j += 2)
      ds[j / 2] = pack<kDtypeQ>(s[j] * (kept(dp[j], j) - delta[0]),
                                s[j + 1] * (kept(dp[j + 1], j + 1) - delta[1]));
#pragma unroll
    for (int j = i; j < i + 4; j += 2) p[j / 2] = keep(p[j / 2], j / 2);
  }

  // Returns pair i of rounded P, with zeros in place of dropped elements.
  __device__ __forceinline__ unsigned keep(unsigned pair, int i) const {
    return squares_.keep(pair, i / 2, i % 2);
  }
};

}  // namespace attune
