// SPDX-License-Identifier: Apache-2.0
// Stages rows of a captured tensor of 16-bit elements, such as a bias, in shared memory. Each warp
// copies its own 16 rows of a step by cp.async while it computes the previous step. It then reads
// them by ldmatrix, whose fragments have the layout of the accumulators. So loads from global
// memory are wide, and a warp waits only for its own copies. Layout:
// shared/layouts/score_stage_layout.h.
#pragma once

#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/sm90_layout.cuh"
#include "shared/layouts/score_stage_layout.h"

namespace attune {

class ScoreTile {
  static constexpr int kPitch = score_tile_pitch(kBlockN);
  static constexpr int kOffset = score_tile_offset(kLayout.bytes);
  static constexpr int kRowChunks = kBlockN / 8;  // chunks of 16 bytes per row

 public:
  // Begins a new tile: no step is held.
  __device__ __forceinline__ void clear() { key_ = kNothing; }

  // Waits until the rows' elements from key `key` on are in shared memory. `lines` are the
  // addresses of this thread's first columns in its two rows.
  __device__ __forceinline__ void await(int key, const void* const (&lines)[2]) {
    if (key_ != key) fetch(key, lines);
    cp_async_wait<0>();
    __syncwarp();
  }

  // Starts to copy the rows' elements from key `key` on. The warp must have read the previous copy.
  __device__ __forceinline__ void fetch(int key, const void* const (&lines)[2]) {
    key_ = key;
    cp_async_wait<0>();  // a copy that await() did not wait for
    __syncwarp();
    const int lane = reread_thread_index() % 32;
    const unsigned rows = warp_rows();
    unsigned long long first[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      first[half] = reinterpret_cast<unsigned long long>(lines[half]) - 4 * (lane % 4);
    // Copies chunks of 16 bytes by cp.async only if all rows of the warp begin at multiples of 16
    // bytes.
    const bool whole = __all_sync(~0u, (first[0] | first[1]) % 16 == 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll 2
      for (int i = 0; i < (kBlockN + 31) / 32; ++i) {
        const int chunk = i * 32 + lane;
        const int row = min(chunk / kRowChunks, 7), column = chunk % kRowChunks;
        const unsigned long long line = __shfl_sync(~0u, first[half], 4 * row);
        const unsigned to = rows + (8 * half + row) * kPitch + 16 * column;
        if (kBlockN % 32 == 0 || chunk < kBlockN)
          copy(to, reinterpret_cast<const char*>(line) + 16 * column, whole);
      }
    }
    cp_async_commit();
  }

  // Reads the pairs of columns that begin 8 n and 8 n + 8 columns after the thread's first, each in
  // the thread's two rows.
  __device__ __forceinline__ void read(int n, unsigned (&words)[2][2]) const {
    const int lane = reread_thread_index() % 32;
    unsigned fragments[4];
    ldmatrix_x4(fragments, warp_rows() + (lane % 16) * kPitch + 16 * (n + lane / 16));
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i / 2][i % 2] = fragments[i];
  }

 private:
  static constexpr int kNothing = -2147483647;

  __device__ __forceinline__ static unsigned warp_rows() {
    extern __shared__ __align__(1024) unsigned char shared_bytes[];
    const int warp = reread_thread_index() / 32 - kWarpgroupThreads / 32;  // consumer warp
    return static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes)) + kOffset +
           warp * 16 * kPitch;
  }

  __device__ __forceinline__ static void copy(unsigned to, const void* from, bool whole) {
    if (whole) {
      cp_async_16<0>(to, from, 16);
    } else {
      const unsigned* words = static_cast<const unsigned*>(from);
      store_shared_16(to, {{__ldg(words), __ldg(words + 1), __ldg(words + 2), __ldg(words + 3)}});
    }
  }

  int key_ = kNothing;
};

}  // namespace attune
