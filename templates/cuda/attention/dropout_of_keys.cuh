// SPDX-License-Identifier: Apache-2.0
// Signs of dropout for accumulators whose rows are keys: a warp has a cell of 16 keys, a thread keys g = lane / 4 and g + 8 of it, and in
// each block of 8 rows the rows 2 q and 2 q + 1 with q = lane % 4. Each lane makes whole rows; who needs a pair of rows asks its maker.
#pragma once

#include "cuda/attention/dropout_signs.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// Of kRows rows, a multiple of 16, that follow each other.
template <int kRows>
class DropoutOfKeys {
 public:
  // Whole warps call it.
  __device__ __forceinline__ void make(const DropoutSource& source, unsigned head,
                                       unsigned first_row, unsigned cell) {
    const unsigned lane = static_cast<unsigned>(reread_thread_index()) % 32;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if (i < kRows / 64 || kLeft > 32) {  // two rows a lane
        const unsigned row = first_row + 64 * i + 2 * lane;
        const unsigned second = folded(source.signs(head, row + 1, cell));
        pairs_[i] = folded(source.signs(head, row, cell), second);
      } else {
        const unsigned mine = folded(source.signs(head, first_row + 64 * i + lane, cell));
        const unsigned other = __shfl_xor_sync(~0u, mine, 1);
        pairs_[i] = lane % 2 ? joined(other, mine) : joined(mine, other);
      }
      pairs_[i] = made_here(pairs_[i]);
    }
  }

  // The signs of the four elements of block `block8` of 8 rows: sign() finds each. Whole warps call it.
  __device__ __forceinline__ unsigned of_block(int block8, int lane) const {
    const bool apart = block8 / 8 >= kRows / 64 && kLeft <= 32;  // a pair has two lanes
    const int maker = (block8 % 8 * 4 + lane % 4) * (apart ? 2 : 1);
    const int key = lane / 4;
    return __shfl_sync(~0u, pairs_[block8 / 8], maker) << (24 - key % 4 * 8 + key / 4);
  }

  // Bit 31: whether element i of the block is dropped; 0 and 1 are rows 2 q and 2 q + 1 of key g, 2 and 3 of key g + 8.
  __device__ __forceinline__ static unsigned sign(unsigned block, int i) {
    return block << (i % 2 * 4 + i / 2 * 2);
  }

 private:
  static constexpr int kWords = (kRows + 63) / 64;
  static constexpr int kLeft = kRows % 64;

  // Of two rows: in byte k % 4 bits 7 to 4 are keys k % 4, + 4, + 8 and + 12 of the first row, bits 3 to 0 of the second.
  unsigned pairs_[kWords];
};

}  // namespace attune
