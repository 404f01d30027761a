// SPDX-License-Identifier: Apache-2.0
// attune_sum of score_gradient_sm80: makes the elements of dscores from the tiles' sums, or the
// gradient of sinks from L2 and delta. The order of additions is fixed.
#pragma once

#include "cuda/parts/dropout_source.cuh"  // where kDropout, else none/
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/arguments.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/parts/sinks.cuh"  // where kSinks, else none/
#include "cuda/score_gradient_sm80/score_gradient_lines.cuh"

namespace attune {

// Returns the sum over all threads of the block, in thread 0. of_warps: shared memory of kSumBytes.
__device__ __forceinline__ float block_sum(float* of_warps, float value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, lanes);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.f;
  for (int warp = 0; threadIdx.x == 0 && warp < kSumThreads / 32; ++warp) sum += of_warps[warp];
  return sum;
}

// Returns the sum of -exp(sink - lse) * delta over a thread's rows of all batch entries.
__device__ __forceinline__ float sum_of_sink(const ScoreArgs& scores, const AttentionArgs& args,
                                             int head) {
  const float sink = sink_of(scores, head);
  float sum = 0.f;
  if (sink == -score_infinity()) return sum;
  for (int batch = 0; batch < args.batch; ++batch) {
    const float* const sums = row_sums(args, batch, head);
    for (int row = static_cast<int>(threadIdx.x); row < args.seqlen_q; row += kSumThreads)
      sum -= exp2_approx(sink * kLog2E - sums[row]) * sums[padded_rows(args) + row];
  }
  return sum;
}

// Returns a thread's share of the sum of one slope: the sums of every kSumThreads-th tile.
__device__ __forceinline__ float sum_of_slope(const AttentionArgs& args, SummedRange batch,
                                              SummedRange heads) {
  const int tiles = (args.seqlen_q + kBlockM - 1) / kBlockM;
  float sum = 0.f;
  for (int b = batch.first; b < batch.end; ++b)
    for (int h = heads.first; h < heads.end; ++h)
      for (int tile = static_cast<int>(threadIdx.x); tile < tiles; tile += kSumThreads)
        sum += *partial_sums(args, b, h, tile);
  return sum;
}

// Returns the gradient of one column of a bias that all rows share, or of one distance of a
// relative bias.
__device__ __forceinline__ float sum_of_line(const AttentionArgs& args, SummedRange batch,
                                             SummedRange heads, int column) {
  const int tiles = (args.seqlen_q + kBlockM - 1) / kBlockM;
  const long long columns = partial_columns_of(args);
  float sum = 0.f;
  for (int b = batch.first; b < batch.end; ++b)
    for (int h = heads.first; h < heads.end; ++h)
      for (int tile = 0; tile < tiles; ++tile) {
        const int at = kScoreGradient == kOfRelativeBias
                           ? column - args.seqlen_q + (tile + 1) * kBlockM
                           : column;
        if (at >= 0 && at < columns) sum += partial_sums(args, b, h, tile)[at];
      }
  return sum;
}

// Grid: for slopes and sinks, one block per head. Otherwise one block per kSumThreads columns of
// dscores; blocks are ordered by columns, then heads, then batch entries.
extern "C" __global__ void __launch_bounds__(kSumThreads)
    attune_sum(  // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores, const __grid_constant__ AttentionArgs args,
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ GradientArgs gradients) {
  constexpr bool kOneEach = kScoreGradient == kOfSinks || kScoreGradient == kOfAlibi;
  constexpr bool kAllHeads = (kRepeats & kRepeatsHeads) != 0;
  constexpr bool kAllBatch = kScoreGradient == kOfRelativeBias || (kRepeats & kRepeatsBatch) != 0;
  const int columns =
      kScoreGradient == kOfRelativeBias ? args.seqlen_q + args.seqlen_kv - 1 : args.seqlen_kv;
  const int column_blocks = kOneEach ? 1 : (columns + kSumThreads - 1) / kSumThreads;
  const int heads_there = kAllHeads ? 1 : args.num_heads_q;
  const int number = static_cast<int>(blockIdx.x);
  const int head = number / column_blocks % heads_there;
  const int entry = number / column_blocks / heads_there;
  const SummedRange batch = summed(kAllBatch, args.batch, entry);
  const SummedRange heads = summed(kAllHeads, args.num_heads_q, head);
  const OperandView& out = dscores_of(gradients);
  float* const line = static_cast<float*>(out.data) + entry * out.batch_stride;
  if constexpr (kOneEach) {
    float sum = kScoreGradient == kOfSinks ? sum_of_sink(scores, args, head)
                                           : sum_of_slope(args, batch, heads);
    if (kScoreGradient == kOfSinks) sum *= dropout_scale(dropout);
    extern __shared__ __align__(128) unsigned char shared_memory[];
    sum = block_sum(reinterpret_cast<float*>(shared_memory), sum);
    if (threadIdx.x == 0) line[head] = sum;
  } else {
    const int column = number % column_blocks * kSumThreads + static_cast<int>(threadIdx.x);
    if (column < columns)
      line[head * out.head_stride + column] = sum_of_line(args, batch, heads, column);
  }
}

}  // namespace attune
