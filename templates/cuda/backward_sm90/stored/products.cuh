// SPDX-License-Identifier: Apache-2.0
// Makes dK of backward_sm90_stored from dS, or dV from P. The kernel of dQ (attune_kernel) has
// written dS and P to the workspace, by rows. The gradients of kKeyBlockN keys are plain products,
//   dK = scale dS^T Q,  dV = P^T dout
// over the rows of all heads of a group that see a key. A step takes 64 rows of Q or dout and, for
// each warpgroup, panels of these rows and 64 keys. Products read the panels as columns.
#pragma once

#include "cuda/backward_sm90/keys_dropout.cuh"  // where kDropout, else none/
#include "cuda/backward_sm90/keys_tiles.cuh"
#include "cuda/backward_sm90/store_gradient.cuh"
#include "cuda/backward_sm90/stored/panels.cuh"
#include "cuda/ptx/bulk_copies.cuh"
#include "cuda/ptx/dependent_launch.cuh"

#include "generated/wgmma.cuh"

namespace attune {

static_assert(kKeyBlockM == kWarpgroupRows, "a step has the rows of a panel");

// The rows of a product have the order of keys in a stored panel.
struct StoredKeyOrder {
  __device__ __forceinline__ static int place(int row) { return backward_stored_key(row); }
};

template <Stored kWhich>
constexpr int kStoredColumns = kWhich == Stored::kDs ? kHeadDimQk : kHeadDimV;
// The gradient is staged in the memory in which other kernels keep operands.
template <Stored kWhich>
constexpr BackwardSm90Layout kStoredLayout = backward_sm90_layout({kKeyBlockN, kKeyBlockM, kQSlots,
                                                                   kQSlots, kStoredColumns<kWhich>,
                                                                   kKeyBlockN, false, false});
template <Stored kWhich>
constexpr BackwardSm90Ring kStreamedRing = kStoredLayout<kWhich>.first_ring;
template <Stored kWhich>
constexpr BackwardSm90Ring kPanelRing = kStoredLayout<kWhich>.second_ring;

// Streams stored panels. If no row of a step sees a warpgroup's keys, the slot keeps its old
// contents and the warpgroup skips the step.
template <Stored kWhich>
__device__ __forceinline__ void stream_stored(const AttentionArgs& args, const HeadsOfRound& heads,
                                              unsigned shared) {
  constexpr int kWarpgroups = kKeyBlockN / kWarpgroupRows;
  TileRing<kPanelRing<kWhich>> panels(shared);
#pragma unroll 1
  for (TileNumbers tiles; tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number(), heads);
    each_step(tile, [&](int head, int row) {
      const AttentionArgs here = reread(args);
      const BlockRange seen = seen_blocks(here, row);
      const int first = tile.first_key / kWarpgroupRows;
      const int begin = max(seen.begin, first), end = min(seen.end, first + kWarpgroups);
      const unsigned char* const places =
          stored_places(here, heads.round, tile.batch, head, row, seen) +
          (kWhich == Stored::kP ? kStoredBytes : 0);
      const unsigned full = panels.await_free();
      mbarrier_arrive_expect_tx(full, max(end - begin, 0) * kStoredBytes);
#pragma unroll 1
      for (int block = begin; block < end; ++block)
        bulk_load(panels.tile() + (block - first) * kStoredBytes,
                  places + static_cast<long long>(block) * kStoredStride, kStoredBytes, full);
      panels.advance();
    });
  }
}

// Streams rows of Q or dout. A thread of another warp calls it, so that neither thread waits for
// slots of the other's ring.
template <Stored kWhich>
__device__ __forceinline__ void stream_rows(const AttentionArgs& args, const HeadsOfRound& heads,
                                            unsigned shared, const TensorMap& map) {
  TileRing<kStreamedRing<kWhich>> streamed(shared);
#pragma unroll 1
  for (TileNumbers tiles; tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number(), heads);
    each_step(tile, [&](int head, int row) {
      stream_tile<kStoredLayout<kWhich>.panels_qk>(streamed, map, row, head, tile.batch);
    });
  }
}

template <Stored kWhich>
class StoredConsumer {
 public:
  using Gradient = float[kStoredColumns<kWhich> / 2];

  __device__ __forceinline__ StoredConsumer(const AttentionArgs& args, unsigned shared,
                                            int warpgroup)
      : args_(args), streamed_(shared), panels_(shared), own_panels_(warpgroup * kStoredBytes) {}

  __device__ __forceinline__ void run(const KeysTile& tile, int first_key, Gradient& gradient) {
    const BlockRange blocks = row_blocks<kKeyBlockM>(
        args_, first_key, first_key < args_.seqlen_kv ? first_key + kWarpgroupRows : first_key);
    const OwnBlocks own = own_blocks(tile.blocks, blocks);
    clear(gradient);
#pragma unroll 1
    for (int head = 0; head < kGqaRatio; ++head) {
      skip_steps(streamed_, panels_, own.begin - tile.blocks.begin);
      run_head(own.end - own.begin, gradient);
      skip_steps(streamed_, panels_, tile.blocks.end - own.end);
    }
  }

 private:
  // The slots that a product reads until it is complete.
  struct Step {
    RingSlot streamed, panels;
  };

  // Takes the steps of a head. It issues the product of a step while the previous product runs.
  __device__ __forceinline__ void run_head(int steps, Gradient& gradient) {
    if (steps <= 0) return;
    Step last = issue(gradient);
#pragma unroll 1
    for (int i = 1; i < steps; ++i) {
      const Step next = issue(gradient);
      wgmma_wait<1>();
      give_back(last);
      last = next;
    }
    wgmma_wait<0>();
    wgmma_pin(gradient);
    give_back(last);
  }

  __device__ __forceinline__ Step issue(Gradient& gradient) {
    const RingSlot panels = panels_.take(), streamed = streamed_.take();
    const unsigned long long scores = wgmma_descriptor<kStoredRowBytes>(
        wgmma_descriptor_low(panels.tile + own_panels_, kStoredPanelBytes));
    const unsigned long long rows = by_columns<kKeyBlockM>(streamed.tile);
    wgmma_fence();
    if constexpr (kWhich == Stored::kDs)
      wgmma_stored_q(gradient, scores, rows, 1);
    else
      wgmma_stored_dout(gradient, scores, rows, 1);
    wgmma_commit();
    return {streamed, panels};
  }

  static __device__ __forceinline__ void give_back(const Step& step) {
    attune::give_back(step.panels);
    attune::give_back(step.streamed);
  }

  const AttentionArgs& args_;
  TileRing<kStreamedRing<kWhich>> streamed_;
  TileRing<kPanelRing<kWhich>> panels_;
  int own_panels_;
};

template <Stored kWhich>
__device__ __forceinline__ void consume_stored(const AttentionArgs& args, const HeadsOfRound& heads,
                                               const KeysDropout& dropout, unsigned shared,
                                               int warpgroup, const TensorMap& map) {
  const unsigned staging =
      shared + kStoredLayout<kWhich>.first + warpgroup * kStoredLayout<kWhich>.first_bytes;
  const bool first_thread = threadIdx.x % kWarpgroupThreads == 0;
  StoredConsumer<kWhich> consumer(args, shared, warpgroup);
#pragma unroll 1
  for (TileNumbers tiles; tiles.number() < args.num_tiles; tiles.advance()) {
    const KeysTile tile = keys_tile(args, tiles.number(), heads);
    const int first_key = tile.first_key + warpgroup * kWarpgroupRows;
    float gradient[kStoredColumns<kWhich> / 2];
    consumer.run(tile, first_key, gradient);
    dropout.scale_kept(gradient);
    if (first_thread) tma_store_wait_read();  // the store of the previous tile
    store_gradient<kDtypeKv, StoredKeyOrder>(
        map, staging, warpgroup, {0, first_key, tile.head, tile.batch},
        kWhich == Stored::kDs ? args.softmax_scale : 1.f, gradient);
  }
  if (first_thread) tma_store_wait();
}

template <Stored kWhich>
__device__ __forceinline__ void run_stored(const AttentionArgs& args, const HeadsOfRound& heads,
                                           const KeysDropout& dropout,
                                           const TensorMap& map_streamed,
                                           const TensorMap& map_gradient) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  init_barriers(shared, kStoredLayout<kWhich>);
  wait_for_prior_grid();
  let_next_grid_start();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads, 0) - 1;
  if (warpgroup < 0) {
    if (threadIdx.x == 0)
      stream_rows<kWhich>(args, heads, shared, map_streamed);
    else if (threadIdx.x == 32)
      stream_stored<kWhich>(args, heads, shared);
  } else {
    consume_stored<kWhich>(args, heads, dropout, shared, warpgroup, map_gradient);
  }
}

}  // namespace attune
