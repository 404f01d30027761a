// SPDX-License-Identifier: Apache-2.0
// The heads of a launch that takes all of them and stores no scores. The kernels of
// backward_sm90_stored take a round of heads instead (stored/panels.cuh).
#pragma once

#include "cuda/backward_sm90/none/tile_order.cuh"
#include "cuda/parts/section_order.cuh"

namespace attune {

struct AllHeads {
  // Keeps no scores.
  struct Panels {
    template <class... Arguments>
    __device__ __forceinline__ static void begin(const Arguments&...) {}
    __device__ __forceinline__ static void clear_rest(int, int) {}
    template <class Ds>
    __device__ __forceinline__ static void write_ds(int, const Ds&) {}
    template <class P, class Dropout>
    __device__ __forceinline__ static void write_p(int, const P&, const Dropout&) {}
  };

  // Returns the place of tile `number`. A head has `blocks` tiles, past each of which
  // `streamed_rows` rows stream. In the kernel that makes all gradients, sections of kSectionHeads
  // heads are taken one after the other.
  __device__ __forceinline__ TilePlace place(int number, int blocks, int /*heads_of_k*/, int heads,
                                             int batch, int streamed_rows) const {
    if constexpr (kSectionHeads > 0)
      return place_in_section(number, blocks, heads, batch, kSectionHeads);
    else
      return place_of(number, blocks, heads, batch, streamed_rows);
  }
};

}  // namespace attune
