// SPDX-License-Identifier: Apache-2.0
// What kernels of the op attention_backward are told at launch beside AttentionArgs, whose o and
// lse are those of the forward, and read. Host code fills it, kernels read it on every target.
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
  OperandView dq;  // of gradients that are not asked nothing is said
  OperandView dk;
  OperandView dv;
  const float* dlse;  // row stride 1
  long long dlse_batch_stride;
  long long dlse_head_stride;
};

}  // namespace attune
