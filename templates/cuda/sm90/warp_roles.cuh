// SPDX-License-Identifier: Apache-2.0
// The body of a warp-specialised sm_90 kernel: warpgroup 0 produces, the other warpgroups consume
// tile after tile and write O. Each kernel family has its own `Consumer` (wgmma_consumer.cuh,
// fp8_consumer.cuh).
#pragma once

#include "cuda/parts/kernel_parts.cuh"
#include "cuda/ptx/setmaxnreg.cuh"
#include "cuda/sm90/consumer_stages.cuh"
#include "cuda/sm90/epilogue_rows.cuh"
#include "cuda/sm90/epilogue_tma.cuh"  // where kOStaging == 1, else epilogue_words.cuh
#include "cuda/sm90/kv_split.cuh"      // where kKvSplits > 1, else none/
#include "cuda/sm90/tma_producer.cuh"
#include "cuda/sm90/wgmma_products.cuh"

namespace attune {

template <class Consumer>
__device__ __forceinline__ void produce(const KernelParts& args, unsigned shared,
                                        const TensorMap& q, const TensorMap& k,
                                        const TensorMap& v) {
  if constexpr (kRegisters.moved) register_decrease<kRegisters.producer>();
  if (threadIdx.x == 0) {
    TmaProducer(shared, q, k, v).run(args);
  } else if (kTransposeInside && threadIdx.x >= 32) {
    Consumer::prepare_values(shared);
  }
}

template <int kCount>
__device__ __forceinline__ void write_tile(const AttentionArgs& args, const TensorMap& map_o,
                                           unsigned shared, int warpgroup, const PrefillTile& tile,
                                           ThreadRows place, float (&o)[kCount],
                                           const RowEnds& ends) {
  normalise(o, ends);
  if constexpr (kOStaging) {
    store_output_tma(map_o, tile, shared, warpgroup, threadIdx.x % kWarpgroupThreads, o);
  } else {
    store_output_words(args, tile, place, o);
  }
}

template <class Consumer>
__device__ __forceinline__ void consume(const KernelParts& args, unsigned shared, int warpgroup,
                                        const TensorMap& map_o) {
  if constexpr (kRegisters.moved) register_increase<kRegisters.consumer>();
  Consumer consumer(args, shared, warpgroup);
  TileStream tiles(args, shared);
  PrefillTile tile = tiles.first();
  while (!tiles.done()) {
    Output o;
    RowStats rows;
    consumer.attend(tile, tiles.parity(), o, &rows);
    // While the last P V runs, the thread computes everything except O that the tile's end needs,
    // and gets the next tile.
    const int thread = reread_thread_index() % kWarpgroupThreads;
    const ThreadRows place = thread_rows(tile, warpgroup, thread);
    rows.sum[0] = quad_sum(rows.sum[0]);
    rows.sum[1] = quad_sum(rows.sum[1]);
    RowEnds ends = consumer.ends(rows);
    scale_kept(args, &ends);
    join_sinks(args.scores, place, &ends);
    const PrefillTile next = tiles.advance();
    if constexpr (kKvSplits == 1) store_lse(args, tile, place, ends);
    if constexpr (kOStaging) await_staging(warpgroup, thread);
    consumer.finish(o);
    if constexpr (kKvSplits == 1) {
      write_tile(args, map_o, shared, warpgroup, tile, place, o, ends);
    } else {
      join_tile(args, shared, warpgroup, tile, place, o, rows, consumer);
    }
    tile = next;
  }
  if (kOStaging && threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
}

// Clears the rows of Q's tile that no head fills, so that idle rows never raise a maximum. The
// caller synchronises the block afterwards.
__device__ __forceinline__ void clear_idle_rows(unsigned shared) {
  if constexpr (kHasIdleRows) {
    constexpr int kIdleBytes = (kWarpgroupRows - kHeldRows) * kLayout.row_qk;
    constexpr int kPanels = kWarpgroups * kLayout.panels_qk;
    for (int at = 16 * threadIdx.x; at < kPanels * kIdleBytes; at += 16 * kThreads)
      store_shared_16(shared + kLayout.q + at / kIdleBytes * kWarpgroupRows * kLayout.row_qk +
                          kHeldRows * kLayout.row_qk + at % kIdleBytes,
                      {{0u, 0u, 0u, 0u}});
    fence_proxy_async();
  }
}

template <class Consumer>
__device__ __forceinline__ void run_roles(const KernelParts& args, unsigned char* shared_bytes,
                                          const TensorMap& map_q, const TensorMap& map_k,
                                          const TensorMap& map_v, const TensorMap& map_o) {
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle pattern repeats every 1024 bytes
    init_barriers(shared);
    init_diagonal_barriers(shared);
    prefetch_tensor_map(map_q);
    prefetch_tensor_map(map_k);
    prefetch_tensor_map(map_v);
  }
  clear_idle_rows(shared);
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads,
                                    0);  // the same in all lanes, so kept in a uniform register
  if (warpgroup == 0) {
    produce<Consumer>(args, shared, map_q, map_k, map_v);
    if (threadIdx.x >= 32) make_diagonals(args, shared);
  } else {
    consume<Consumer>(args, shared, warpgroup - 1, map_o);
  }
}

}  // namespace attune
