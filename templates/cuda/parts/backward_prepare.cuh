// SPDX-License-Identifier: Apache-2.0
// The first step of the gradient kernels: writes L2 = lse * log2(e) and delta of every row to the
// workspace. Rows are padded to whole tiles, so that later kernels copy these sums without looking
// at lengths. shared/layouts/backward_prepare_layout.h maps lanes to rows. Blocks take the heads in
// reverse order, because the next kernel begins with the first heads. A family that has more in its
// workspace declares begin_launch() and begin_rows() ahead of this file; others have
// none/other_workspace.cuh.
#pragma once

#include "cuda/parts/dropout_source.cuh"  // where kDropout, else none/
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/other_workspace.cuh"
#include "cuda/parts/row_sums.cuh"
#include "cuda/ptx/dependent_launch.cuh"  // unless kInOrder, else none/
#include "cuda/ptx/streamed_loads.cuh"
#include "shared/layouts/backward_prepare_layout.h"

namespace attune {

constexpr int kRowLanes = backward_row_lanes(kHeadDimV);
constexpr int kRowsOfGroup = backward_rows_of_group(kHeadDimV);
static_assert(kHeadDimV % 8 == 0, "a lane has eight columns");

struct PreparedRow {
  int batch, head, row;
};

__device__ __forceinline__ long long element_of(const OperandView& view, const PreparedRow& at) {
  return at.batch * view.batch_stride + at.head * view.head_stride + at.row * view.row_stride;
}

using EightOfRows = EightPacked<kDtypeO>[kRowsOfGroup];
// Loads eight columns of o or dout for a group's rows, from `first` on. For rows past the end it
// loads the last row.
__device__ __forceinline__ void load_rows(const OperandView& view, const PreparedRow& first,
                                          int lane, int seqlen_q, EightOfRows& values) {
  const int column = min(8 * lane, kHeadDimV - 8);  // some lanes have no columns
#pragma unroll
  for (int i = 0; i < kRowsOfGroup; ++i) {
    const int row = min(first.row + i, seqlen_q - 1);
    values[i] = load_streamed_eight<kDtypeO>(
        view.data, element_of(view, {first.batch, first.head, row}) + column);
  }
}

// Returns rowsum(dout * o) of row `lane` of a group, in the first kRowsOfGroup lanes of the group.
__device__ __forceinline__ float make_delta(const AttentionArgs& args, const OperandView& dout,
                                            const PreparedRow& first, int lane) {
  EightOfRows of_o, of_dout;
  load_rows(args.o, first, lane, args.seqlen_q, of_o);
  load_rows(dout, first, lane, args.seqlen_q, of_dout);
  float own = 0.f;
#pragma unroll
  for (int i = 0; i < kRowsOfGroup; ++i) {
    float sum = 0.f;
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += unpacked(of_o[i], j) * unpacked(of_dout[i], j);
    if (8 * lane >= kHeadDimV) sum = 0.f;
#pragma unroll
    for (int lanes = kRowLanes / 2; lanes > 0; lanes /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
    if (lane == i) own = sum;
  }
  return own;
}

extern "C" __global__ void __launch_bounds__(kPrepareThreads)
    attune_prepare(const __grid_constant__ AttentionArgs args,
                   const __grid_constant__ DropoutArgs dropout,  // where kDropout
                   const __grid_constant__ GradientArgs gradients) {
  let_next_grid_start();
  wait_for_prior_grid();
  if (blockIdx.x == 0 && threadIdx.x == 0) begin_launch(args);
  if (args.seqlen_q == 0 || args.batch == 0) return;
  const int rows = padded_rows(args);
  const auto blocks = static_cast<unsigned>(backward_prepare_blocks(rows, kHeadDimV));
  const unsigned block = gridDim.x - 1 - blockIdx.x;
  const int of_all = static_cast<int>(block / blocks);  // head, counted over all batch entries
  const int batch = of_all / args.num_heads_q, head = of_all % args.num_heads_q;
  const int lane = static_cast<int>(threadIdx.x) % kRowLanes;
  const int first = static_cast<int>(block % blocks) * backward_rows_of_block(kHeadDimV) +
                    static_cast<int>(threadIdx.x) / kRowLanes * kRowsOfGroup;
  const int row = first + lane;
  const bool has_row = lane < kRowsOfGroup && row < rows;
  const bool inside = has_row && row < args.seqlen_q;
  const float infinity = __int_as_float(0x7f800000);
  float lse = -infinity, dlse = 0.f;
  if (inside) lse = args.lse[batch * args.lse_batch_stride + head * args.lse_head_stride + row];
  if (inside && gradients.dlse != nullptr)
    dlse = gradients
               .dlse[batch * gradients.dlse_batch_stride + head * gradients.dlse_head_stride + row];
  float delta = make_delta(args, gradients.dout, {batch, head, first}, lane) - dlse;
  if (!has_row) return;
  if (inside) begin_rows(args, of_all, row);
  const bool empty = lse == -infinity;
  float* const sums = row_sums(args, batch, head);
  sums[row] = empty ? infinity : lse * kLog2E;
  delta *= kept_part(dropout);
  sums[rows + row] = empty ? 0.f : delta;
}

}  // namespace attune
