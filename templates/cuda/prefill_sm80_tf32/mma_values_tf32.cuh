// SPDX-License-Identifier: Apache-2.0
// Computes O += P V with 32-bit operands on tf32 tensor cores (ptx/mma_tf32.cuh), under the names
// of mma_values_16bit.cuh. It takes 8 keys at a time. With c = lane % 4, r = lane / 4:
//   P   Slots c and c + 4 of k are the keys 2c and 2c + 1. A thread has the scores of both keys, so
//       no P moves between threads.
//   V   A thread reads 16 bytes of rows 2c and 2c + 1: columns 4r .. 4r + 3 of 32. Column 4r + j is
//       column r of the j-th of four n8 tiles of O. So the thread ends with 8 consecutive columns,
//       8c .. 8c + 7. Eight lanes that read at once have rows 0, 2, 4, 6 and two adjacent chunks.
//       These are in different banks if a row has a multiple of 32 columns.
//   Columns past the last 32 keep their order and are read one by one.
#pragma once

#include "cuda/prefill_sm80_tf32/operands_32bit.cuh"

#include "cuda/mma/mma_products.cuh"
#include "cuda/mma/unit_factors.cuh"
#include "cuda/parts/mask.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/parts/v_slice.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// If kTf32Products is 1, applies near_tf32 to the elements of Q that this thread copied, once for
// all blocks of columns. The barrier at which the other threads wait for Q covers this too.
__device__ __forceinline__ void make_q_near(const QCopy& q, const Tile& tile, unsigned q_tile) {
  if constexpr (kTf32Products > 1) return;
  cp_async_commit();
  cp_async_wait<0>();
  q.each(tile.batch, tile.head, tile.row_block * kBlockM,
         [q_tile](int, const char*, unsigned offset, int) {
           Vector16 elements = load_shared_16(q_tile + offset);
#pragma unroll
           for (unsigned& element : elements.word) element = near_tf32(element);
           store_shared_16(q_tile + offset, elements);
         });
}

// Returns the address of the same column in row 2c + 1, given an address in row 2c of a V tile.
__device__ __forceinline__ unsigned next_row(unsigned address) {
  return (VTile::kSwizzleBits == 3 ? address ^ 16u : address) + VTile::kRowBytes;
}

// Adds one product to O. Tensor cores truncate each sum relative to the size of the accumulator:
// products that are exact to 2^-21 would lose 3e-5 of an O of 4096 keys. So with several products
// the tensor cores sum only 8 keys, and that sum is added to O in fp32.
__device__ __forceinline__ void add_product(float (&output)[4], const unsigned (&p)[4], unsigned b0,
                                            unsigned b1) {
  if constexpr (kTf32Products == 1) {
    mma<kDtypeKv>(output, p, b0, b1);
  } else {
    float sum[4] = {};
    mma<kDtypeKv>(sum, p, b0, b1);
#pragma unroll
    for (int i = 0; i < 4; ++i) output[i] += sum[i];
  }
}

__device__ __forceinline__ void multiply_wide_tile(Output& output,
                                                   const unsigned (&p)[kRowTiles][4], int tile,
                                                   const Vector16& even, const Vector16& odd) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if constexpr (kTf32Products > 1) __syncwarp();  // else ptxas starts all products at once
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m)
      add_product(output[m][4 * tile + j], p[m], even.word[j], odd.word[j]);
  }
}

// Multiplies the n8 tiles of O past the last whole 32 columns. `v_rows` is the address of 8 rows of
// the V tile.
__device__ __forceinline__ void multiply_narrow_tiles(Output& output,
                                                      const unsigned (&p)[kRowTiles][4],
                                                      unsigned v_rows) {
  const int lane = reread_thread_index() % 32;
  const unsigned row = v_rows + VTile::offset(lane % 4 * 2, lane / 16) + lane / 4 % 4 * 4;
#pragma unroll
  for (int n = 4 * kWideTiles; n < kOutputTiles; ++n) {
    const unsigned even = VTile::chunk_pair(row, n);
    const unsigned b0 = load_shared_word(even);
    const unsigned b1 = load_shared_word(next_row(even));
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) add_product(output[m][n], p[m], b0, b1);
  }
}

template <class Dropout>
__device__ __forceinline__ void multiply_pv(Output& output, Scores& scores, Softmax& softmax,
                                            const Dropout&, unsigned v_tile,
                                            const FragmentOffsets& offsets, const Factors::Step&) {
  const unsigned even = v_tile + (kHoldOffsetOfV ? offsets.v : fragment_offsets().v);
  const unsigned odd = next_row(even);
#pragma unroll
  for (int step = 0; step < kScoreTiles; ++step) {
    unsigned p[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      float(&fragment)[4] = scores[m][step];
      softmax.exponentiate(fragment, m);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[m][i] = __float_as_uint(fragment[i / 2 + i % 2 * 2]);
        if constexpr (kTf32Products == 1) p[m][i] = near_tf32(p[m][i]);
      }
    }
    const unsigned rows = step * 8 * VTile::kRowBytes;
#pragma unroll
    for (int tile = 0; tile < kWideTiles; ++tile)
      multiply_wide_tile(output, p, tile, load_shared_16(even + rows + 128 * tile),
                         load_shared_16(odd + rows + 128 * tile));
    if constexpr (kOutputTiles % 4 > 0) multiply_narrow_tiles(output, p, v_tile + rows);
  }
}

// Returns the address of a head's rows of O.
__device__ __forceinline__ float* output_rows(const OperandView& o, const Tile& tile) {
  return static_cast<float*>(o.data) + tile.batch * o.batch_stride + tile.head * o.head_stride;
}

struct alignas(8) Vector8 {
  unsigned word[2];
};

// Returns the bits of value * factor. A row that sees nothing has factor 0 and gets exactly 0, even
// if V is not finite.
__device__ __forceinline__ unsigned output_bits(float value, float factor) {
  return kSomeRowsSeeNothing && factor == 0.0f ? 0u : __float_as_uint(value * factor);
}

// Multiplies row `half` of an m16 tile of O by `factor` and stores it at `row`, unless `row` is
// null.
__device__ __forceinline__ void store_output_row(const float (&output)[kOutputTiles][4], int half,
                                                 float factor, float* row, int thread_in_quad) {
  if (row == nullptr) return;
  row += first_v_column(blockIdx.x);
#pragma unroll
  for (int tile = 0; tile < kWideTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Vector16 columns;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        columns.word[j] = output_bits(output[4 * tile + j][2 * half + i], factor);
      *reinterpret_cast<Vector16*>(row + 32 * tile + 8 * thread_in_quad + 4 * i) = columns;
    }
  }
#pragma unroll
  for (int n = 4 * kWideTiles; n < kOutputTiles; ++n)
    *reinterpret_cast<Vector8*>(row + 8 * n + 2 * thread_in_quad) = Vector8{
        {output_bits(output[n][2 * half], factor), output_bits(output[n][2 * half + 1], factor)}};
}

}  // namespace attune
