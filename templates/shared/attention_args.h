// SPDX-License-Identifier: Apache-2.0
// Launch arguments of every attention kernel, on every target. Host code fills them and kernels
// read them. Both compile this text, so it uses built-in types only. Values that are compiled in
// (head dims, mask, group ratio) are not here: see the rendered preamble described in
// generator/render/renderer.hpp.
#pragma once

namespace attune {

// One operand [batch, seqlen, num_heads, head_dim]: base address and strides in elements; head_dim
// is contiguous.
struct OperandView {
  void* data;
  long long batch_stride;
  long long row_stride;
  long long head_stride;
};

// | operand | shape                                            |
// |---------|--------------------------------------------------|
// | q       | [batch, seqlen_q,  num_heads_q,  head_dim_qk]    |
// | k       | [batch, seqlen_kv, num_heads_kv, head_dim_qk]    |
// | v       | [batch, seqlen_kv, num_heads_kv, head_dim_v]     |
// | o       | [batch, seqlen_q,  num_heads_q,  head_dim_v]     |
// | lse     | [batch, num_heads_q, seqlen_q] fp32, or null     |
struct AttentionArgs {
  OperandView q;
  OperandView k;
  OperandView v;
  OperandView o;
  float* lse;                  // natural log; row stride 1
  long long lse_batch_stride;  // in elements
  long long lse_head_stride;
  int batch;
  int seqlen_q;
  int seqlen_kv;
  int num_heads_q;
  int num_heads_kv;
  float softmax_scale;       // multiplies q.k
  float softmax_scale_log2;  // softmax_scale * log2(e); log2(e) if score stages change the unit
  int num_tiles;             // work tiles of the launch, if the scheduler counts them
  void* workspace;           // the plan's workspace (may be null when its size is 0)
};

}  // namespace attune
