// SPDX-License-Identifier: Apache-2.0
// Transposes V tile by tile in shared memory, for transpose_inside 1 of prefill_sm90_fp8. The three
// otherwise idle warps of the producing warpgroup do it. Each tile is transposed by every block
// that multiplies it, but V^T is neither written to memory nor read from it.
//
//   producer, one thread: wait given_empty, TMA -> given_full
//   idle warps:           wait given_full and v_empty, transpose, arrive given_empty and v_full
//   consumers:            wait v_full, wgmma, arrive v_empty
//   at the end:           the producer arrives on stop of the next slot, then, without bytes, on
//                         given_full
//
// fp8_tile_transposer.cuh transposes one tile.
#pragma once

#include "cuda/prefill_sm90_fp8/fp8_tile_transposer.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/kv_pipeline.cuh"

namespace attune {

// There are as many slots of given V as of transposed V, so one cursor walks both.
__device__ __forceinline__ void transpose_tiles(unsigned shared) {
  SlotCursor<kLayout.v_slots> cursor;
#pragma unroll 1
  while (true) {
    const int slot = cursor.slot();
    mbarrier_wait(shared + kLayout.given_full + 8 * slot, cursor.parity(), "given_full");
    if (mbarrier_test(shared + kLayout.stop + 8 * slot, 0)) return;
    mbarrier_wait(shared + kLayout.v_empty + 8 * slot, cursor.parity() ^ 1, "v_empty");
    TileTransposer().run(shared + kLayout.given_v + slot * kLayout.given_bytes,
                         shared + kLayout.v + slot * kLayout.v_slot_bytes,
                         reread_thread_index() / 32 - 1);
    fence_proxy_async();
    __syncwarp();
    const bool first_lane = reread_thread_index() % 32 == 0;
    mbarrier_arrive_if(first_lane, shared + kLayout.given_empty + 8 * slot);
    mbarrier_arrive_if(first_lane, shared + kLayout.v_full + 8 * slot);
    cursor.advance();
  }
}

}  // namespace attune
