// SPDX-License-Identifier: Apache-2.0
// backward_reference: gradients of attention row by row and key by key, computed from the
// definition. Formulas are those of cuda/small/backward_reference.cu. fp32 arithmetic. q, k, v, o,
// dout and their gradients: fp32, bf16 or fp16, any strides with contiguous head_dim. No knobs.
//
// Workspace: delta, fp32 [batch, num_heads_q, seqlen_q].
#include "cpu/small/small_knobs.hpp"

#include "cpu/small/gradient_pair.hpp"
#include "cpu/small/reference_rows.hpp"
#include "shared/kernel_arguments.h"
#include "shared/numbered_row.h"

namespace attune {

inline void write_dq(const KernelArguments& args, int batch, int head, int row) {
  float q[kHeadDimQk], dout[kHeadDimV], k[kHeadDimQk], v[kHeadDimV], dq[kHeadDimQk] = {};
  load_row<kDtypeQ, kHeadDimQk>(args.q, batch, head, row, q);
  load_row<kDtypeO, kHeadDimV>(args.gradients.dout, batch, head, row, dout);
  for (int key = 0; key < args.seqlen_kv; ++key) {
    if (!is_visible(args, row, key)) continue;
    load_row<kDtypeKv, kHeadDimQk>(args.k, batch, head / kGqaRatio, key, k);
    load_row<kDtypeKv, kHeadDimV>(args.v, batch, head / kGqaRatio, key, v);
    const Pair pair(args, batch, head, row, key, q, k, dout, v);
    for (int c = 0; c < kHeadDimQk; ++c) dq[c] += pair.ds * k[c];
  }
  store_row<kDtypeQ, kHeadDimQk>(args.gradients.dq, batch, head, row, dq, args.softmax_scale);
}

// Sums dK and dV of a key over all rows of all heads that share the key.
inline void write_dk_dv(const KernelArguments& args, int batch, int head_kv, int key) {
  float k[kHeadDimQk], v[kHeadDimV], q[kHeadDimQk], dout[kHeadDimV];
  float dk[kHeadDimQk] = {}, dv[kHeadDimV] = {};
  load_row<kDtypeKv, kHeadDimQk>(args.k, batch, head_kv, key, k);
  load_row<kDtypeKv, kHeadDimV>(args.v, batch, head_kv, key, v);
  for (int head = head_kv * kGqaRatio; head < (head_kv + 1) * kGqaRatio; ++head)
    for (int row = 0; row < args.seqlen_q; ++row) {
      if (!is_visible(args, row, key)) continue;
      load_row<kDtypeQ, kHeadDimQk>(args.q, batch, head, row, q);
      load_row<kDtypeO, kHeadDimV>(args.gradients.dout, batch, head, row, dout);
      const Pair pair(args, batch, head, row, key, q, k, dout, v);
      for (int c = 0; c < kHeadDimQk; ++c) dk[c] += pair.ds * q[c];
      for (int c = 0; c < kHeadDimV; ++c) dv[c] += pair.p * dout[c];
    }
  if (kGradientK)
    store_row<kDtypeKv, kHeadDimQk>(args.gradients.dk, batch, head_kv, key, dk, args.softmax_scale);
  if (kGradientV) store_row<kDtypeKv, kHeadDimV>(args.gradients.dv, batch, head_kv, key, dv, 1);
}

// Calls `visit(batch, head, row)` with this thread's share of all rows.
template <class Visit>
inline void for_rows(const AttentionArgs& args, int heads, int seqlen, int thread, int num_threads,
                     const Visit& visit) {
  const long long rows = static_cast<long long>(args.batch) * heads * seqlen;
  for (long long i = thread; i < rows; i += num_threads) {
    const NumberedRow at = numbered_row(i, args.batch, heads, seqlen);
    visit(at.batch, at.head, at.row);
  }
}

// A barrier of all threads separates the three steps.
extern "C" void attune_delta(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  for_rows(
      args, args.num_heads_q, args.seqlen_q, thread, num_threads,
      [&](int batch, int head, int row) { write_delta(args, batch, head, row, dot<kHeadDimV>); });
}

extern "C" void attune_kernel(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  if (!kGradientQ) return;
  for_rows(args, args.num_heads_q, args.seqlen_q, thread, num_threads,
           [&](int batch, int head, int row) { write_dq(args, batch, head, row); });
}

extern "C" void attune_keys(const AttentionArgs* given, int thread, int num_threads) {
  const KernelArguments& args = *static_cast<const KernelArguments*>(given);
  if (!kGradientK && !kGradientV) return;
  for_rows(args, args.num_heads_kv, args.seqlen_kv, thread, num_threads,
           [&](int batch, int head, int key) { write_dk_dv(args, batch, head, key); });
}

}  // namespace attune

#include "cpu/small/reference_score_gradients.hpp"  // where kScoreGradient
