// SPDX-License-Identifier: Apache-2.0
// Launch arguments of attention_backward kernels, after AttentionArgs. Kernels read o and lse of
// AttentionArgs, which the forward pass has computed. Host code fills them, kernels read them, on
// every target.
//
// | operand | shape                                                  |
// |---------|--------------------------------------------------------|
// | dout    | [batch, seqlen_q,  num_heads_q,  head_dim_v]           |
// | dq      | [batch, seqlen_q,  num_heads_q,  head_dim_qk], written |
// | dk      | [batch, seqlen_kv, num_heads_kv, head_dim_qk], written |
// | dv      | [batch, seqlen_kv, num_heads_kv, head_dim_v], written  |
// | dlse    | [batch, num_heads_q, seqlen_q] fp32, or null           |
#pragma once

#include "shared/attention_args.h"

namespace attune {

struct GradientArgs {
  OperandView dout;
  OperandView dq;  // a view is not set if its gradient is not requested
  OperandView dk;
  OperandView dv;
  const float* dlse;  // row stride 1
  long long dlse_batch_stride;
  long long dlse_head_stride;
};

}  // namespace attune
