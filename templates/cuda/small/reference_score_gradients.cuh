// SPDX-License-Identifier: Apache-2.0
// Gradients of a bias, of slopes and of sinks by backward_reference, straight from their definition
// (shared/score_gradient.h). One warp sums one element, in a fixed order; rows are added in fp64.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/score_functions.cuh"
#include "cuda/small/gradient_pair.cuh"
#include "cuda/small/reference_rows.cuh"
#include "shared/numbered_row.h"
#include "shared/score_gradient.h"

namespace attune {

struct ScoreGradientParts : KernelParts {
  const GradientArgs& gradients;
};

// Returns dz = P (dout v - delta) of one row and key, equal in all lanes.
__device__ float dz_of(const ScoreGradientParts& parts, int batch, int head, int row, int key) {
  const AttentionArgs& args = parts.base;
  if (!visible(args, row, key)) return 0.0f;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const RowQk q = RowQk::of<kDtypeQ>(args.q, batch, head, row, lane);
  const RowV dout = RowV::of<kDtypeO>(parts.gradients.dout, batch, head, row, lane);
  const RowQk k = RowQk::of<kDtypeKv>(args.k, batch, head / kGqaRatio, key, lane);
  const RowV v = RowV::of<kDtypeKv>(args.v, batch, head / kGqaRatio, key, lane);
  const Pair pair(parts, batch, head, row, key, q, k, dout, v);
  return pair.ds;
}

// Returns the derivative of the score z of a row and key with respect to the tensor's element.
__device__ float weight_of(const ScoreArgs& scores, int row, int key) {
  if (kScoreGradient != kOfAlibi) return 1.0f;
  const int ends = kMask == Mask::kCausalTopLeft ? 0 : scores.seqlen_kv - scores.seqlen_q;
  return -static_cast<float>(
      distance_from_diagonal(row, key, scores.q_position0 - scores.kv_position0 + ends));
}

struct Summed {
  SummedRange batch, head, row, key;
};

__device__ double sum_of_dz(const ScoreGradientParts& parts, const Summed& all) {
  double sum = 0;
  for (int batch = all.batch.first; batch < all.batch.end; ++batch)
    for (int head = all.head.first; head < all.head.end; ++head)
      for (int row = all.row.first; row < all.row.end; ++row) {
        float of_row = 0.0f;
#pragma unroll 1
        for (int key = all.key.first; key < all.key.end; ++key)
          of_row += weight_of(parts.scores, row, key) * dz_of(parts, batch, head, row, key);
        sum += static_cast<double>(of_row);
      }
  return sum;
}

__device__ double sum_of_diagonal(const ScoreGradientParts& parts, const SummedRange& heads,
                                  int column) {
  const AttentionArgs& args = parts.base;
  double sum = 0;
  for (int batch = 0; batch < args.batch; ++batch)
    for (int head = heads.first; head < heads.end; ++head)
      for (int row = 0; row < args.seqlen_q; ++row) {
        const int key = column + row - (args.seqlen_q - 1);
        if (key >= 0 && key < args.seqlen_kv) sum += dz_of(parts, batch, head, row, key);
      }
  return sum;
}

__device__ double sum_of_sink(const ScoreGradientParts& parts, int head) {
  const AttentionArgs& args = parts.base;
  const float infinity = score_infinity();
  double sum = 0;
  const float sink = load_capture<static_cast<CaptureType>(kSinksType)>(
      parts.scores.captures[kSinks], parts.scores.head0 + head);
  for (int batch = 0; batch < args.batch; ++batch)
    for (int row = 0; row < args.seqlen_q; ++row) {
      const float lse = args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row];
      if (lse == -infinity || sink == -infinity) continue;
      sum -= static_cast<double>(expf(sink - lse) * *delta_of(args, batch, head, row));
    }
  return sum;
}

// The extents of dscores.
struct ScoreGradientExtents {
  int batch = 1, rows = 1, heads = 1, columns = 1;

  __device__ explicit ScoreGradientExtents(const AttentionArgs& args) {
    const int all_heads = kRepeats & kRepeatsHeads ? 1 : args.num_heads_q;
    if (kScoreGradient == kOfBias || kScoreGradient == kOfAlibi)
      batch = kRepeats & kRepeatsBatch ? 1 : args.batch;
    if (kScoreGradient == kOfBias) rows = kRepeats & kRepeatsRows ? 1 : args.seqlen_q;
    if (kScoreGradient == kOfBias || kScoreGradient == kOfRelativeBias) heads = all_heads;
    if (kScoreGradient == kOfBias) columns = kRepeats & kRepeatsKeys ? 1 : args.seqlen_kv;
    if (kScoreGradient == kOfRelativeBias) columns = args.seqlen_q + args.seqlen_kv - 1;
    if (kScoreGradient == kOfAlibi || kScoreGradient == kOfSinks) columns = all_heads;
  }
};

__device__ double dscore_of(const ScoreGradientParts& parts, int batch, int row, int head,
                            int column) {
  const AttentionArgs& args = parts.base;
  if (kScoreGradient == kOfSinks) return sum_of_sink(parts, column);
  const bool by_column = kScoreGradient == kOfAlibi;
  const SummedRange heads =
      summed((kRepeats & kRepeatsHeads) != 0, args.num_heads_q, by_column ? column : head);
  if (kScoreGradient == kOfRelativeBias) return sum_of_diagonal(parts, heads, column);
  return sum_of_dz(parts,
                   {summed((kRepeats & kRepeatsBatch) != 0, args.batch, batch), heads,
                    summed(by_column || (kRepeats & kRepeatsRows) != 0, args.seqlen_q, row),
                    summed(by_column || (kRepeats & kRepeatsKeys) != 0, args.seqlen_kv, column)});
}

// Computes dscores. Warps take elements in turn, column first.
extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attune_scores(  // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores,
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ AttentionArgs args,
        const __grid_constant__ GradientArgs gradients) {
  const ScoreGradientParts parts{{args, scales, scores, dropout, map, cache}, gradients};
  const ScoreGradientExtents extents(args);
  const OperandView& out = dscores_of(gradients);
  const long long elements =
      static_cast<long long>(extents.batch) * extents.heads * extents.rows * extents.columns;
  const long long warps = static_cast<long long>(gridDim.x) * kWarps;
  for (long long i = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32; i < elements;
       i += warps) {
    const NumberedRow at =
        numbered_row(i / extents.columns, extents.batch, extents.heads, extents.rows);
    const int column = static_cast<int>(i % extents.columns);
    const double sum = dscore_of(parts, at.batch, at.row, at.head, column);
    if (threadIdx.x % 32 == 0)
      static_cast<float*>(out.data)[RowQk::place(out, at.batch, at.head, at.row) + column] =
          static_cast<float>(sum);
  }
}

}  // namespace attune
