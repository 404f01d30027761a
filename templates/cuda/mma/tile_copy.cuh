// SPDX-License-Identifier: Apache-2.0
// Copies a tile [kRows, kHeadDim] from global to shared memory with all threads of a block, 16
// bytes per thread at a time. Rows past the operand's length and padding columns become zeros, so
// that NaN or Inf past the last row never enters a product. The pipelines of the mma.sync kernels
// use this file.
//
// Rows keep their order or are quartered: in every 16 rows, row 4c + 2t + e is at place 8t + 2c + e
// (c < 4; t, e < 2). Then the columns 2c, 2c + 1 of two adjacent n8 tiles of S are four consecutive
// keys.
#pragma once

#include "cuda/mma/shared_tile.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "shared/attention_args.h"

namespace attune {

// Returns the operand's row, counted from the tile's first row, at `place` of a quartered tile.
__device__ __forceinline__ int quartered_row(int place) {
  return place / 16 * 16 + place % 8 / 2 * 4 + place / 8 % 2 * 2 + place % 2;
}

// Returns quartered_row(place + kRowsPerPass * pass) - quartered_row(place), for `place` below
// kRowsPerPass.
template <int kRowsPerPass>
__device__ constexpr int quartered_rows_to(int pass) {
  return kRowsPerPass == 8 ? pass / 2 * 16 + pass % 2 * 2 : pass * kRowsPerPass;
}

template <int kHeadDim, int kRows, int kThreads, int kElementBytes = 2, bool kQuartered = false>
class TileCopy {
  using Shared = SharedTile<kHeadDim, kElementBytes>;
  static constexpr int kGlobalChunks = (kHeadDim * kElementBytes + 15) / 16;
  static constexpr int kLastChunkBytes = kHeadDim * kElementBytes - 16 * (kGlobalChunks - 1);
  static constexpr int kThreadsPerRow = 1 << Shared::kSwizzleBits;
  static constexpr int kRowsPerPass = kThreads / kThreadsPerRow;
  static constexpr int kPasses = (kRows + kRowsPerPass - 1) / kRowsPerPass;
  static constexpr int kSteps = Shared::kChunks / kThreadsPerRow;
  static_assert(kRowsPerPass % 8 == 0, "a pass covers whole swizzle periods of 8 rows");

 public:
  static constexpr int kCopies = kPasses * kSteps;  // per thread and tile

  // `length` is the number of the operand's rows in each batch entry.
  __device__ TileCopy(const OperandView& operand, int length)
      : operand_(operand), length_(length) {}

  // Makes the tiles begin at a column of the operand.
  __device__ void begin_at(int column) { first_column_ = column; }

  // Calls copy(index, global address, offset in the tile, bytes) for each of this thread's chunks
  // of the tile at `first_row` of `head`. `bytes` of a chunk's 16 bytes exist.
  template <class Copy>
  __device__ __forceinline__ void each(int batch, int head, int first_row, Copy copy) const {
    const int thread = reread_thread_index();
    const int row = thread / kThreadsPerRow;
    const int column = thread % kThreadsPerRow;
    const int operand_row = kQuartered ? quartered_row(row) : row;
    const long long row_bytes = kElementBytes * operand_.row_stride;
    const long long offset = batch * operand_.batch_stride + head * operand_.head_stride;
    const char* source = static_cast<const char*>(operand_.data) + kElementBytes * offset +
                         (first_row + operand_row) * row_bytes + 16 * column;
    source += kElementBytes * first_column_;
    const unsigned target = Shared::offset(row, column);
    const int rows_left = length_ - first_row - operand_row;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const bool in_tile =
          kRows % kRowsPerPass == 0 || pass + 1 < kPasses || row + pass * kRowsPerPass < kRows;
      const bool row_exists = rows_to(pass) < rows_left;
      if (in_tile) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          const int first_chunk = step * kThreadsPerRow;
          const bool exists = row_exists && (first_chunk + kThreadsPerRow <= kGlobalChunks ||
                                             column + first_chunk < kGlobalChunks);
          copy(pass * kSteps + step, source + 16 * first_chunk,
               target + pass * kRowsPerPass * Shared::kRowBytes + 16 * first_chunk,
               exists ? bytes_of(column + first_chunk) : 0);
        }
      }
      source += (rows_to(pass + 1) - rows_to(pass)) * row_bytes;
    }
  }

 private:
  // Returns the distance, in rows of the operand, from a thread's first row to its row of `pass`.
  static __device__ constexpr int rows_to(int pass) {
    return kQuartered ? quartered_rows_to<kRowsPerPass>(pass) : pass * kRowsPerPass;
  }

  static __device__ __forceinline__ int bytes_of(int chunk) {
    return kLastChunkBytes < 16 && chunk == kGlobalChunks - 1 ? kLastChunkBytes : 16;
  }

  const OperandView& operand_;  // a kernel parameter: takes no registers
  int length_;
  int first_column_ = 0;
};

}  // namespace attune
