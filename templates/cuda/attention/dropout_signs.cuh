// SPDX-License-Identifier: Apache-2.0
// What dropout drops (shared/dropout.h) as bits, "signs", that are set where a place of P is dropped: a call of Philox has those of 16
// keys of a row. How they come to the lanes that have the places: dropout_of_rows.cuh, dropout_of_keys.cuh.
#pragma once

#include "cuda/ptx/special_registers.cuh"
#include "shared/dropout.h"
#include "shared/kernel_arguments.h"

namespace attune {

// Byte k % 4 of word k / 4 has the sign of key k of a cell in bit 7; its other bits mean nothing.
using DropoutSigns = DropoutCell;

// What the threads of a launch know of its dropout.
class DropoutSource {
 public:
  DropoutSource() = default;
  __device__ __forceinline__ explicit DropoutSource(const DropoutArgs& args)
      : state_(dropout_state(args)), dropped_((256u - args.threshold) * 0x01010101u) {}

  // A byte is dropped from the threshold on, where it carries when 256 - threshold is added: four additions of seven bits, and the
  // carries out of bit 7.
  __device__ __forceinline__ DropoutSigns signs(unsigned head, unsigned row, unsigned cell) const {
    constexpr unsigned kSevenBits = 0x7F7F7F7Fu;
    DropoutSigns signs = dropout_cell(state_, head, row, cell);
#pragma unroll
    for (unsigned& x : signs.word) {
      const unsigned sum = (x & kSevenBits) + (dropped_ & kSevenBits);
      x = (x & dropped_) | (x & sum) | (dropped_ & sum);
    }
    return signs;
  }

 private:
  DropoutState state_{};
  unsigned dropped_ = 0;  // 256 - threshold, in each byte
};

// Bit 7 of each byte of `first` in front of bits 7 to 1 of the same byte of `behind`.
__device__ __forceinline__ unsigned in_front(unsigned first, unsigned behind) {
  return (first & 0x80808080u) | (behind >> 1 & 0x7F7F7F7Fu);
}

// Bits 7 to 4 of byte k % 4 are those of words 0 to 3, and so of keys k % 4, + 4, + 8 and + 12; the others are bits 7 to 4 of the same
// byte of `behind`.
__device__ __forceinline__ unsigned folded(const DropoutSigns& signs, unsigned behind = 0) {
#pragma unroll
  for (int i = 3; i >= 0; --i) behind = in_front(signs.word[i], behind);
  return behind;
}

// Bits 7 to 4 of the bytes of `first`, and those of `second` behind them.
__device__ __forceinline__ unsigned joined(unsigned first, unsigned second) {
  return (first & 0xF0F0F0F0u) | (second >> 4 & 0x0F0F0F0Fu);
}

// Keeps the compiler from making a word later than its caller, who has time, does.
__device__ __forceinline__ unsigned made_here(unsigned word) {
  return static_cast<unsigned>(reread(static_cast<int>(word)));
}

// Counted over all batch entries.
__device__ __forceinline__ unsigned dropout_head(const AttentionArgs& args, int batch, int head) {
  return static_cast<unsigned>(batch * args.num_heads_q + head);
}

// 1 / args.scale. Gradients begin as dS / scale = P (keep dP - delta / scale), and delta with them.
__device__ __forceinline__ float kept_part(const DropoutArgs& args) {
  return static_cast<float>(args.threshold) * (1.f / 256);
}

// For the backward pass; by the first thread of a launch.
__device__ __forceinline__ void leave_dropout_state(const DropoutArgs& args) {
  write_dropout_state(args, static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x);
}

}  // namespace attune
