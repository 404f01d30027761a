// SPDX-License-Identifier: Apache-2.0
// The first step of gradient kernels: L2 and delta of every row into the workspace, padded to whole tiles, so that the kernels behind
// it copy them without looking at lengths. A group of lanes computes a row.
#pragma once

#include "cuda/attention/dropout_source.cuh"   // where kDropout
#include "cuda/attention/fused_workspace.cuh"  // where kFused
#include "cuda/attention/row_sums.cuh"
#include "cuda/ptx/dependent_launch.cuh"  // unless kInOrder
#include "cuda/ptx/eight_elements.cuh"
#include "shared/kernel_arguments.h"
#include "shared/numbered_row.h"

namespace attune {

constexpr int kPrepareThreads = 256;
constexpr int kRowLanes = backward_row_lanes(kHeadDimV);

__device__ __forceinline__ long long element_of(const OperandView& view, const NumberedRow& at) {
  return at.batch * view.batch_stride + at.head * view.head_stride + at.row * view.row_stride;
}

// Of the eight columns that this lane has.
__device__ __forceinline__ float partial_delta(const AttentionArgs& args, const OperandView& dout,
                                               const NumberedRow& at, int lane) {
  float sum = 0.f;
  if (8 * lane >= kHeadDimV) return sum;
  float o_values[8], dout_values[8];
  load_eight<kDtypeO>(args.o.data, element_of(args.o, at) + 8 * lane, o_values);
  load_eight<kDtypeO>(dout.data, element_of(dout, at) + 8 * lane, dout_values);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum += o_values[i] * dout_values[i];
  return sum;
}

extern "C" __global__ void __launch_bounds__(kPrepareThreads)
    attune_prepare(const __grid_constant__ AttentionArgs args,
                   const __grid_constant__ DropoutArgs dropout,  // where kDropout
                   const __grid_constant__ GradientArgs gradients) {
  let_next_grid_start();                                                       // unless kInOrder
  wait_for_prior_grid();                                                       // unless kInOrder
  if (blockIdx.x == 0 && threadIdx.x == 0) *FusedWorkspace(args).drawn() = 0;  // where kFused
  if (args.seqlen_q == 0) return;
  const int rows = padded_rows(args);
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const NumberedRow at = numbered_row(
      static_cast<long long>(blockIdx.x) * (kPrepareThreads / kRowLanes) + threadIdx.x / kRowLanes,
      args.batch, args.num_heads_q, rows);
  const bool inside = at.exists && at.row < args.seqlen_q;
  float sum = 0.f;
  if (inside) sum = partial_delta(args, gradients.dout, at, lane);
#pragma unroll
  for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2)
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
  if (!at.exists || lane != 0) return;
  const float infinity = __int_as_float(0x7f800000);
  float lse = -infinity;
  if (inside)
    lse = args.lse[at.batch * args.lse_batch_stride + at.head * args.lse_head_stride + at.row];
  if (inside && gradients.dlse != nullptr)
    sum -= gradients.dlse[at.batch * gradients.dlse_batch_stride +
                          at.head * gradients.dlse_head_stride + at.row];
  const bool empty = lse == -infinity;
  if (inside && at.row % kKeyBlockM == 0) {                          // where kFused
    const FusedWorkspace fused(args);                                // where kFused
    const int head = at.batch * args.num_heads_q + at.head;          // where kFused
    *fused.turn(head * fused.blocks() + at.row / kKeyBlockM) = 0;    // where kFused
    fused.turn(head * fused.blocks() + at.row / kKeyBlockM)[1] = 0;  // where kDqFree
  }                                                                  // where kFused
  float* const sums = row_sums(args, at.batch, at.head);
  sums[at.row] = empty ? infinity : lse * kLog2E;
  sum *= kept_part(dropout);  // where kDropout
  sums[rows + at.row] = empty ? 0.f : sum;
}

}  // namespace attune
