// SPDX-License-Identifier: Apache-2.0
// Recomputes S = Q K^T of one warp's 16 rows, by mma.sync from global memory. It serves the rare
// case that scores were exponentiated under a maximum that lags too far behind (lazy_softmax.cuh).
// A warp does it alone; the shared-memory slots of Q and K may have been released. The result has
// the layout of a wgmma accumulator.
#pragma once

#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/sm90/cache_keys.cuh"  // where kCacheArgs, else none/
#include "cuda/sm90/tile_stream.cuh"

namespace attune {

// Returns the address of a 32-bit word of a row of one head.
__device__ __forceinline__ const unsigned* word_address(const OperandView& view, int batch,
                                                        int head, int row, int word) {
  const long long at = batch * view.batch_stride + row * view.row_stride + head * view.head_stride;
  return reinterpret_cast<const unsigned*>(static_cast<const unsigned char*>(view.data) +
                                           at * kOperandBytes) +
         word;
}

// Recomputes the scores of one block. `first_row` is the warpgroup's. All keys of the block must
// exist; rows past seqlen_q repeat the last one. A step is 32 bytes of k: two words of a row in
// each lane of a quad, 4 words apart. Addresses are advanced one load at a time (reread): a branch
// that is rarely taken must not hold registers of the loop around it.
template <int kCount>
__device__ __forceinline__ void recompute_scores(const AttentionArgs& args, const PrefillTile& tile,
                                                 int first_row, int block, float (&s)[kCount]) {
  constexpr int kRowWords = kHeadDimQk * kOperandBytes / 4;
  constexpr int kSteps = (kRowWords + 7) / 8;
  const int thread = reread_thread_index() % kWarpgroupThreads;
  const int quad_row = thread % 32 / 4;
  const int word = thread % 4;
  int row = first_row + thread / 32 * 16 + quad_row;
  int head = tile.head;
  if constexpr (kPackHeads > 1) {
    row = first_row + thread_row(thread);
    head += thread_head(thread);
  }
  int head_below = head + kNextHead;
  if constexpr (kHasIdleRows) {  // idle rows repeat the last head
    head = min(head, tile.head + kTileHeads - 1);
    head_below = min(head_below, tile.head + kTileHeads - 1);
  }
  const unsigned* q = word_address(args.q, tile.batch, head, min(row, args.seqlen_q - 1), word);
  const unsigned* q_below =
      word_address(args.q, tile.batch, head_below, min(row + kNextRow, args.seqlen_q - 1), word);
#pragma unroll
  for (int i = 0; i < kCount; ++i) s[i] = 0.f;
#pragma unroll 1
  for (int step = 0; step < kSteps; ++step) {
    const bool lower = kRowWords % 8 == 0 || 8 * step + word < kRowWords;  // the words exist
    const bool upper = kRowWords % 8 == 0 || 8 * step + word + 4 < kRowWords;
    const unsigned a[4] = {lower ? q[8 * step] : 0u, lower ? q_below[8 * step] : 0u,
                           upper ? q[8 * step + 4] : 0u, upper ? q_below[8 * step + 4] : 0u};
    const unsigned* k =
        word_address(args.k, tile.batch, tile.head / kGqaRatio,
                     first_key(args, tile.first_row) + block * kBlockN + quad_row, word + 8 * step);
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {  // 8 keys
      k = reread(k);
      if constexpr (kCacheArgs)
        k = cached_key(args, tile, block * kBlockN + 2 * i + quad_row) + word + 8 * step;
      float d[4] = {s[i], s[i + 1], s[i + 2], s[i + 3]};
      mma<kDtypeKv>(d, a, lower ? k[0] : 0u, upper ? k[4] : 0u);
#pragma unroll
      for (int j = 0; j < 4; ++j) s[i + j] = d[j];
      k += 2 * kOperandBytes * args.k.row_stride;  // 8 rows, in words
    }
  }
}

}  // namespace attune
