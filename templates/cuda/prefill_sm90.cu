// SPDX-License-Identifier: Apache-2.0
// Attention forward for sm_90a: O = softmax(scale Q K^T + mask) V and LSE, for Q, K, V in bf16 or
// fp16 with fp32 accumulation. One producer warp feeds 1 to 4 consumer warpgroups of 64 query rows
// each: TMA into swizzled shared memory, wgmma, softmax in registers. Layout of shared memory and
// registers: shared/prefill_sm90_layout.h. Roles: attention/tma_producer.cuh,
// attention/wgmma_consumer.cuh. Knobs, rooflines, barrier protocol and measurements:
// prefill_sm90.md.
#include "shared/attention_args.h"
#include "shared/attention_enums.h"

#include "cuda/prefill_sm90_knobs.cuh"

#include "cuda/attention/sm90_layout.cuh"

#include "cuda/attention/epilogue_tma.cuh"
#include "cuda/attention/kv_split.cuh"
#include "cuda/attention/tma_producer.cuh"
#include "cuda/attention/wgmma_consumer.cuh"
#include "cuda/ptx/setmaxnreg.cuh"

namespace attune {

__device__ __forceinline__ void produce(const AttentionArgs& args, unsigned shared,
                                        const TensorMap& q, const TensorMap& k,
                                        const TensorMap& v) {
  if constexpr (kRegisters.moved) register_decrease<kRegisters.producer>();
  if (threadIdx.x == 0) TmaProducer(shared, q, k, v).run(args);
}

__device__ __forceinline__ void write_tile(const AttentionArgs& args, const TensorMap& map_o,
                                           unsigned shared, int warpgroup, const PrefillTile& tile,
                                           int row, Output& o, const RowEnds& ends) {
  normalise(o, ends);
  if constexpr (kOStaging) {
    store_output_tma(map_o, tile, shared, warpgroup, threadIdx.x % kWarpgroupThreads, o);
  } else {
    store_output_words(args, tile, row, o);
  }
  store_lse(args, tile, row, ends);
}

__device__ __forceinline__ void consume(const AttentionArgs& args, unsigned shared, int warpgroup,
                                        const TensorMap& map_o) {
  if constexpr (kRegisters.moved) register_increase<kRegisters.consumer>();
  WgmmaConsumer consumer(args, shared, warpgroup);
  TileStream tiles(args, shared);
  PrefillTile tile = prefill_tile(args, tiles.tile());
  while (!tiles.done()) {
    Output o;
    RowStats rows;
    consumer.attend(tile, tiles.parity(), o, &rows);
    // While the last P V runs: the ends of the rows, and what the next tile is.
    const int thread = thread_index_anew() % kWarpgroupThreads;
    const int row = tile.first_row + warpgroup * kWarpgroupRows + accumulator_row(thread);
    rows.sum[0] = quad_sum(rows.sum[0]);
    rows.sum[1] = quad_sum(rows.sum[1]);
    RowEnds ends = end_rows(args, row, rows);
    tiles.advance();
    const PrefillTile next = prefill_tile(args, tiles.tile());
    consumer.finish(o);
    bool whole = true;
    if constexpr (kKvSplits > 1) {
      whole = combine_splits(args, tile, warpgroup, thread, o, &rows);
      ends = end_rows(args, row, rows);
    }
    if (whole) write_tile(args, map_o, shared, warpgroup, tile, row, o, ends);
    tile = next;
  }
  if (kOStaging && threadIdx.x % kWarpgroupThreads == 0) tma_store_wait();
}

extern "C" __global__ void __launch_bounds__(kThreads, kCtasPerSm)
    attune_kernel(const __grid_constant__ AttentionArgs args,
                  const __grid_constant__ TensorMap map_q, const __grid_constant__ TensorMap map_k,
                  const __grid_constant__ TensorMap map_v,
                  const __grid_constant__ TensorMap map_o) {
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  const unsigned shared = static_cast<unsigned>(__cvta_generic_to_shared(shared_bytes));
  if (threadIdx.x == 0) {
    if (shared % 1024 != 0) __trap();  // the swizzle pattern repeats every 1024 bytes
    init_barriers(shared);
    prefetch_tensor_map(map_q);
    prefetch_tensor_map(map_k);
    prefetch_tensor_map(map_v);
  }
  __syncthreads();
  const int warpgroup = __shfl_sync(~0u, threadIdx.x / kWarpgroupThreads,
                                    0);  // the same in all lanes, so kept in a uniform register
  if (warpgroup == 0) {
    produce(args, shared, map_q, map_k, map_v);
  } else {
    consume(args, shared, warpgroup - 1, map_o);
  }
}

}  // namespace attune
