// SPDX-License-Identifier: Apache-2.0
// The producer role: one thread that keeps Q and the slots of K and V filled through TMA. It loads
// K and V in the order in which the consumers take them (wgmma_consumer.cuh). A single ring for
// both depends on this order.
#pragma once

#include "cuda/ptx/dependent_launch.cuh"
#include "cuda/ptx/tma.cuh"
#include "cuda/sm90/kv_pipeline.cuh"
#include "cuda/sm90/score_diagonals.cuh"  // where kDiagonalTerms, else none/
#include "cuda/sm90/tile_stream.cuh"
#include "cuda/sm90/wide_loads.cuh"  // where kKParts, else none/

namespace attune {

class TmaProducer {
 public:
  __device__ __forceinline__ TmaProducer(unsigned shared, const TensorMap& q, const TensorMap& k,
                                         const TensorMap& v)
      : shared_(shared), q_(q), k_(k), v_(v) {}

  __device__ __forceinline__ void run(const KernelParts& args) {
    bool first = true;
    if constexpr (kWaitsForPriorGrid) wait_for_prior_grid();
    TileStream tiles(args, shared_);
    for (PrefillTile tile = tiles.first(); !tiles.done();) {
      BlockWalk blocks;
      blocks.begin(tile);
      const int kv_head = tile.head / kGqaRatio;
      v_column_ = tile.v_column;
      row_ = tile.first_row;
      head_ = tile.head;
      const int origin = first_key(args, tile.first_row);
      const auto key = [&](int block) { return origin + block * kBlockN; };
      load_k(key(tile.last_block), kv_head, tile.batch);
      load_q(tile, tiles.parity());
      if (kWaitsForVTranspose && first) wait_for_prior_grid();  // the prior grid prepared V
      first = false;
#pragma unroll 1
      for (int block = tile.last_block - 1; block >= tile.first_block; --block) {
        if constexpr (kMaskProgram) block = blocks.next();
        if constexpr (kOverlap) load_k(key(block), kv_head, tile.batch);
        load_v(key(kMaskProgram ? blocks.before() : block + 1), kv_head, tile.batch);
        if constexpr (!kOverlap) load_k(key(block), kv_head, tile.batch);
      }
      // Draws late, so that the block that is done first takes the next tile. The load of V hides
      // the latency of the draw.
      const int next = tiles.draw();
      load_v(key(tile.first_block), kv_head, tile.batch);
      tile = tiles.publish(next);
    }
    if constexpr (kTransposeInside) stop_transposing();
    if constexpr (kWaitsForPriorGrid) let_next_grid_start();
    if constexpr (kDiagonalTerms) stop_diagonals();
  }

 private:
  __device__ __forceinline__ void load_q(const PrefillTile& tile, unsigned parity) {
#pragma unroll
    for (int i = 0; i < kWarpgroups; ++i) {
      mbarrier_wait(shared_ + kLayout.q_empty + 8 * i, parity ^ 1, "q_empty");
      load_panels<kLayout.panels_qk, kHeldRows, kLayout.row_qk, kWarpgroupRows>(
          shared_ + kLayout.q + i * kLayout.q_bytes, q_, shared_ + kLayout.q_full + 8 * i, 0,
          tile.first_row + i * kHeadRows, tile.head, tile.batch);
    }
  }

  __device__ __forceinline__ void load_k(int key, int head, int batch) {
    if constexpr (kWideHeads) return load_parts(shared_, k_, cursors_.k, key, head, batch);
    const int slot = cursors_.k.slot();
    mbarrier_wait(shared_ + kLayout.k_empty + 8 * slot, cursors_.k.parity() ^ 1, "k_empty");
    tell_diagonals(shared_, slot, key, row_, head_, batch);
    load_panels<kLayout.panels_qk, kBlockN, kLayout.row_qk>(
        shared_ + kLayout.k + slot * kLayout.k_slot_bytes, k_, shared_ + kLayout.k_full + 8 * slot,
        0, key, head, batch);
    cursors_.k.advance();
  }

  __device__ __forceinline__ void load_v(int key, int head, int batch) {
    if constexpr (kTransposeInside) return load_given_v(key, head, batch);
    if constexpr (kVSlices > 1)
      return load_slice(shared_, v_, cursors_.v(), v_column_, key, head, batch);
    const int slot = cursors_.v().slot();
    mbarrier_wait(shared_ + kLayout.v_empty + 8 * slot, cursors_.v().parity() ^ 1, "v_empty");
    load_panels<kLayout.panels_v, kLayout.rows_v, kLayout.row_v>(
        shared_ + kLayout.v + slot * kLayout.v_slot_bytes, v_, shared_ + kLayout.v_full + 8 * slot,
        kNarrowOperands ? key : 0, kNarrowOperands ? 0 : key, head, batch);
    cursors_.v().advance();
  }

  // Waits until the idle warps free a slot of V as given; the idle warps wait for the consumers.
  __device__ __forceinline__ int await_given_slot() {
    const int slot = cursors_.v().slot();
    mbarrier_wait(shared_ + kLayout.given_empty + 8 * slot, cursors_.v().parity() ^ 1,
                  "given_empty");
    return slot;
  }

  __device__ __forceinline__ void load_given_v(int key, int head, int batch) {
    const int slot = await_given_slot();
    load_panels<kLayout.panels_given, kBlockN, kLayout.row_given>(
        shared_ + kLayout.given_v + slot * kLayout.given_bytes, v_,
        shared_ + kLayout.given_full + 8 * slot, 0, key, head, batch);
    cursors_.v().advance();
  }

  __device__ __forceinline__ void stop_transposing() {
    const int slot = await_given_slot();
    mbarrier_arrive(shared_ + kLayout.stop + 8 * slot);
    mbarrier_arrive(shared_ + kLayout.given_full + 8 * slot);
  }

  __device__ __forceinline__ void stop_diagonals() {
    const int slot = cursors_.k.slot();
    const unsigned empty = shared_ + kLayout.k_empty + 8 * slot;
    mbarrier_wait(empty, cursors_.k.parity() ^ 1, "k_empty");
    tell_diagonals(shared_, slot, 0, 0, kNoHead, 0);
  }

  unsigned shared_;
  const TensorMap& q_;
  const TensorMap& k_;
  const TensorMap& v_;
  KvCursors cursors_;
  int v_column_ = 0;  // of the tile, as row_ and head_
  int row_ = 0;
  int head_ = 0;
};

}  // namespace attune
