// SPDX-License-Identifier: Apache-2.0
// P and dS of one row and key in backward_reference, and rows of operands, whose elements the lanes
// of a warp share.
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/parts/score_of.cuh"  // where kScored, else none/
#include "cuda/small/reference_rows.cuh"
#include "shared/dropout.h"  // where kDropout, else none/

namespace attune {

template <int kColumns>
struct Row {
  static constexpr int kPerLane = (kColumns + 31) / 32;
  float at[kPerLane];  // lane l has elements l, l + 32, ...

  __device__ Row() {
    for (float& value : at) value = 0.0f;
  }
  template <Dtype kDtype>
  __device__ static Row of(const OperandView& view, int batch, int head, int row, int lane) {
    Row all;
    const long long first = place(view, batch, head, row);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (lane + 32 * i < kColumns) all.at[i] = load<kDtype>(view.data, first + lane + 32 * i);
    return all;
  }
  template <Dtype kDtype>
  __device__ void write(const OperandView& view, int batch, int head, int row, int lane,
                        float factor) const {
    const long long first = place(view, batch, head, row);
    if constexpr (kAccumulate) return add_to(static_cast<float*>(view.data) + first, lane, factor);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i)
      if (lane + 32 * i < kColumns) store<kDtype>(view.data, first + lane + 32 * i, factor * at[i]);
  }
  __device__ void add_to(float* sums, int lane, float factor) const {
    for (int i = 0; i < kPerLane; ++i)
      if (lane + 32 * i < kColumns) sums[lane + 32 * i] += factor * at[i];
  }
  __device__ static long long place(const OperandView& view, int batch, int head, int row) {
    return batch * view.batch_stride + head * view.head_stride + row * view.row_stride;
  }
  // Returns the dot product with `other`, in all lanes.
  __device__ float dot(const Row& other) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += at[i] * other.at[i];
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
    return sum;
  }
  __device__ void add(float factor, const Row& other) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) at[i] += factor * other.at[i];
  }
};
using RowQk = Row<kHeadDimQk>;
using RowV = Row<kHeadDimV>;

__device__ float* delta_of(const AttentionArgs& args, int batch, int head, int row) {
  const long long heads = static_cast<long long>(batch) * args.num_heads_q + head;
  return static_cast<float*>(args.workspace) + heads * args.seqlen_q + row;
}

// P and dS of one row and one key.
struct Pair {
  float p = 0.0f, ds = 0.0f;

  __device__ Pair(const KernelParts& parts, int batch, int head, int row, int key, const RowQk& q,
                  const RowQk& k, const RowV& dout, const RowV& v) {
    const AttentionArgs& args = parts.base;
    const int head_kv = head / kGqaRatio;
    const float lse = args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row];
    if (lse == __int_as_float(0xff800000)) return;  // the row sees no key
    float score = q.dot(k) * args.softmax_scale;
    const float slope = slope_of(parts.scores, score, batch, head, head_kv, row, key);
    score = score_of(parts.scores, score, batch, head, head_kv, row, key);
    p = expf(score - lse);
    float dp = dout.dot(v);
    const unsigned head_of_all = batch * args.num_heads_q + head;
    const float kept = dropout_factor(parts.dropout, head_of_all, row, key);
    dp *= kept;
    ds = p * (dp - *delta_of(args, batch, head, row));
    p *= kept;
    ds *= slope;
  }
};

}  // namespace attune
