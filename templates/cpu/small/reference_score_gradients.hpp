// SPDX-License-Identifier: Apache-2.0
// Gradients of a bias, of slopes and of sinks for backward_reference on a CPU, from the definition
// in shared/score_gradient.h. One thread sums each element in a fixed order, in fp64.
#pragma once

#include "cpu/parts/sinks.hpp"  // where kSinks, else none/
#include "cpu/small/gradient_pair.hpp"
#include "cpu/small/reference_rows.hpp"
#include "shared/numbered_row.h"
#include "shared/score_gradient.h"

namespace attune {

// Returns a row as fp32: in place if it is fp32, else converted in `scratch`.
template <Dtype kDtype, int kColumns>
inline const float* row_of(const OperandView& view, int batch, int head, int row, float* scratch) {
  if constexpr (kDtype == Dtype::kFp32)
    return static_cast<const float*>(view.data) + place(view, batch, head, row);
  load_row<kDtype, kColumns>(view, batch, head, row, scratch);
  return scratch;
}

// Returns P (dout v - delta) of one row and key.
inline float dz_of(const KernelArguments& args, int batch, int head, int row, int key) {
  if (!is_visible(args, row, key)) return 0;
  float scratch[4][kHeadDimQk > kHeadDimV ? kHeadDimQk : kHeadDimV];
  const int head_kv = head / kGqaRatio;
  return Pair(args, batch, head, row, key,
              row_of<kDtypeQ, kHeadDimQk>(args.q, batch, head, row, scratch[0]),
              row_of<kDtypeKv, kHeadDimQk>(args.k, batch, head_kv, key, scratch[1]),
              row_of<kDtypeO, kHeadDimV>(args.gradients.dout, batch, head, row, scratch[2]),
              row_of<kDtypeKv, kHeadDimV>(args.v, batch, head_kv, key, scratch[3]))
      .ds;
}

// The ranges over which one element of dscores sums. The weight of z is the derivative of z by the
// tensor's element.
struct Summed {
  SummedRange batch, head, row, key;
};

inline float weight_of(const KernelArguments& args, int row, int key) {
  if (kScoreGradient != kOfAlibi) return 1;
  const ScoreArgs& scores = args.scores;
  const int ends = kMask == Mask::kCausalTopLeft ? 0 : scores.seqlen_kv - scores.seqlen_q;
  return -static_cast<float>(
      distance_from_diagonal(row, key, scores.q_position0 - scores.kv_position0 + ends));
}

inline float sum_of_dz(const KernelArguments& args, const Summed& all) {
  double sum = 0;
  for (int batch = all.batch.first; batch < all.batch.end; ++batch)
    for (int head = all.head.first; head < all.head.end; ++head)
      for (int row = all.row.first; row < all.row.end; ++row)
        for (int key = all.key.first; key < all.key.end; ++key)
          sum +=
              static_cast<double>(weight_of(args, row, key)) * dz_of(args, batch, head, row, key);
  return static_cast<float>(sum);
}

inline float sum_of_diagonal(const KernelArguments& args, const SummedRange& heads, int column) {
  double sum = 0;
  for (int batch = 0; batch < args.batch; ++batch)
    for (int head = heads.first; head < heads.end; ++head)
      for (int row = 0; row < args.seqlen_q; ++row) {
        const int key = column + row - (args.seqlen_q - 1);
        if (key >= 0 && key < args.seqlen_kv) sum += dz_of(args, batch, head, row, key);
      }
  return static_cast<float>(sum);
}

inline float sum_of_sink(const KernelArguments& args, int head) {
  double sum = 0;
  const float sink = sink_of(args.scores, head);
  for (int batch = 0; batch < args.batch; ++batch)
    for (int row = 0; row < args.seqlen_q; ++row) {
      const float lse = args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row];
      if (lse == -__builtin_inff() || sink == -__builtin_inff()) continue;
      sum -= static_cast<double>(__builtin_expf(sink - lse) * *delta_of(args, batch, head, row));
    }
  return static_cast<float>(sum);
}

// The extents of dscores (shared/score_gradient.h).
struct ScoreGradientExtents {
  int batch = 1, rows = 1, heads = 1, columns = 1;

  explicit ScoreGradientExtents(const AttentionArgs& args) {
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

inline float dscore_of(const KernelArguments& args, int batch, int row, int head, int column) {
  if (kScoreGradient == kOfSinks) return sum_of_sink(args, column);
  const bool by_column = kScoreGradient == kOfAlibi;
  const SummedRange heads =
      summed((kRepeats & kRepeatsHeads) != 0, args.num_heads_q, by_column ? column : head);
  if (kScoreGradient == kOfRelativeBias) return sum_of_diagonal(args, heads, column);
  return sum_of_dz(args,
                   {summed((kRepeats & kRepeatsBatch) != 0, args.batch, batch), heads,
                    summed(by_column || (kRepeats & kRepeatsRows) != 0, args.seqlen_q, row),
                    summed(by_column || (kRepeats & kRepeatsKeys) != 0, args.seqlen_kv, column)});
}

extern "C" void attune_scores(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  const ScoreGradientExtents extents(args);
  const OperandView& out = dscores_of(args.gradients);
  const long long lines = static_cast<long long>(extents.batch) * extents.heads * extents.rows;
  for (long long i = thread; i < lines * extents.columns; i += num_threads) {
    const NumberedRow at =
        numbered_row(i / extents.columns, extents.batch, extents.heads, extents.rows);
    const int column = static_cast<int>(i % extents.columns);
    static_cast<float*>(out.data)[place(out, at.batch, at.head, at.row) + column] =
        dscore_of(args, at.batch, at.row, at.head, column);
  }
}

}  // namespace attune
