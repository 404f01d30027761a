// SPDX-License-Identifier: Apache-2.0
// Signs of dropout for accumulators whose rows are queries: a thread has two rows, and in each block of 8 keys the keys 2 q and 2 q + 1
// with q = lane % 4. The four lanes that share the rows share the calls of Philox, too: each makes every fourth cell of both rows.
#pragma once

#include "cuda/attention/dropout_signs.cuh"
#include "cuda/ptx/permute_bytes.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

// Two rows of a thread.
struct DropoutRows {
  unsigned head[2];  // of all batch entries
  unsigned row[2];
};

// Of kCells cells of 16 keys that follow each other.
template <int kCells>
class DropoutOfRows {
 public:
  // Whole warps call it; the rows of a quad of lanes are the same.
  __device__ __forceinline__ void make(const DropoutSource& source, const DropoutRows& rows,
                                       unsigned first_cell) {
    const unsigned lane = threadIdx.x % 4;
    unsigned both[2 * kWords];  // of a cell of both rows
#pragma unroll
    for (int cell = 0; cell + 2 < kCells; cell += 4) {
      const unsigned at = first_cell + cell + lane;
      const unsigned second = folded(source.signs(rows.head[1], rows.row[1], at));
      const unsigned mine = folded(source.signs(rows.head[0], rows.row[0], at), second);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (cell + i < kCells) both[cell + i] = __shfl_sync(~0u, mine, i, 4);
    }
    if constexpr (kLeft == 1 || kLeft == 2) make_last(source, rows, first_cell, both);
    if constexpr (kCells % 2 == 1) both[kCells] = 0;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const unsigned pairs = permuted(both[2 * i], both[2 * i + 1], lane % 2 ? 0x7632 : 0x5410);
      word_[i] = made_here(pairs << lane / 2);
    }
  }

  // Two values of 16 bits that follow each other, of row `half` in block `block8` of 8 keys, with zeros where they are dropped.
  __device__ __forceinline__ unsigned keep(unsigned values, int block8, int half) const {
    const unsigned signs = word_[block8 / 4] << bit(block8, half);
    return values & ~permuted(signs, 0, block8 / 2 % 2 ? 0xBBAA : 0x9988);
  }

  // Key `key` of the pair.
  __device__ __forceinline__ bool keeps(int block8, int half, int key) const {
    return !(word_[block8 / 4] >> place(block8, half, key) & 1);
  }

  // 2 where key `key` of the pair is kept, else 0.
  __device__ __forceinline__ float twice_kept(int block8, int half, int key) const {
    constexpr int kTwo = 30;  // the bit of 2.f
    const int at = place(block8, half, key);
    const unsigned word = word_[block8 / 4];
    return __uint_as_float(~(at > kTwo ? word >> 1 : word << (kTwo - at)) & 1u << kTwo);
  }

 private:
  static constexpr int kWords = (kCells + 1) / 2;
  static constexpr int kLeft = kCells % 4;  // cells that not all lanes make

  // One or two cells, of which each lane makes one row.
  __device__ __forceinline__ static void make_last(const DropoutSource& source,
                                                   const DropoutRows& rows, unsigned first_cell,
                                                   unsigned* both) {
    constexpr int kBegin = kCells - kLeft;
    const unsigned lane = threadIdx.x % 4, half = lane / kLeft % 2;
    const unsigned head = half ? rows.head[1] : rows.head[0];
    const unsigned row = half ? rows.row[1] : rows.row[0];
    const unsigned mine = folded(source.signs(head, row, first_cell + kBegin + lane % kLeft));
#pragma unroll
    for (int i = 0; i < kLeft; ++i)
      both[kBegin + i] = joined(__shfl_sync(~0u, mine, i, 4), __shfl_sync(~0u, mine, kLeft + i, 4));
  }

  // The signs of an element's byte, from the left.
  __device__ __forceinline__ static constexpr int bit(int block8, int half) {
    return 4 * half + block8 % 2 * 2;
  }
  __device__ __forceinline__ static constexpr int place(int block8, int half, int key) {
    return 7 - bit(block8, half) + block8 / 2 % 2 * 16 + key * 8;
  }

  // Of two cells: bytes 0 and 1 of the first are keys 2 q and 2 q + 1, with bits 7 and 5 of the first row in both blocks of 8 keys, bits 3
  // and 1 of the second; bytes 2 and 3 of the second cell.
  unsigned word_[kWords];
};

}  // namespace attune
