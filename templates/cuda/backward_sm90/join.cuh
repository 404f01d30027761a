// SPDX-License-Identifier: Apache-2.0
// The last step of kernels with split_heads 1: adds the sums of all parts of a group, in order, and
// writes dK and dV. Equal launches give equal bits. A block has 64 keys and kJoinGroups groups of
// eight columns; each thread has the four values that a thread of a warpgroup stored.
#pragma once

#include "cuda/backward_sm90/head_parts.cuh"
#include "cuda/backward_sm90/layout.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/features.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/streamed_loads.cuh"

namespace attune {

// Returns the first slice in the workspace. Each family defines it.
__device__ __forceinline__ float* slices_of(const AttentionArgs& args);

// Writes two adjacent elements, or adds them to the present values.
__device__ __forceinline__ void write_pair(const OperandView& view, long long at, float x,
                                           float y) {
  if constexpr (kAccumulate) {
    float2* const to = reinterpret_cast<float2*>(static_cast<float*>(view.data) + at);
    const float2 before = *to;
    *to = make_float2(before.x + x, before.y + y);
  } else {
    *reinterpret_cast<unsigned*>(static_cast<unsigned short*>(view.data) + at) =
        pack<kDtypeKv>(x, y);
  }
}

// Adds a thread's values of kJoinGroups groups over all parts. `from`: those of the first part, in
// the first group. `groups`: that there are.
__device__ __forceinline__ void add_parts(const float* from, int groups, int parts,
                                          long long stride, float4 (&sums)[kJoinGroups]) {
  constexpr bool kWhole = kSliceColumns % (8 * kJoinGroups) == 0;
#pragma unroll 2
  for (int part = 0; part < parts; ++part, from += stride) {
    Vector16 next[kJoinGroups] = {};
#pragma unroll
    for (int i = 0; i < kJoinGroups; ++i)
      if (kWhole || i < groups) next[i] = load_streamed_16(from + backward_slice_floats(8 * i));
#pragma unroll
    for (int i = 0; i < kJoinGroups; ++i)
      sums[i] = make_float4(sums[i].x + __uint_as_float(next[i].word[0]),
                            sums[i].y + __uint_as_float(next[i].word[1]),
                            sums[i].z + __uint_as_float(next[i].word[2]),
                            sums[i].w + __uint_as_float(next[i].word[3]));
  }
}

// Writes the sums of eight columns of dK or dV to rows `row` and `row` + 8, where these exist.
__device__ __forceinline__ void write_sums(const AttentionArgs& args, const OperandView& view,
                                           int batch, int head, int row, int column, float scale,
                                           const float4& sums) {
  const long long at = batch * view.batch_stride + head * view.head_stride + row * view.row_stride +
                       column + threadIdx.x % 4 * 2;
  if (row < args.seqlen_kv) write_pair(view, at, scale * sums.x, scale * sums.y);
  if (row + 8 < args.seqlen_kv)
    write_pair(view, at + 8 * view.row_stride, scale * sums.z, scale * sums.w);
}

extern "C" __global__ void __launch_bounds__(kWarpgroupThreads)
    attune_join(const __grid_constant__ AttentionArgs args,
                const __grid_constant__ GradientArgs gradients) {
  let_next_grid_start();
  wait_for_prior_grid();
  if (args.num_tiles == 0) return;
  const int tiles = backward_slice_blocks(args.seqlen_kv, kKeyBlockN) * kWarpgroupRows / kKeyBlockN;
  const int parts = backward_head_parts(args.num_tiles, tiles, args.num_heads_kv, args.batch);
  const int heads = args.num_heads_kv * args.batch;
  const int of_all = static_cast<int>(blockIdx.x) % heads;      // head, over all batch entries
  const int last_first = static_cast<int>(blockIdx.x) / heads;  // the L2 cache has the last
  const int block = (args.seqlen_kv - 1) / kWarpgroupRows - last_first;
  const int batch = of_all / args.num_heads_kv, head = of_all % args.num_heads_kv;
  const int first_column = static_cast<int>(blockIdx.y) * kJoinGroups * 8;
  const float* const from = slices_of(args) +
                            backward_slice_place(static_cast<long long>(of_all) * parts, block,
                                                 args.seqlen_kv, kKeyBlockN, kSliceColumns) +
                            backward_slice_floats(first_column) + threadIdx.x * 4;
  const long long stride = backward_slice_place(1, 0, args.seqlen_kv, kKeyBlockN, kSliceColumns);
  const int groups = (kSliceColumns - first_column) / 8;
  float4 sums[kJoinGroups] = {};
  add_parts(from, groups, parts, stride, sums);
  const int row = block * kWarpgroupRows + first_accumulator_row();
#pragma unroll
  for (int i = 0; i < kJoinGroups; ++i) {
    if (i >= groups) return;
    const int column = first_column + 8 * i;
    if (column >= kSliceOfDv)
      write_sums(args, gradients.dv, batch, head, row, column - kSliceOfDv, 1.f, sums[i]);
    else
      write_sums(args, gradients.dk, batch, head, row, column, args.softmax_scale, sums[i]);
  }
}

}  // namespace attune
