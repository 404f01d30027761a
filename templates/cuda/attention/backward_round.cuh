// SPDX-License-Identifier: Apache-2.0
// The last step of backward_sm90 with fuse_dq: dQ from fp32, where accumulators stand as in registers, scaled and rounded. A warpgroup has what
// one of the kernel before it handed over. Rows to which no block of keys added are zeros.
#pragma once

#include "cuda/attention/backward_layout.cuh"
#include "cuda/attention/fused_workspace.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/movmatrix.cuh"
#include "shared/kernel_arguments.h"

namespace attune {

constexpr int kRoundThreads = 2 * kWarpgroupThreads;

// Of a row two times eight columns, of which four lanes have two words each: an odd lane stores four columns of the second.
__device__ __forceinline__ void store_words(unsigned short* to, const unsigned (&words)[2],
                                            bool exists) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const bool odd = lane % 2 != 0;
  const unsigned other = __shfl_xor_sync(~0u, odd ? words[0] : words[1], 1);
  const uint2 pair = odd ? make_uint2(other, words[1]) : make_uint2(words[0], other);
  if (exists) *reinterpret_cast<uint2*>(to + 8 * odd + lane / 2 * 4) = pair;
}

// Of eight columns of a warpgroup's product, as a thread stored them: two words, of its first row and of its second, scaled and rounded.
__device__ __forceinline__ uint2 rounded(const float4* from, bool any, float s) {
  float4 x = {};
  if (any) x = *from;
  return make_uint2(pack<kDtypeQ>(s * x.x, s * x.y), pack<kDtypeQ>(s * x.z, s * x.w));
}

// Rows of the product are rows of dQ, from `row` on; `to`: its first column in row 0.
template <int kColumns>
__device__ __forceinline__ void round_rows(const float4* from, bool any, float s,
                                           unsigned short* to, long long stride, int row, int end) {
  row += first_accumulator_row();
#pragma unroll
  for (int i = 0; i < kColumns / 8; i += 2) {
    const uint2 first = rounded(from + i * kWarpgroupThreads, any, s);
    const uint2 second = rounded(from + (i + 1) * kWarpgroupThreads, any, s);
    const unsigned upper[2] = {first.x, second.x}, lower[2] = {first.y, second.y};
    store_words(to + row * stride + 8 * i, upper, row < end);
    store_words(to + (row + 8) * stride + 8 * i, lower, row + 8 < end);
  }
}

// Rows of the product are columns of dQ.
template <int kRows>
__device__ __forceinline__ void round_columns(const float4* from, bool any, float s,
                                              unsigned short* to, long long stride, int row,
                                              int end) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  row += thread % 32 / 4;
#pragma unroll
  for (int i = 0; i < kRows / 8; ++i) {
    const uint2 both = rounded(from + i * kWarpgroupThreads, any, s);
    const unsigned words[2] = {movmatrix_transposed(both.x), movmatrix_transposed(both.y)};
    store_words(to + (row + 8 * i) * stride + thread / 32 * 16, words, row + 8 * i < end);
  }
}

extern "C" __global__ void __launch_bounds__(kRoundThreads)
    attune_round(const __grid_constant__ AttentionArgs args,
                 const __grid_constant__ GradientArgs gradients) {
  let_next_grid_start();
  wait_for_prior_grid();
  if (args.seqlen_q == 0 || args.batch == 0) return;
  constexpr int kColumns = backward_fused_columns(kKeyBlockM, kHeadDimQk);
  constexpr DqHalf kHalf = backward_dq_half(kKeyBlockM);
  const FusedWorkspace sums(args);
  const int head = static_cast<int>(blockIdx.x) / sums.blocks();  // of all batch entries
  const int block = static_cast<int>(blockIdx.x) % sums.blocks();
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const bool any = *sums.turn(static_cast<int>(blockIdx.x)) > 0;
  const auto* from = reinterpret_cast<const float4*>(sums.dq(blockIdx.x)) +
                     warpgroup * (kFusedFloats / 8) + thread;
  auto* to = static_cast<unsigned short*>(gradients.dq.data) +
             head / args.num_heads_q * gradients.dq.batch_stride +
             head % args.num_heads_q * gradients.dq.head_stride +
             (kHalf == DqHalf::kRows ? 0 : warpgroup * (kHeadDimQk / 2));
  const float s = args.softmax_scale;
  const int row = block * kKeyBlockM + (kHalf == DqHalf::kRows ? warpgroup * kWarpgroupRows : 0);
  if constexpr (kHalf == DqHalf::kTransposed)
    round_columns<kColumns>(from, any, s, to, gradients.dq.row_stride, row, args.seqlen_q);
  else
    round_rows<kColumns>(from, any, s, to, gradients.dq.row_stride, row, args.seqlen_q);
}

}  // namespace attune
