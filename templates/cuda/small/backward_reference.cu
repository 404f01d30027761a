// SPDX-License-Identifier: Apache-2.0
// backward_reference: gradients of attention in fp32, from the definition. With z the scores, P =
// exp(z - lse) and delta = rowsum(dout * o) - dlse:
//   dv_j = sum_i P_ij dout_i,  ds_ij = P_ij (dout_i . v_j - delta_i),
//   dq_i = scale * sum_j ds_ij k_j,  dk_j = scale * sum_i ds_ij q_i
// One warp per query row computes delta and dq. One warp per key computes dk and dv, over all rows
// of all heads that share the key. It is slow and simple on purpose. It takes fp32, bf16 or fp16
// and any head dims, and uses no shared memory.
//
// Workspace: delta, fp32 [batch, num_heads_q, seqlen_q].
#include "cuda/small/small_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/small/gradient_pair.cuh"
#include "cuda/small/reference_rows.cuh"
#include "shared/numbered_row.h"

namespace attune {

// In each of the three kernels, block b computes rows [b * kWarps, (b + 1) * kWarps). Rows of all
// batch entries and heads are numbered row first.
extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attune_delta(const __grid_constant__ AttentionArgs args,
                 const __grid_constant__ GradientArgs gradients) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const NumberedRow at =
      numbered_row(static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32, args.batch,
                   args.num_heads_q, args.seqlen_q);
  if (!at.exists) return;
  const float sum = RowV::of<kDtypeO>(args.o, at.batch, at.head, at.row, lane)
                        .dot(RowV::of<kDtypeO>(gradients.dout, at.batch, at.head, at.row, lane));
  float dlse = 0.0f;
  if (gradients.dlse != nullptr)
    dlse = gradients.dlse[at.batch * gradients.dlse_batch_stride +
                          at.head * gradients.dlse_head_stride + at.row];
  if (lane == 0) *delta_of(args, at.batch, at.head, at.row) = sum - dlse;
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attune_kernel(                                    // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores,     // where kScoreArgs
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ AttentionArgs args,
        const __grid_constant__ GradientArgs gradients) {
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const NumberedRow at =
      numbered_row(static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32, args.batch,
                   args.num_heads_q, args.seqlen_q);
  if (!at.exists || !kGradientQ) return;
  const RowQk q = RowQk::of<kDtypeQ>(args.q, at.batch, at.head, at.row, lane);
  const RowV dout = RowV::of<kDtypeO>(gradients.dout, at.batch, at.head, at.row, lane);
  RowQk dq;
  for (int key = 0; key < args.seqlen_kv; ++key) {
    if (!visible(args, at.row, key)) continue;
    const RowQk k = RowQk::of<kDtypeKv>(args.k, at.batch, at.head / kGqaRatio, key, lane);
    const RowV v = RowV::of<kDtypeKv>(args.v, at.batch, at.head / kGqaRatio, key, lane);
    const Pair pair(parts, at.batch, at.head, at.row, key, q, k, dout, v);
    dq.add(pair.ds, k);
  }
  dq.write<kDtypeQ>(gradients.dq, at.batch, at.head, at.row, lane, args.softmax_scale);
}

extern "C" __global__ void __launch_bounds__(32 * kWarps)
    attune_keys(                                      // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores,     // where kScoreArgs
        const __grid_constant__ DropoutArgs dropout,  // where kDropout
        const __grid_constant__ AttentionArgs args,
        const __grid_constant__ GradientArgs gradients) {
  const KernelParts parts{args, scales, scores, dropout, map, cache};
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const NumberedRow at =
      numbered_row(static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32, args.batch,
                   args.num_heads_kv, args.seqlen_kv);
  if (!at.exists) return;
  const RowQk k = RowQk::of<kDtypeKv>(args.k, at.batch, at.head, at.row, lane);
  const RowV v = RowV::of<kDtypeKv>(args.v, at.batch, at.head, at.row, lane);
  RowQk dk;
  RowV dv;
  for (int head = at.head * kGqaRatio; head < (at.head + 1) * kGqaRatio; ++head)
    for (int row = 0; row < args.seqlen_q; ++row) {
      if (!visible(args, row, at.row)) continue;
      const RowQk q = RowQk::of<kDtypeQ>(args.q, at.batch, head, row, lane);
      const RowV dout = RowV::of<kDtypeO>(gradients.dout, at.batch, head, row, lane);
      const Pair pair(parts, at.batch, head, row, at.row, q, k, dout, v);
      dv.add(pair.p, dout);
      dk.add(pair.ds, q);
    }
  if (kGradientK)
    dk.write<kDtypeKv>(gradients.dk, at.batch, at.head, at.row, lane, args.softmax_scale);
  if (kGradientV) dv.write<kDtypeKv>(gradients.dv, at.batch, at.head, at.row, lane, 1.0f);
}

}  // namespace attune

#include "cuda/small/reference_score_gradients.cuh"  // where kScoreGradient
