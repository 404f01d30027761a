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
        pairs_[i] = folded(source.signs(head, row, cell), folded(source.signs(head, row + 1, cell)));
      } else {
        const unsigned row = first_row + 64 * i + lane;
        const unsigned mine = folded(source.signs(head, row, cell));
        const unsigned other = __shfl_xor_sync(~0u, mine, 1);
        pairs_[i] = lane % 2 ? joined(other, mine) : joined(mine, other);
      }
      asm volatile("" : "+r"(pairs_[i]));  // made here, where the caller has time
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

// Until dP is there, what of P is dropped has a sign. `sign` stands in bit 31, before bits that mean nothing.
__device__ __forceinline__ float signed_by(float p, unsigned sign) {
  return __uint_as_float(__float_as_uint(p) | (sign & 0x80000000u));
}

// Two such in 16 bits, with zeros for what is dropped.
template <Dtype kDtype>
__device__ __forceinline__ unsigned pack_kept(float low, float high) {
  unsigned packed;
  if constexpr (kDtype == Dtype::kBf16) {
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

// dS / scale = P (keep dP - delta / scale).
__device__ __forceinline__ float dropped_slope(float p, float dp, float delta) {
  return fmaxf(p, 0.f) * dp - fabsf(p) * delta;
}

}  // namespace attune
