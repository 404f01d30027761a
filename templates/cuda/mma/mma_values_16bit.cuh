// SPDX-License-Identifier: Apache-2.0
// Computes O += P V with 16-bit operands. Each fragment of P is made from the scores just before it
// is used, so exp2 of one fragment overlaps the products of the previous one. mma_values_8bit.cuh
// and mma_values_tf32.cuh define the same names. A kernel includes one of the three before
// mma_prefill.cuh, which uses these names.
#pragma once

#include "cuda/mma/operands_16bit.cuh"

#include "cuda/mma/epilogue.cuh"
#include "cuda/mma/mma_products.cuh"
#include "cuda/mma/unit_factors.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"

namespace attune {

template <class Dropout>
__device__ __forceinline__ void multiply_pv(Output& output, Scores& scores, Softmax& softmax,
                                            const Dropout& dropout, unsigned v_tile,
                                            const FragmentOffsets& offsets, const Factors::Step&) {
  const unsigned v_address = v_tile + (kHoldOffsetOfV ? offsets.v : fragment_offsets().v);
#pragma unroll
  for (int step = 0; step < kBlockN / 16; ++step) {
    unsigned p[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&fragment)[4] = scores[m][2 * step + half];
        softmax.exponentiate(fragment, m);
        p[m][2 * half] = pack<kDtypeKv>(fragment[0], fragment[1]);
        p[m][2 * half + 1] = pack<kDtypeKv>(fragment[2], fragment[3]);
      }
      dropout.keep(p[m], m, step);
    }
#pragma unroll
    for (int n = 0; n < kOutputTiles; n += 2) {
      unsigned b[4];
      const unsigned address = VTile::chunk_pair(v_address, n / 2) + step * 16 * VTile::kRowBytes;
      if (n + 1 < kOutputTiles) {
        ldmatrix_x4_trans(b, address);
      } else {
        ldmatrix_x2_trans(b[0], b[1], address);
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        mma<kDtypeKv>(output[m][n], p[m], b[0], b[1]);
        if (n + 1 < kOutputTiles) mma<kDtypeKv>(output[m][n + 1], p[m], b[2], b[3]);
      }
    }
  }
}

// Multiplies row `half` of an m16 tile of O by `factor` and stores it at `row`, unless `row` is
// null.
__device__ __forceinline__ void store_output_row(const float (&output)[kOutputTiles][4], int half,
                                                 float factor, void* row, int thread_in_quad) {
  store_row<kDtypeO>(output, 2 * half, factor, row, thread_in_quad);
}

}  // namespace attune
