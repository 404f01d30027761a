// SPDX-License-Identifier: Apache-2.0
// The first step of backward_lists_sm80: writes L2 = lse * log2(e) and delta of all rows and heads
// to the workspace, as pairs [batch, seqlen_q, num_heads_q, 2]. A warp makes those of one row and
// head.
#pragma once

#include "cuda/backward_lists_sm80/list_workspace.cuh"
#include "cuda/ptx/eight_elements.cuh"
#include "shared/gradient_args.h"

namespace attune {

constexpr int kPrepareWarps = 8;

extern "C" __global__ void __launch_bounds__(32 * kPrepareWarps)
    attune_prepare(const __grid_constant__ AttentionArgs args,
                   const __grid_constant__ GradientArgs gradients) {
  constexpr float kLog2E = 1.44269504088896341f;
  const int lane = static_cast<int>(threadIdx.x % 32);
  long long number = static_cast<long long>(blockIdx.x) * kPrepareWarps + threadIdx.x / 32;
  if (number >= static_cast<long long>(args.batch) * args.seqlen_q * args.num_heads_q) return;
  const int head = static_cast<int>(number % args.num_heads_q);
  number /= args.num_heads_q;
  const int row = static_cast<int>(number % args.seqlen_q);
  const int batch = static_cast<int>(number / args.seqlen_q);
  const auto place = [&](const OperandView& view) {
    return batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
  };
  float delta = 0.f;
  for (int column = 8 * lane; column < kHeadDimV; column += 256) {
    float o[8], dout[8];
    load_eight<kDtypeO>(args.o.data, place(args.o) + column, o);
    load_eight<kDtypeO>(gradients.dout.data, place(gradients.dout) + column, dout);
#pragma unroll
    for (int i = 0; i < 8; ++i) delta += o[i] * dout[i];
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) delta += __shfl_xor_sync(0xFFFFFFFFu, delta, lanes);
  if (lane != 0) return;
  const float lse = args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row];
  if (gradients.dlse != nullptr)
    delta -=
        gradients
            .dlse[batch * gradients.dlse_batch_stride + head * gradients.dlse_head_stride + row];
  const bool empty = lse == __int_as_float(0xff800000);
  float* const to = statistics_of(args, batch, row, head);
  to[0] = empty ? __int_as_float(0x7f800000) : lse * kLog2E;
  to[1] = empty ? 0.f : delta;
}

}  // namespace attune
