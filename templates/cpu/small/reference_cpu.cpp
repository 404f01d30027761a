// SPDX-License-Identifier: Apache-2.0
// reference_cpu: attention row by row, directly from the definition: scores, largest score,
// weights, sum, weighted mean of V. It shares no code with prefill_cpu; the tuner checks
// prefill_cpu against it. fp32 arithmetic, with expf and logf of the C library.
//
// q, k, v, o: fp32, bf16 or fp16, any strides with contiguous head_dim. q, k and v may also be
// 8-bit with factors, v in either layout. No knobs. Workspace: seqlen_kv floats per thread, for the
// scores of one row.
#include "shared/attention_enums.h"

#include "cpu/small/small_knobs.hpp"

#include "cpu/parts/max_logits.hpp"  // where kMaxLogits, else none/
#include "cpu/parts/none/features.hpp"
#include "cpu/parts/score_of.hpp"  // where kScored, else none/
#include "cpu/parts/sinks.hpp"     // where kSinks, else none/
#include "cpu/small/reference_rows.hpp"
#include "shared/dropout.h"
#include "shared/kernel_arguments.h"

namespace attune {

// Returns the factor of a row's elements: 1 if there are no factors.
template <int kBlock>
float factor(const ScaleView& scale, int batch, int head, int row) {
  if (!scale.data) return 1.0f;
  long long index = batch * scale.batch_stride + head / scale.heads_per_scale * scale.head_stride;
  if constexpr (kBlock > 0) index += row / kBlock * scale.block_stride;
  return scale.data[index];
}

inline void attend_row(const KernelArguments& args, int batch, int head, int i, float* scores) {
#pragma clang fp reassociate(on)  // lets sums over head_dim use vectors
  const int head_kv = head / kGqaRatio;
  const unsigned head_of_all = batch * args.num_heads_q + head;
  const long long q =
      batch * args.q.batch_stride + head * args.q.head_stride + i * args.q.row_stride;
  const long long k = batch * args.k.batch_stride + head_kv * args.k.head_stride;
  const long long v = batch * args.v.batch_stride + head_kv * args.v.head_stride;
  const long long o =
      batch * args.o.batch_stride + head * args.o.head_stride + i * args.o.row_stride;

  const float q_factor =
      factor<kScaleBlockQ>(args.scales.q_scale, batch, head, i) * args.softmax_scale;
  // Finite even if all scores are -inf: such a row counts as a row that sees no key.
  float largest = -3e38f;
  for (int j = 0; j < args.seqlen_kv; ++j) {
    if (!is_visible(args, i, j)) continue;
    float dot = 0;
    for (int c = 0; c < kHeadDimQk; ++c) {
      dot += element<kDtypeQ>(args.q.data, q + c) *
             element<kDtypeKv>(args.k.data, k + j * args.k.row_stride + c);
    }
    scores[j] = dot * factor<kScaleBlockKv>(args.scales.k_scale, batch, head_kv, j) * q_factor;
    scores[j] = score_of(args.scores, scores[j], batch, head, head_kv, i, j);
    if (!(scores[j] <= largest)) largest = scores[j];
  }

  if (largest > -3e38f) raise_max_logit(args.scales, head, largest);

  float sum = 0;
  float output[kHeadDimV] = {};
  for (int j = 0; j < args.seqlen_kv; ++j) {
    if (!is_visible(args, i, j)) continue;
    const float weight = __builtin_expf(scores[j] - largest);
    sum += weight;
    float scaled = weight * factor<kScaleBlockKv>(args.scales.v_scale, batch, head_kv, j);
    if constexpr (kDropout) scaled *= dropout_factor(args.dropout, head_of_all, i, j);
    const long long key_stride = kVLayout == VLayout::kTransposed ? 1 : args.v.row_stride;
    const long long column_stride = kVLayout == VLayout::kTransposed ? args.v.row_stride : 1;
    for (int c = 0; c < kHeadDimV; ++c)
      output[c] += scaled * element<kDtypeKv>(args.v.data, v + j * key_stride + c * column_stride);
  }
  if constexpr (kSinks >= 0) {
    const float share = join_sink(sink_of(args.scores, head), largest, sum);
    for (float& element : output) element *= share;
  }
  for (int c = 0; c < kHeadDimV; ++c)
    set_element<kDtypeO>(args.o.data, o + c, sum == 0 ? 0 : output[c] / sum);
  if (args.lse) {
    args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + i] =
        largest + __builtin_logf(sum);  // log(0) = -inf; NaN stays NaN
  }
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  float* scores =
      static_cast<float*>(args.workspace) + static_cast<long long>(thread) * args.seqlen_kv;
  if constexpr (kDropout) write_dropout_state(args.dropout, thread);
  const long long rows = static_cast<long long>(args.batch) * args.num_heads_q * args.seqlen_q;
  for (long long row = thread; row < rows; row += num_threads) {
    const long long list = row / args.seqlen_q;
    attend_row(args, static_cast<int>(list / args.num_heads_q),
               static_cast<int>(list % args.num_heads_q), static_cast<int>(row % args.seqlen_q),
               scores);
  }
}

}  // namespace attune
