// SPDX-License-Identifier: Apache-2.0
// Computes O += P V with 8-bit operands, under the names of mma_values_16bit.cuh. P is rounded to
// e4m3 just before it is used. A register of A or B holds four consecutive slots of k. The keys in
// these slots are those for which the thread already has scores, in two adjacent n8 tiles. So no P
// moves between threads. With c = lane % 4, r = lane / 4, and keys counted from the step's first 16
// (or second 16):
//   V [keys, head_dim]   ldmatrix.trans takes pairs of bytes as its elements. From the 8x8 matrices
//                        of keys 0 .. 7 and 8 .. 15 a thread gets both columns 2r, 2r + 1 of keys
//                        {2c, 2c + 1} and {8 + 2c, 9 + 2c}. Two byte permutations separate the
//                        columns. n8 tile 2u of O has the even columns of head_dim
//                        16u .. 16u + 15, and tile 2u + 1 has the odd columns.
//   V [head_dim, keys]   ldmatrix gives a thread keys 4c .. 4c + 3. K's rows are quartered, so that
//                        P has the same keys. V's rows are quartered too, so that tiles 2u and
//                        2u + 1 hold columns {4c, 4c + 1} and {4c + 2, 4c + 3} of each 16.
// In both layouts a thread ends with 4 consecutive columns of O.
#pragma once

#include "cuda/prefill_sm89/operands_8bit.cuh"

#include "cuda/mma/epilogue.cuh"
#include "cuda/mma/mma_products.cuh"
#include "cuda/parts/online_softmax.cuh"
#include "cuda/prefill_sm89/operand_factors.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/round_8bit.cuh"

namespace attune {

static_assert(kBlockN % 32 == 0, "block_n is a multiple of 32, the depth of one product with V");

// Makes a fragment of P from the four n8 tiles of scores that begin at tile `first`.
__device__ __forceinline__ void weigh_step(unsigned (&p)[4], float (&scores)[kScoreTiles][4],
                                           int first, int m, Softmax& softmax,
                                           const Factors::Step& factors) {
#pragma unroll
  for (int n = first; n < first + 4; ++n) Factors::exponentiate(scores[n], m, n, softmax, factors);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float(&low)[4] = scores[first + i / 2 * 2];
    const float(&high)[4] = scores[first + i / 2 * 2 + 1];
    const int row = i % 2 * 2;
    p[i] = pack_fp8<Dtype::kE4m3>(low[row], low[row + 1], high[row], high[row + 1]);
  }
}

// Loads operand B of the n8 tiles 2 * pair (b[0], b[1]) and 2 * pair + 1 (b[2], b[3]).
__device__ __forceinline__ void load_v(unsigned (&b)[4], unsigned v_address, int step, int pair) {
  if constexpr (kTransposedV) {
    ldmatrix_x4(b, VTile::chunk_pair(v_address, step) + pair * 16 * VTile::kRowBytes);
  } else {
    unsigned keys[4];  // keys[i]: the 8 keys from 8 * i on, pairs of columns
    ldmatrix_x4_trans(keys, VTile::chunk(v_address, pair) + step * 32 * VTile::kRowBytes);
    constexpr unsigned kEvenBytes = 0x6420;
    constexpr unsigned kOddBytes = 0x7531;
    b[0] = __byte_perm(keys[0], keys[1], kEvenBytes);
    b[1] = __byte_perm(keys[2], keys[3], kEvenBytes);
    b[2] = __byte_perm(keys[0], keys[1], kOddBytes);
    b[3] = __byte_perm(keys[2], keys[3], kOddBytes);
  }
}

// Number of steps of 32 columns whose weights are made before the first product. With kFlush this
// is the whole block: the tensor core, whose sums have fewer bits than fp32, sums only one block,
// and O is summed in fp32.
constexpr int kStepsAtOnce = kFlush ? kBlockN / 32 : 1;
using Weights = unsigned[kStepsAtOnce][kRowTiles][4];

// Adds the products of kStepsAtOnce steps, from `first` on, to the n8 tiles 2 * pair and 2 * pair +
// 1 of O.
__device__ __forceinline__ void add_products(Output& output, const Weights& p, unsigned v_address,
                                             int first, int pair) {
  float sums[kRowTiles][2][4] = {};
#pragma unroll
  for (int step = 0; step < kStepsAtOnce; ++step) {
    unsigned b[4];
    load_v(b, v_address, first + step, pair);
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int n = 0; n < 2; ++n)
        mma<kDtypeKv>(kFlush ? sums[m][n] : output[m][2 * pair + n], p[step][m], b[2 * n],
                      b[2 * n + 1]);
    }
  }
  if constexpr (kFlush) {
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int i = 0; i < 8; ++i) output[m][2 * pair + i / 4][i % 4] += sums[m][i / 4][i % 4];
    }
  }
}

template <class Dropout>
__device__ __forceinline__ void multiply_pv(Output& output, Scores& scores, Softmax& softmax,
                                            const Dropout&, unsigned v_tile,
                                            const FragmentOffsets& offsets,
                                            const Factors::Step& factors) {
  const unsigned v_address = v_tile + (kHoldOffsetOfV ? offsets.v : fragment_offsets().v);
#pragma unroll
  for (int first = 0; first < kBlockN / 32; first += kStepsAtOnce) {
    Weights p;
#pragma unroll
    for (int step = 0; step < kStepsAtOnce; ++step) {
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m)
        weigh_step(p[step][m], scores[m], 4 * (first + step), m, softmax, factors);
    }
#pragma unroll
    for (int pair = 0; pair < kOutputTiles / 2; ++pair) {
      if constexpr (kFlush && kStepsAtOnce == 1)
        __syncwarp();  // else ptxas starts all products at once
      add_products(output, p, v_address, first, pair);
    }
  }
}

struct alignas(8) Vector8 {
  unsigned word[2];
};

// Multiplies row `half` of an m16 tile of O by `factor` and stores it at `row`, unless `row` is
// null. Each thread stores 8 bytes at a time, so that the quad of a row fills sectors of 32 bytes.
__device__ __forceinline__ void store_output_row(const float (&output)[kOutputTiles][4], int half,
                                                 float factor, void* row, int thread_in_quad) {
  if (row == nullptr) return;
#pragma unroll
  for (int pair = 0; pair < kOutputTiles / 2; ++pair) {
    const float* const first = &output[2 * pair][2 * half];
    const float* const second = &output[2 * pair + 1][2 * half];
    const float columns[4] = {first[0], kTransposedV ? first[1] : second[0],
                              kTransposedV ? second[0] : first[1], second[1]};
    const int column = 16 * pair + 4 * thread_in_quad;
    if (column < kHeadDimV)
      *reinterpret_cast<Vector8*>(static_cast<unsigned short*>(row) + column) =
          Vector8{{pack_times<kDtypeO>(columns[0], columns[1], factor),
                   pack_times<kDtypeO>(columns[2], columns[3], factor)}};
  }
}

}  // namespace attune
