// SPDX-License-Identifier: Apache-2.0
// reference: O = softmax(softmax_scale * Q K^T, masked) V in fp32, from the definition: one warp
// per query row, one pass for the maximum, one for the weights. It is slow and simple on purpose:
// it is the tuner's reference and shares no code with the kernels that it checks. It takes fp32,
// bf16 or fp16, or 8-bit Q, K and V with factors, with V in either layout and in both accuracy
// modes. It takes any head dims and uses no shared memory.
#include "shared/attention_enums.h"
#include "shared/scale_args.h"

#include "cuda/small/small_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/max_logits.cuh"  // where kMaxLogits, else none/
#include "cuda/parts/score_of.cuh"    // where kScored, else none/
#include "cuda/parts/sinks.cuh"       // where kSinks, else none/
#include "cuda/small/reference_rows.cuh"
#include "shared/dropout.h"  // where kDropout, else none/
#include "shared/numbered_row.h"

namespace attune {

// Returns the factor of a row's elements: 1 if there are no factors.
template <int kBlock>
__device__ float factor(const ScaleView& scale, int batch, int head, int row) {
  if (scale.data == nullptr) return 1.0f;
  const long long block = kBlock > 0 ? row / (kBlock > 0 ? kBlock : 1) * scale.block_stride : 0;
  return scale
      .data[batch * scale.batch_stride + head / scale.heads_per_scale * scale.head_stride + block];
}

constexpr float kNothing = -3e38f;

// The heads of one query row.
struct Place {
  int batch;
  int head_kv;
  long long k;  // index of the first element of K's head
  long long v;
};

// Returns softmax_scale * (q . k), the same in all lanes.
__device__ float score(const AttentionArgs& args, const ScaleArgs& scales,
                       const float (&q)[kQkPerLane], const Place& place, int column, int lane) {
  const long long k_row = place.k + column * args.k.row_stride;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kQkPerLane; ++i) {
    const int element = lane + 32 * i;
    if (element < kHeadDimQk) sum += q[i] * load<kDtypeKv>(args.k.data, k_row + element);
  }
  for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
  return sum * factor<kScaleBlockKv>(scales.k_scale, place.batch, place.head_kv, column) *
         args.softmax_scale;
}

__device__ float value(const AttentionArgs& args, const Place& place, int column, int element) {
  const long long index = kVLayout == VLayout::kTransposed
                              ? place.v + element * args.v.row_stride + column
                              : place.v + column * args.v.row_stride + element;
  return load<kDtypeKv>(args.v.data, index);
}

__device__ void attend_row(const KernelParts& parts, int batch, int head, int row, int lane) {
  const AttentionArgs& args = parts.base;
  const ScaleArgs& scales = parts.scales;
  const int head_kv = head / kGqaRatio;
  const long long q_row =
      batch * args.q.batch_stride + head * args.q.head_stride + row * args.q.row_stride;
  const long long o_row =
      batch * args.o.batch_stride + head * args.o.head_stride + row * args.o.row_stride;
  const Place place{batch, head_kv, batch * args.k.batch_stride + head_kv * args.k.head_stride,
                    batch * args.v.batch_stride + head_kv * args.v.head_stride};

  float q[kQkPerLane];
  const float q_factor = factor<kScaleBlockQ>(scales.q_scale, batch, head, row);
#pragma unroll
  for (int i = 0; i < kQkPerLane; ++i)
    q[i] = lane + 32 * i < kHeadDimQk ? load<kDtypeQ>(args.q.data, q_row + lane + 32 * i) * q_factor
                                      : 0.0f;

  const auto score_at = [&](int column) {
    const float natural = score(args, scales, q, place, column, lane);
    return score_of(parts.scores, natural, batch, head, head_kv, row, column);
  };
  const unsigned head_of_all = batch * args.num_heads_q + head;
  float maximum = kNothing;  // finite even if all scores are -inf: such a row sees no key
  for (int column = 0; column < args.seqlen_kv; ++column) {
    if (visible(args, row, column)) maximum = fmaxf(maximum, score_at(column));
  }

  if (lane == 0 && maximum != kNothing) raise_max_logit(scales, head, maximum);

  float sum = 0.0f;
  float output[kVPerLane] = {};
  for (int column = 0; column < args.seqlen_kv; ++column) {
    if (!visible(args, row, column)) continue;
    const float weight = expf(score_at(column) - maximum);
    float v_factor = factor<kScaleBlockKv>(scales.v_scale, batch, head_kv, column);
    v_factor *= dropout_factor(parts.dropout, head_of_all, row, column);
    sum += weight;
#pragma unroll
    for (int i = 0; i < kVPerLane; ++i) {
      const int element = lane + 32 * i;
      if (element < kHeadDimV) output[i] += weight * v_factor * value(args, place, column, element);
    }
  }

  float share = 1.0f, lse = maximum + logf(sum);  // log(0) = -inf; NaN stays NaN
  join_sink(parts.scores, head, share, lse);
  for (float& element : output) element *= share;
#pragma unroll
  for (int i = 0; i < kVPerLane; ++i) {
    const int element = lane + 32 * i;
    if (element < kHeadDimV)
      store<kDtypeO>(args.o.data, o_row + element, sum == 0.0f ? 0.0f : output[i] / sum);
  }
  if (args.lse != nullptr && lane == 0)
    args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row] = lse;
}

// Block b computes rows [b * kWarps, (b + 1) * kWarps). Rows of all batch entries and heads are
// numbered row first.
extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attune_kernel(                                    // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores,     // where kScoreArgs
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ AttentionArgs args, const __grid_constant__ ScaleArgs scales) {
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  const long long index = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
  write_dropout_state(parts.dropout, index);
  const NumberedRow place = numbered_row(index, args.batch, args.num_heads_q, args.seqlen_q);
  if (place.exists)
    attend_row(parts, place.batch, place.head, place.row, static_cast<int>(threadIdx.x) % 32);
}

}  // namespace attune
