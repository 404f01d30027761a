// SPDX-License-Identifier: Apache-2.0
// The kernel that runs before prefill_sm90_fp8. It writes V^T to the workspace, because wgmma takes
// 8-bit operands only K-major. One block moves 128 keys of one head through shared memory, in and
// out by TMA, which zero-fills keys past the end. Formats:
// shared/layouts/prefill_sm90_fp8_layout.h.
#pragma once

#include "shared/attention_args.h"
#include "shared/layouts/prefill_sm90_fp8_layout.h"

#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/mbarrier.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/tma.cuh"

namespace attune {

constexpr bool kGivenTransposed = kVLayout == VLayout::kTransposed;
constexpr TransposeLayout kTranspose = transpose_layout(kHeadDimV, kGivenTransposed);
constexpr int kTransposeRowBytes = kTransposeKeys;  // of V^T in shared memory

// The 128 keys and the head that a block moves. Heads are numbered first, so that neighbouring
// blocks read neighbouring memory. The last heads are moved first, so that V^T of the first heads
// is in the L2 cache when the next kernel begins with them.
struct KeyTile {
  int key;
  int head;
  int batch;
};

__device__ __forceinline__ KeyTile key_tile(const AttentionArgs& args, int block) {
  const int tiles = (max(args.seqlen_kv, 1) + kTransposeKeys - 1) / kTransposeKeys;
  const int tile = block / args.num_heads_kv;
  return {tile % tiles * kTransposeKeys, block % args.num_heads_kv, tile / tiles};
}

__device__ __forceinline__ void load_key_tile(unsigned shared, const TensorMap& map,
                                              const KeyTile& tile) {
  const unsigned barrier = shared + kTranspose.barrier;
  if constexpr (kGivenTransposed) {
    mbarrier_arrive_expect_tx(barrier, kHeadDimV * kTransposeRowBytes);
    tma_load(shared + kTranspose.out, map, barrier, {tile.key, 0, tile.head, tile.batch});
  } else {
    constexpr int kPanelBytes = kTransposeKeys * kTranspose.row;
    mbarrier_arrive_expect_tx(barrier, kTranspose.panels * kPanelBytes);
#pragma unroll
    for (int panel = 0; panel < kTranspose.panels; ++panel)
      tma_load(shared + panel * kPanelBytes, map, barrier,
               {panel * kTranspose.row, tile.key, tile.head, tile.batch});
  }
}

// Returns the offset of the 16-byte chunk `chunk` of a row, by the swizzle of its row length.
__device__ __forceinline__ unsigned swizzled_chunk(int key, int chunk) {
  constexpr int kKeysPerLine = 128 / kTranspose.row;
  return ((key / kKeysPerLine % (kTranspose.row / 16)) ^ chunk) << 4;
}

// Transposes V, 16 columns per warp at a time. A lane takes the four keys that are adjacent in V^T:
// keys 2 q and 2 q + 1 of a group of 16, and the two keys 8 further on. Lanes of odd groups read
// the two keys of a pair in reverse order, so that 8 lanes always use all banks. The byte
// permutation restores the order.
__device__ __forceinline__ void transpose_keys(unsigned in, unsigned out) {
  constexpr int kChunks = (kHeadDimV + 15) / 16;
  constexpr int kPanelChunks = kTranspose.row / 16;
  const int lane = threadIdx.x % 32;
  const int sixteen = lane / 4;
  const int pair = lane % 4;
  const int odd = sixteen % 2;
  const unsigned low_bytes = odd ? 0x1504u : 0x5140u;   // bytes 0 and 1 of both words, interleaved
  const unsigned high_bytes = odd ? 0x3726u : 0x7362u;  // bytes 2 and 3
  for (int chunk = threadIdx.x / 32; chunk < kChunks; chunk += kTransposeThreads / 32) {
    Vector16 key_words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 16 * sixteen + 2 * pair + (i % 2 ^ odd) + i / 2 * 8;
      key_words[i] =
          load_shared_16(in + (chunk / kPanelChunks * kTransposeKeys + key) * kTranspose.row +
                         swizzled_chunk(key, chunk % kPanelChunks));
    }
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const unsigned a = key_words[0].word[word], b = key_words[1].word[word];
      const unsigned c = key_words[2].word[word], d = key_words[3].word[word];
      const unsigned low[2] = {__byte_perm(a, b, low_bytes), __byte_perm(c, d, low_bytes)};
      const unsigned high[2] = {__byte_perm(a, b, high_bytes), __byte_perm(c, d, high_bytes)};
      const unsigned columns[4] = {
          __byte_perm(low[0], low[1], 0x5410), __byte_perm(low[0], low[1], 0x7632),
          __byte_perm(high[0], high[1], 0x5410), __byte_perm(high[0], high[1], 0x7632)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = chunk * 16 + word * 4 + i;
        store_shared_word(out + row * kTransposeRowBytes + ((sixteen ^ (row % 8)) << 4) + 4 * pair,
                          columns[i]);
      }
    }
  }
}

// Puts each 16 keys of V, which is given transposed, in the order of P. The swizzle moves whole
// groups of 16, so it does not matter here.
__device__ __forceinline__ void reorder_keys(unsigned out) {
  constexpr int kSixteens = kHeadDimV * kTransposeRowBytes / 16;
  for (int i = threadIdx.x; i < kSixteens; i += kTransposeThreads) {
    const Vector16 x = load_shared_16(out + 16 * i);
    store_shared_16(
        out + 16 * i,
        {{__byte_perm(x.word[0], x.word[2], 0x5410), __byte_perm(x.word[0], x.word[2], 0x7632),
          __byte_perm(x.word[1], x.word[3], 0x5410), __byte_perm(x.word[1], x.word[3], 0x7632)}});
  }
}

extern "C" __global__ void __launch_bounds__(kTransposeThreads)
    attune_transpose_v(const __grid_constant__ AttentionArgs args,
                       const __grid_constant__ TensorMap map_v,
                       const __grid_constant__ TensorMap map_vt) {
  extern __shared__ __align__(1024) unsigned char transpose_bytes[];
  const unsigned shared = shared_address(transpose_bytes);
  const KeyTile tile = key_tile(args, gridDim.x - 1 - blockIdx.x);
  if (threadIdx.x == 0) {
    mbarrier_init(shared + kTranspose.barrier, 1);
    fence_mbarrier_init();
    if constexpr (kWaitsForVTranspose)
      wait_for_prior_grid();  // V is read and V^T written only after that grid
    load_key_tile(shared, map_v, tile);
    // Only the thread that has waited calls this, because the next grid reads Q, K and factors as
    // soon as it runs. One thread's call counts for its block.
    if constexpr (kWaitsForVTranspose) let_next_grid_start();
  }
  __syncthreads();
  mbarrier_wait(shared + kTranspose.barrier, 0, "v");
  if constexpr (kGivenTransposed) {
    reorder_keys(shared + kTranspose.out);
  } else {
    transpose_keys(shared, shared + kTranspose.out);
  }
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    tma_store(map_vt, shared + kTranspose.out, {tile.key, 0, tile.head, tile.batch});
    tma_store_commit();
    tma_store_wait();
  }
}

}  // namespace attune
