// SPDX-License-Identifier: Apache-2.0
// decode_sm80: attention of a few rows of q over long caches (op attention_kvcache), for sm_80 and
// later; sm_90 reads the cache by bulk copies or TMA. A fixed number of teams of warps shares all
// work (shared/layouts/decode_partition.h). Each team finds its share from the lengths in device
// memory. An item is up to 16 rows that share a head of K: tokens times heads of a group, at any
// ratio. The kernel waits only for memory, so each warp reads its own tiles without synchronising
// with others. The warps of a team synchronise once per piece.
//
// q, k, v, o: bf16 or fp16, head dims in steps of 16, up to 576 for q and k and 512 for v and o. k
// and v: pages of any size, or slots (shared/cache_args.h); also int8, and from sm_89 on e4m3 or
// e5m2 with a factor for each head (decode_sm80/head_factors.cuh) or each key
// (decode_sm80/decode_factors.cuh); also int4 or e2m1 with factors of groups of columns
// (decode_sm80/group_factors.cuh). With lists of keys each row sees the keys that its list names
// (decode_sm80/listed_keys.cuh). Four warps share the columns of a head above 256
// (decode_sm80/decode_columns.cuh, decode_sm80/wide_scores.cuh).
//
// README.md explains how it works and why. Shared memory: decode_slots.cuh.
// Workspace: shared/layouts/decode_layout.h.
#include "cuda/decode_sm80/decode_sm80_knobs.cuh"

#include "cuda/decode_sm80/decode_join.cuh"
#include "cuda/decode_sm80/decode_loads.cuh"  // unless kKeyLists, else listed_loads.cuh
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/none/tensor_maps.cuh"
#include "cuda/ptx/dependent_launch.cuh"

namespace attune {

// A warp's part of a piece: every kTeam-th tile.
class DecodeConsumer {
 public:
  __device__ __forceinline__ explicit DecodeConsumer(DecodeLoads& loads) : loads_(loads) {}

  __device__ __forceinline__ void run(const KernelParts& parts, const DecodePiece& piece,
                                      ColumnScores& columns, DecodeProducts& products) {
    for (int tile = piece.begin + team_warp(); tile < piece.end; tile += kTeam) {
      wait();
      products.take_factors(loads_.factors(slot_));
      products.take_groups(loads_.groups(slot_));
      products.take_keys(loads_.keys(slot_));
      products.add(parts, columns, loads_.slot(slot_), tile);
      __syncwarp();  // all lanes have read the slot
      give_back();
    }
  }
  // With kTogether: steps through the tiles of a piece without computing, for a team whose head
  // does not exist. Other teams of the ring use the same keys.
  __device__ __forceinline__ void pass(const DecodePiece& piece) {
    for (int tile = piece.begin + team_warp(); tile < piece.end; tile += kTeam) {
      wait();
      give_back();
    }
  }

 private:
  // Starts to load the next tile into this slot. If warps share the ring, it uses the slot of the
  // previous tile instead, which the other warps have most probably read too.
  __device__ __forceinline__ void give_back() {
    if constexpr (kTogether) {
      mbarrier_arrive_if(threadIdx.x % 32 == 0, loads_.empty_barrier(slot_));
      const bool wraps = slot_ == 0;
      loads_.issue(wraps ? kKvSlots - 1 : slot_ - 1, wraps ? phase_ : phase_ ^ 1u);
    } else {
      loads_.issue(slot_);
    }
    next();
  }
  __device__ __forceinline__ void wait() const {
    if constexpr (kLoads == 0) {
      cp_async_wait<kKvSlots - 1>();
      __syncwarp();
    } else {
      mbarrier_wait(loads_.barrier(slot_), phase_, "keys of the cache");
    }
  }
  __device__ __forceinline__ void next() {
    if (++slot_ < kKvSlots) return;
    slot_ = 0;
    phase_ ^= 1u;
  }

  DecodeLoads& loads_;
  int slot_ = 0;
  unsigned phase_ = 0;
};

__device__ __forceinline__ void init_barriers(unsigned shared) {
  const unsigned lane = threadIdx.x % 32;
  const bool is_first = !kTogether || head_in_gang() == 0;  // first of the ring's warps
  if (is_first && lane < kBarriersOfRing)
    mbarrier_init(shared + kShared.barriers_at + (ring_index() * kBarriersOfRing + lane) * 8,
                  kFactorArrivals + kGroupArrivals + (kTogether ? kHeads : 1));
  fence_mbarrier_init();
  fence_proxy_async();
  if constexpr (kTogether)
    __syncthreads();
  else
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(32 * kWarps, kBlocksPerSm)
    attune_kernel(                                 // in the order of the argument parts
        const __grid_constant__ ScoreArgs scores,  // where kScoreArgs
        const __grid_constant__ AttentionArgs args,
        // Caches of 8 and 4 bits have factors, and kAccuracy.
        const __grid_constant__ ScaleArgs scales,  // where kAccuracy
        const __grid_constant__ CacheArgs cache,
        const __grid_constant__ KeyListArgs lists,       // where kKeyLists
        const __grid_constant__ GroupFactorArgs groups,  // where kGroupFactors
        const __grid_constant__ TensorMap k_map,         // where kTensorBoxes
        const __grid_constant__ TensorMap v_map          // where kTensorBoxes
    ) {
  extern __shared__ __align__(1024) char shared[];
  ScoresOfRequest<ScoreArgs> of_request = scores;
  const KernelParts parts{args, scales, of_request, dropout, map, cache};
  DecodeMaps maps;
  if constexpr (kSwizzled) maps = maps_of(k_map, v_map);
  if constexpr (kLoads != 0) {
    init_barriers(shared_address(shared));
    prefetch_map(k_map);
    prefetch_map(v_map);
  }
  if constexpr (kStartsEarly && kKeyLists) {
    wait_for_prior_grid();
    let_next_grid_start();
  }
  DecodeRange range;
  LineRequests requests = line_requests(parts, lists);
  DecodeWalk walk;
  DecodeLoads loads(parts, lists, groups, maps, requests, range, shared_address(shared));
  // With dependent launch, look up the work and prefetch the first tiles into L2 early. Keep the
  // result only if the lists are unchanged once the previous grid has ended.
#pragma unroll 1
  for (bool is_early = kStartsEarly && !kKeyLists;; is_early = false) {
    walk = find_range(parts, requests, &range);
    loads.start(walk);
    if (!is_early) break;
    if constexpr (kStartsEarly) {
      loads.prefetch();
      wait_for_prior_grid();
      let_next_grid_start();
    }
    if (requests.still_are()) {
      loads.look_again();
      break;
    }
    requests.load<true>(0);
  }
#pragma unroll 1
  for (int slot = 0; slot < kTilesAhead; ++slot) loads.issue(slot);
  DecodeConsumer consumer(loads);
  ColumnScores columns(shared_address(shared));
  DecodeJoin join(parts, shared);
  DecodePiece piece;
  while (walk.next(
      range, line_count(requests, args), [&](int number) { return tiles_of(requests[number]); },
      &piece)) {
    const DecodeItem item(parts, requests, piece);
    if (!item.has_tiles()) continue;
    if constexpr (kTogether) {
      if (item.rows <= 0) {
        consumer.pass(piece);
        continue;
      }
    }
    take_lengths(item.whole(item.request), &of_request);
    DecodeProducts products(parts, item, shared_address(shared));
    consumer.run(parts, piece, columns, products);
    join.finish(item, piece, products);
  }
}

}  // namespace attune
