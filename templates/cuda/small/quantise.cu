// SPDX-License-Identifier: Apache-2.0
// quantise: o = round(rotate(q) / factor) in e4m3 or e5m2. Each block of kScaleBlockQ rows of a
// head (0: all rows) has a factor = largest magnitude / largest code. q is bf16, fp16 or fp32; o is
// row-major or transposed (kVLayout); o_scale is [batch, heads, blocks]. It runs on every CUDA
// arch.
//
//   kFused 1  one kernel: a block of threads holds the rows of one factor in registers between
//             finding it and rounding (kRows == kScaleBlockQ). q is read once.
//   kFused 0  attune_amax leaves the largest magnitudes of args.num_tiles parts of each block in
//             the workspace, fp32 [batch, heads, blocks, parts]; attune_kernel reads q again.
//
//   kRows     rows that a thread block holds at a time
//   kVector   elements of a row that a thread holds: 8, 16, 32
//   kThreads  threads per block
//
// cuda/small/row_values.cuh loads and rotates rows; block_factor.cuh handles NaN, infinity and
// zeros. Shared memory: shared/layouts/quantise_layout.h.
#include "cuda/small/quantise_knobs.cuh"

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/small/block_factor.cuh"
#include "cuda/small/row_values.cuh"
#include "cuda/small/store_codes.cuh"

namespace attune {

// The part of the input that a thread block works on. In place_of, `index` counts heads first, then
// `parts` of a head, then batch entries.
struct Place {
  int batch, head, part;
};

__device__ __forceinline__ Place place_of(const AttentionArgs& args, unsigned index,
                                          unsigned parts) {
  const unsigned heads = static_cast<unsigned>(args.num_heads_q);
  const unsigned list = index / heads;
  return {static_cast<int>(list / parts), static_cast<int>(index % heads),
          static_cast<int>(list % parts)};
}

// Returns the number of rows that share a factor; the last block of a head may have fewer.
__device__ __forceinline__ int block_rows(const AttentionArgs& args) {
  return kScaleBlockQ > 0 ? kScaleBlockQ : args.seqlen_q;
}
__device__ __forceinline__ int num_blocks(const AttentionArgs& args) {
  return kScaleBlockQ > 0 ? (args.seqlen_q + kScaleBlockQ - 1) / kScaleBlockQ : 1;
}

// Returns the address of the largest magnitudes of the parts of one block of rows.
__device__ __forceinline__ float* parts_of(const AttentionArgs& args, const Place& place,
                                           int block) {
  const long long head = static_cast<long long>(place.batch) * args.num_heads_q + place.head;
  return static_cast<float*>(args.workspace) + (head * num_blocks(args) + block) * args.num_tiles;
}

__device__ __forceinline__ int rows_of_tile(long long left) {
  return static_cast<int>(left < kRows ? left : kRows);
}

__device__ __forceinline__ void load_tile(const AttentionArgs& args, const Place& place, int row,
                                          int rows, RowValues& values) {
  const long long first =
      place.batch * args.q.batch_stride + place.head * args.q.head_stride + row * args.q.row_stride;
  load_rows(args.q, first, rows, values);
  rotate_rows(values);
}

__device__ __forceinline__ void store_tile(const AttentionArgs& args, const Place& place, int row,
                                           int rows, const RowValues& values, float inverse,
                                           unsigned* tile) {
  const long long head = place.batch * args.o.batch_stride + place.head * args.o.head_stride;
  if constexpr (kVLayout == VLayout::kTransposed) {
    transpose_to_shared(values, inverse, tile);
    __syncthreads();
    store_transposed(args.o, head + row, rows, tile);
  } else {
    store_rows(args.o, head + row * args.o.row_stride, rows, values, inverse);
  }
}

__device__ __forceinline__ float largest_of_parts(const AttentionArgs& args, const Place& place,
                                                  int row) {
  const float* parts = parts_of(args, place, row / block_rows(args));
  float largest = 0.0f;
  for (int i = static_cast<int>(threadIdx.x); i < args.num_tiles; i += kThreads)
    largest = fmaxf(largest, parts[i]);
  return largest;
}

extern __shared__ __align__(16) char shared_memory[];

// Grid: parts x blocks of rows x batch entries x heads. Part p takes tiles p, p + num_tiles, ...
extern "C" __global__ void __launch_bounds__(kThreads)
    attune_amax(const __grid_constant__ AttentionArgs args) {
  if constexpr (kFused == 0) {
    const Place place = place_of(args, blockIdx.x, num_blocks(args) * args.num_tiles);
    if (place.batch >= args.batch) return;
    const int block = place.part / args.num_tiles;
    const int part = place.part % args.num_tiles;
    const long long begin = static_cast<long long>(block) * block_rows(args);
    const long long left = args.seqlen_q - begin;
    const int count = static_cast<int>(left < block_rows(args) ? left : block_rows(args));
    float largest = 0.0f;
    for (long long row = static_cast<long long>(part) * kRows; row < count;
         row += static_cast<long long>(args.num_tiles) * kRows) {
      RowValues values;
      load_tile(args, place, static_cast<int>(begin + row), rows_of_tile(count - row), values);
      largest = fmaxf(largest, largest_magnitude(values));
    }
    largest = largest_of_block(largest, reinterpret_cast<float*>(shared_memory));
    if (threadIdx.x == 0) parts_of(args, place, block)[part] = largest;
  }
}

// Grid: tiles of kRows rows x batch entries x heads.
extern "C" __global__ void __launch_bounds__(kThreads)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ ScaleArgs scales) {
  // Reads tiles in reverse after attune_amax: the tiles that it read last are still in L2.
  const unsigned index = kFused ? blockIdx.x : gridDim.x - 1 - blockIdx.x;
  const Place place =
      place_of(args, index, (static_cast<unsigned>(args.seqlen_q) + kRows - 1) / kRows);
  if (place.batch >= args.batch) return;
  const int row = place.part * kRows;
  const int rows = rows_of_tile(args.seqlen_q - row);

  RowValues values;
  load_tile(args, place, row, rows, values);
  const float part = kFused ? largest_magnitude(values) : largest_of_parts(args, place, row);
  const float factor = factor_of(largest_of_block(part, reinterpret_cast<float*>(shared_memory)));
  if (row % block_rows(args) == 0 && threadIdx.x == 0) {
    const ScaleView& scale = scales.o_scale;
    scale.data[place.batch * scale.batch_stride + place.head * scale.head_stride +
               row / block_rows(args) * scale.block_stride] = factor;
  }
  store_tile(args, place, row, rows, values, __fdiv_rn(1.0f, factor),
             reinterpret_cast<unsigned*>(shared_memory + kQuantiseReduceBytes));
}

}  // namespace attune
