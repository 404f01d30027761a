// SPDX-License-Identifier: Apache-2.0
// The largest logit of each head, for kernels of problems with max_logits: the maximum of
// softmax_scale * q k^T over all rows and the keys that they see. It is in the place of o_scale:
// fp32 [num_heads_q]. Other kernels have none/max_logits.cuh.
#pragma once

#include "cuda/parts/kernel_parts.cuh"

namespace attune {

// Raises the largest logit of a head. Bits of floats from +0 on are in the order of their values as
// integers; those of other floats are in the reverse order as unsigned numbers, above the former. A
// maximum does not depend on the order of calls. `logit` must not be NaN.
__device__ __forceinline__ void raise_max_logit(const ScaleArgs& scales, int head, float logit) {
  float* const to = scales.o_scale.data + head * scales.o_scale.head_stride;
  const int bits = __float_as_int(logit);
  if (bits >= 0)
    atomicMax(reinterpret_cast<int*>(to), bits);
  else
    atomicMin(reinterpret_cast<unsigned*>(to), static_cast<unsigned>(bits));
}

// Raises it to the largest value of a warp's lanes.
__device__ __forceinline__ void raise_max_logit_of_warp(const ScaleArgs& scales, int head,
                                                        float logit) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    logit = max(logit, __shfl_xor_sync(0xFFFFFFFFu, logit, lanes));
  if (threadIdx.x % 32 == 0) raise_max_logit(scales, head, logit);
}

constexpr int kLogitThreads = 128;

// The step before the main one: no head has seen a key. One block.
extern "C" __global__ void __launch_bounds__(kLogitThreads)
    attune_begin_logits(const __grid_constant__ AttentionArgs args,
                        const __grid_constant__ ScaleArgs scales) {
  for (int head = static_cast<int>(threadIdx.x); head < args.num_heads_q; head += kLogitThreads)
    scales.o_scale.data[head * scales.o_scale.head_stride] = -__int_as_float(0x7f800000);
}

}  // namespace attune
