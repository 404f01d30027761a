// SPDX-License-Identifier: Apache-2.0
// The last step of backward_sm90 with fuse_dq: dQ from fp32, where accumulators stand as in registers, scaled and rounded. A warpgroup has what
// one of the kernel before it handed over. Rows to which no block of keys added are zeros.
#pragma once

#include "cuda/attention/backward_layout.cuh"
#include "cuda/attention/fused_workspace.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "shared/kernel_arguments.h"

namespace attune {

constexpr int kRoundThreads = 2 * kWarpgroupThreads;

extern "C" __global__ void __launch_bounds__(kRoundThreads)
    attune_round(const __grid_constant__ AttentionArgs args,
                 const __grid_constant__ GradientArgs gradients) {
  let_next_grid_start();
  wait_for_prior_grid();
  if (args.seqlen_q == 0 || args.batch == 0) return;
  constexpr int kColumns = backward_fused_columns(kKeyBlockM, kHeadDimQk);
  constexpr bool kByRows = kKeyBlockM > kWarpgroupRows;
  const FusedWorkspace sums(args);
  const int head = static_cast<int>(blockIdx.x) / sums.blocks();  // of all batch entries
  const int block = static_cast<int>(blockIdx.x) % sums.blocks();
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads, lane = thread % 4;
  const bool any = *sums.turn(static_cast<int>(blockIdx.x)) > 0;
  const auto* from = reinterpret_cast<const float4*>(sums.dq(blockIdx.x)) +
                     warpgroup * (kFusedFloats / 8) + thread;
  const int row =
      block * kKeyBlockM + (kByRows ? warpgroup * kWarpgroupRows : 0) + first_accumulator_row();
  auto* to = static_cast<unsigned short*>(gradients.dq.data) +
             head / args.num_heads_q * gradients.dq.batch_stride +
             head % args.num_heads_q * gradients.dq.head_stride +
             (kByRows ? 0 : warpgroup * kColumns);
#pragma unroll
  for (int i = 0; i < kColumns / 8;
       i += 2) {  // two times eight columns: an odd lane has four of the second
    float4 x[2] = {};
    if (any) x[0] = from[i * kWarpgroupThreads], x[1] = from[(i + 1) * kWarpgroupThreads];
    const float s = args.softmax_scale;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      unsigned words[2];
#pragma unroll
      for (int j = 0; j < 2; ++j)
        words[j] = half == 0 ? pack<kDtypeQ>(s * x[j].x, s * x[j].y)
                             : pack<kDtypeQ>(s * x[j].z, s * x[j].w);
      const bool odd = lane % 2 != 0;
      const unsigned other = __shfl_xor_sync(~0u, odd ? words[0] : words[1], 1);
      const uint2 pair = odd ? make_uint2(other, words[1]) : make_uint2(words[0], other);
      const int at = row + 8 * half;
      if (at < args.seqlen_q)
        *reinterpret_cast<uint2*>(to + at * gradients.dq.row_stride + 8 * (i + odd) +
                                  lane / 2 * 4) = pair;
    }
  }
}

}  // namespace attune
