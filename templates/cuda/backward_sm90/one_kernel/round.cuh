// SPDX-License-Identifier: Apache-2.0
// The last step of backward_sm90_one_kernel: scales and rounds dQ. The workspace has dQ in fp32,
// with accumulators in the order of registers. A warpgroup takes the accumulators that one
// warpgroup of the previous kernel added. Rows to which no block of keys added become zeros.
#pragma once

#include "cuda/backward_sm90/layout.cuh"
#include "cuda/backward_sm90/one_kernel/workspace.cuh"
#include "cuda/parts/dropout_source.cuh"  // where kDropout, else none/
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/stmatrix.cuh"
#include "cuda/ptx/streamed_loads.cuh"

namespace attune {

constexpr int kRoundThreads = 2 * kWarpgroupThreads;

// Stores two groups of eight columns of a row. Each of four lanes has one word of each group. An
// even lane stores four columns of the first group, an odd lane four columns of the second.
__device__ __forceinline__ void store_words(unsigned short* to, const unsigned (&words)[2],
                                            bool exists) {
  const int lane = static_cast<int>(threadIdx.x) % 4;
  const bool odd = lane % 2 != 0;
  const unsigned other = __shfl_xor_sync(~0u, odd ? words[0] : words[1], 1);
  const uint2 pair = odd ? make_uint2(other, words[1]) : make_uint2(words[0], other);
  if (exists) *reinterpret_cast<uint2*>(to + 8 * odd + lane / 2 * 4) = pair;
}

// Scales and rounds a thread's four values of eight columns of a warpgroup's product. Returns one
// word of the thread's first row and one of its second row.
__device__ __forceinline__ uint2 rounded(const Vector16& packed, float s) {
  float x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = s * __uint_as_float(packed.word[i]);
  return make_uint2(pack<kDtypeQ>(x[0], x[1]), pack<kDtypeQ>(x[2], x[3]));
}

// Loads the values that a thread stored, or zeros if `*any` is 0. The loads do not wait for `*any`.
template <int kCount>
__device__ __forceinline__ void load_stored(const float4* from, const int* any,
                                            Vector16 (&packed)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) packed[i] = load_streamed_16(from + i * kWarpgroupThreads);
  if (*any > 0) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) packed[i] = {};
}

// Stores a product whose rows are rows of dQ, from `row` on. `to`: address of the product's first
// column in row 0 of dQ.
template <int kCount>
__device__ __forceinline__ void round_rows(const Vector16 (&packed)[kCount], float s,
                                           unsigned short* to, long long stride, int row, int end) {
  row += first_accumulator_row();
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const uint2 first = rounded(packed[i], s), second = rounded(packed[i + 1], s);
    const unsigned upper[2] = {first.x, second.x}, lower[2] = {first.y, second.y};
    store_words(to + row * stride + 8 * i, upper, row < end);
    store_words(to + (row + 8) * stride + 8 * i, lower, row + 8 < end);
  }
}

// Stores a product whose rows are columns of dQ, from `column` on. Rows past head_dim are zeros.
template <int kCount>
__device__ __forceinline__ void round_columns(const Vector16 (&packed)[kCount], float s,
                                              unsigned short* to, long long stride, int column,
                                              int row, int end) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  if (column + thread / 32 * 16 >= kHeadDimQk) return;
  row += thread % 32 / 4;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint2 both = rounded(packed[i], s);
    const unsigned words[2] = {movmatrix_transposed(both.x), movmatrix_transposed(both.y)};
    store_words(to + (row + 8 * i) * stride + thread / 32 * 16, words, row + 8 * i < end);
  }
}

extern "C" __global__ void __launch_bounds__(kRoundThreads)
    attune_round(const __grid_constant__ AttentionArgs args,
                 const __grid_constant__ DropoutArgs dropout,  // where kDropout
                 const __grid_constant__ GradientArgs gradients) {
  let_next_grid_start();
  wait_for_prior_grid();
  if (args.seqlen_q == 0 || args.batch == 0) return;
  constexpr int kColumns = backward_one_kernel_columns(kKeyBlockM, kHeadDimQk);
  constexpr DqHalf kHalf = backward_dq_half(kKeyBlockM);
  const OneKernelWorkspace sums(args);
  const int last_first = static_cast<int>(gridDim.x - 1 - blockIdx.x);  // the L2 cache has the last
  const int head = last_first / sums.blocks();                          // over all batch entries
  const int block = last_first % sums.blocks();
  const int warpgroup = static_cast<int>(threadIdx.x) / kWarpgroupThreads;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const auto* from = reinterpret_cast<const float4*>(sums.dq(last_first)) +
                     warpgroup * (kOneKernelFloats / 8) + thread;
  const int column =
      kHalf == DqHalf::kRows ? 0 : warpgroup * (backward_dq_columns(kKeyBlockM, kHeadDimQk) / 2);
  auto* to = static_cast<unsigned short*>(gradients.dq.data) +
             head / args.num_heads_q * gradients.dq.batch_stride +
             head % args.num_heads_q * gradients.dq.head_stride + column;
  const float s = args.softmax_scale * dropout_scale(dropout);
  const int row = block * kKeyBlockM + (kHalf == DqHalf::kRows ? warpgroup * kWarpgroupRows : 0);
  Vector16 packed[kColumns / 8];
  load_stored(from, sums.turn(last_first), packed);
  if constexpr (kHalf == DqHalf::kTransposed)
    round_columns(packed, s, to, gradients.dq.row_stride, column, row, args.seqlen_q);
  else
    round_rows(packed, s, to, gradients.dq.row_stride, row, args.seqlen_q);
}

}  // namespace attune
