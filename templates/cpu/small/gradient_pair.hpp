// SPDX-License-Identifier: Apache-2.0
// P and dS of one row and key in backward_reference, and rows of operands as fp32.
#pragma once

#include "cpu/parts/none/features.hpp"
#include "cpu/parts/score_of.hpp"  // where kScored, else none/
#include "cpu/small/reference_rows.hpp"
#include "shared/dropout.h"  // where kDropout, else none/
#include "shared/kernel_arguments.h"

namespace attune {

inline long long place(const OperandView& view, int batch, int head, int row) {
  return batch * view.batch_stride + head * view.head_stride + row * view.row_stride;
}

template <Dtype kDtype, int kColumns>
inline void load_row(const OperandView& view, int batch, int head, int row, float* values) {
  const long long first = place(view, batch, head, row);
  for (int c = 0; c < kColumns; ++c) values[c] = element<kDtype>(view.data, first + c);
}

template <Dtype kDtype, int kColumns>
inline void store_row(const OperandView& view, int batch, int head, int row, const float* values,
                      float factor) {
  const long long first = place(view, batch, head, row);
  for (int c = 0; c < kColumns; ++c)
    if constexpr (kAccumulate)
      static_cast<float*>(view.data)[first + c] += factor * values[c];
    else
      set_element<kDtype>(view.data, first + c, factor * values[c]);
}

// Keeps a sum per lane, in registers; a compiler would unroll a single sum.
template <int kColumns>
inline float dot_of_parts(const float* a, const float* b) {
  constexpr int kParts = 16, kWhole = kColumns / kParts * kParts;
  typedef float Parts __attribute__((vector_size(4 * kParts), aligned(4)));
  Parts sums = {};
  for (int c = 0; c < kWhole; c += kParts)
    sums += *reinterpret_cast<const Parts*>(a + c) * *reinterpret_cast<const Parts*>(b + c);
  float sum = 0;
  for (int i = 0; i < kParts; ++i) sum += sums[i];
  for (int c = kWhole; c < kColumns; ++c) sum += a[c] * b[c];
  return sum;
}

template <int kColumns>
inline float dot(const float* a, const float* b) {
#pragma clang fp reassociate(on)
  if constexpr (kScoreGradient != 0) return dot_of_parts<kColumns>(a, b);
  float sum = 0;
  for (int c = 0; c < kColumns; ++c) sum += a[c] * b[c];
  return sum;
}

inline float* delta_of(const AttentionArgs& args, int batch, int head, int row) {
  const long long heads = static_cast<long long>(batch) * args.num_heads_q + head;
  return static_cast<float*>(args.workspace) + heads * args.seqlen_q + row;
}

// Writes delta of a row: o times dout, which `dot_of` sums, minus dlse.
template <class Dot>
inline void write_delta(const KernelArguments& args, int batch, int head, int row, Dot dot_of) {
  float o[kHeadDimV], dout[kHeadDimV];
  load_row<kDtypeO, kHeadDimV>(args.o, batch, head, row, o);
  load_row<kDtypeO, kHeadDimV>(args.gradients.dout, batch, head, row, dout);
  const GradientArgs& g = args.gradients;
  const float dlse =
      g.dlse ? g.dlse[batch * g.dlse_batch_stride + head * g.dlse_head_stride + row] : 0;
  *delta_of(args, batch, head, row) = dot_of(o, dout) - dlse;
}

// P and dS of one row and one key.
struct Pair {
  float p = 0, ds = 0;

  Pair(const KernelArguments& args, int batch, int head, int row, int key, const float* q,
       const float* k, const float* dout, const float* v) {
    const int head_kv = head / kGqaRatio;
    const float lse = args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row];
    if (lse == -__builtin_inff()) return;  // the row sees no key
    float score = dot<kHeadDimQk>(q, k) * args.softmax_scale;
    const float slope = slope_of(args.scores, score, batch, head, head_kv, row, key);
    score = score_of(args.scores, score, batch, head, head_kv, row, key);
    p = __builtin_expf(score - lse);
    float dp = dot<kHeadDimV>(dout, v);
    const float kept = dropout_factor(args.dropout, batch * args.num_heads_q + head, row, key);
    dp *= kept;
    ds = p * (dp - *delta_of(args, batch, head, row));
    p *= kept;
    ds *= slope;
  }
};

}  // namespace attune
