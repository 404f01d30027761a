// SPDX-License-Identifier: Apache-2.0
// Writes accumulator fragments (layout of mma.cuh and of wgmma) to O. The four threads of a row
// exchange their pieces, so that each stores 16 bytes and a row's stores are whole 64-byte runs
// (the last run is shorter if head_dim_v is not a multiple of 32). Needs no shared memory.
#pragma once

#include "cuda/parts/mask.cuh"
#include "cuda/parts/tile_scheduler.cuh"
#include "cuda/parts/v_slice.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace attune {

// Transposes the words of four threads: words[j] of thread t becomes the former words[t] of
// thread j.
__device__ __forceinline__ void transpose_quad(unsigned (&words)[4], int thread_in_quad) {
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2) {
    const bool upper = (thread_in_quad & bit) != 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j & bit) continue;
      const unsigned received =
          __shfl_xor_sync(0xFFFFFFFFu, upper ? words[j] : words[j | bit], bit);
      words[j] = upper ? received : words[j];
      words[j | bit] = upper ? words[j | bit] : received;
    }
  }
}

// Returns two elements of O, multiplied by `factor` and packed. A row that sees no key has a factor
// of 0 and gets exactly 0, even if V is not finite.
template <Dtype kDtype>
__device__ __forceinline__ unsigned pack_times(float low, float high, float factor) {
  const unsigned word = pack<kDtype>(low * factor, high * factor);
  return kSomeRowsSeeNothing && factor == 0.0f ? 0u : word;
}

// Returns the address of a head's rows in an output of 16-bit elements.
__device__ __forceinline__ unsigned short* output_rows(const OperandView& o, const Tile& tile) {
  return static_cast<unsigned short*>(o.data) + tile.batch * o.batch_stride +
         tile.head * o.head_stride;
}

// Multiplies elements i and i + 1 of all fragments by `factor` and stores them to the row at `row`.
// Stores nothing if `row` is null. i = 0 is row r, i = 2 is row r + 8. Whole warps call it.
template <Dtype kDtype, int kTiles>
__device__ __forceinline__ void store_row(const float (&fragments)[kTiles][4], int i, float factor,
                                          void* row, int thread_in_quad) {
  if (row != nullptr) row = static_cast<unsigned short*>(row) + first_v_column(blockIdx.x);
#pragma unroll
  for (int first = 0; first < kTiles; first += 4) {
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (first + j < kTiles)
        words[j] = pack_times<kDtype>(fragments[first + j][i], fragments[first + j][i + 1], factor);
    }
    transpose_quad(words, thread_in_quad);
    const int tile = first + thread_in_quad;
    if (row != nullptr && tile < kTiles)
      static_cast<Vector16*>(row)[tile] = Vector16{{words[0], words[1], words[2], words[3]}};
  }
}

}  // namespace attune
