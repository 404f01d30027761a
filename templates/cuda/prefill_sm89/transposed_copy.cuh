// SPDX-License-Identifier: Apache-2.0
// The TileCopy (tile_copy.cuh) of V with contiguous keys: a tile is [kHeadDim, kKeys] bytes, rows
// quartered. Keys beyond the operand's length become zeros, and so do rows that pad kHeadDim to a
// multiple of 16.
#pragma once

#include "cuda/mma/tile_copy.cuh"

namespace attune {

template <int kHeadDim, int kKeys, int kThreads>
class TransposedCopy {
  using Shared = SharedTile<kKeys, 1>;
  static constexpr int kRows = (kHeadDim + 15) / 16 * 16;
  static constexpr int kThreadsPerRow = 1 << Shared::kSwizzleBits;
  static constexpr int kRowsPerPass = kThreads / kThreadsPerRow;
  static constexpr int kPasses = (kRows + kRowsPerPass - 1) / kRowsPerPass;
  static constexpr int kSteps = Shared::kChunks / kThreadsPerRow;
  static_assert(kRowsPerPass % 8 == 0, "a pass covers whole swizzle periods of 8 rows");
  static_assert(kKeys % 32 == 0, "keys come in pairs of 16-byte chunks");

 public:
  // `length`: keys of the operand in each batch entry.
  __device__ TransposedCopy(const OperandView& operand, int length)
      : operand_(operand), length_(length) {}

  // Does nothing: 8-bit heads are never so wide that V is divided.
  __device__ void begin_at(int) {}

  // Calls copy(index, global, offset in the tile, bytes) for each of this thread's chunks of the
  // tile at `first_key` of `head`; `bytes` of the 16 exist.
  template <class Copy>
  __device__ __forceinline__ void each(int batch, int head, int first_key, Copy copy) const {
    const int thread = reread_thread_index();
    const int row = thread / kThreadsPerRow;
    const int column = thread % kThreadsPerRow;
    const int head_row = quartered_row(row);
    const char* source = static_cast<const char*>(operand_.data) + batch * operand_.batch_stride +
                         head * operand_.head_stride + head_row * operand_.row_stride + first_key +
                         16 * column;
    const unsigned target = Shared::offset(row, column);
    const int keys_left = length_ - first_key - 16 * column;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      if (row + pass * kRowsPerPass < kRows) {
        const bool row_exists = head_row + quartered_rows_to<kRowsPerPass>(pass) < kHeadDim;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const int first_chunk = step * kThreadsPerRow;
          const int keys = min(max(keys_left - 16 * first_chunk, 0), 16);
          copy(pass * kSteps + step, source + 16 * first_chunk,
               target + pass * kRowsPerPass * Shared::kRowBytes + 16 * first_chunk,
               row_exists ? keys : 0);
        }
      }
      source +=
          (quartered_rows_to<kRowsPerPass>(pass + 1) - quartered_rows_to<kRowsPerPass>(pass)) *
          operand_.row_stride;
    }
  }

 private:
  const OperandView& operand_;  // kernel parameters: costs no registers
  int length_;
};

}  // namespace attune
