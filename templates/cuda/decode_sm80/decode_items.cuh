// SPDX-License-Identifier: Apache-2.0
// The work of a team of warps of a decode kernel: its range of the line of items
// (shared/layouts/decode_partition.h), and the rows of an item. Every warp finds the range by
// itself from the lengths of all requests.
#pragma once

#include "cuda/decode_sm80/decode_slots.cuh"
#include "cuda/decode_sm80/listed_keys.cuh"  // where kKeyLists, else none/
#include "cuda/parts/cache_requests.cuh"
#include "cuda/parts/kernel_parts.cuh"
#include "cuda/parts/listed_requests.cuh"  // where kKeyLists, else none/
#include "cuda/ptx/named_barrier.cuh"
#include "shared/layouts/decode_layout.h"

namespace attune {

// Teams of warps work independently. The warps of one team share the tiles of each piece, and their
// results are joined after it.
constexpr int kTeams = kWarps / kTeam, kTeamThreads = 32 * kTeam;
static_assert(kWarps % kTeam == 0 && kTeams % (kHeads * kColumnWarps) == 0,
              "teams fill a block, and gangs");
// The teams of a gang have the same keys of a request, each for another head, or for other columns
// of a wide head. So they read rows of several heads, which are adjacent in memory, at the same
// time.
constexpr int kGangs = kTeams / (kHeads * kColumnWarps);
static_assert(kWaits == 0 || kGangs == 1, "blocks wait for those with lower numbers");

__device__ __forceinline__ int team_index() { return static_cast<int>(threadIdx.x) / kTeamThreads; }
__device__ __forceinline__ int team_thread() {
  return static_cast<int>(threadIdx.x) % kTeamThreads;
}
__device__ __forceinline__ int team_warp() { return team_thread() / 32; }
__device__ __forceinline__ int head_in_gang() { return team_index() / kColumnWarps % kHeads; }
// Returns the index of the warp's head in a row of a slot.
__device__ __forceinline__ int head_in_slot() { return kTogether ? head_in_gang() : 0; }
// Returns the number of the warp's share of a head's columns.
__device__ __forceinline__ int column_warp() { return team_index() % kColumnWarps; }
__device__ __forceinline__ int head_groups(const AttentionArgs& args) {
  return (args.num_heads_kv + kHeads - 1) / kHeads;
}
__device__ __forceinline__ void sync_team() {
  if constexpr (kTeam == 1)
    __syncwarp();
  else
    named_barrier_sync(1 + team_index(), kTeamThreads);
}

// Returns the tiles of a request.
__device__ __forceinline__ DecodeTiles tiles_of(const DecodeRequest& request) {
  return decode_tiles(request.length, request.rows, kWindowLeft, kKeys);
}

// Returns how many positions of the line this lane's request has.
__device__ __forceinline__ int own_cost(const LineRequests& requests, const DecodeRange& range) {
  return requests.has_own() ? range.cost(tiles_of(requests.own())) : 0;
}

constexpr int kEvenSlack =
    decode_even_slack(kTeams * kBlocksPerSm * (kTogether ? kSlotBytes / kHeads : kSlotBytes));

// Finds the range of this gang, and returns its first place. All lanes of a warp call it.
__device__ __forceinline__ DecodeWalk find_range(const KernelParts& parts, LineRequests& requests,
                                                 DecodeRange* range) {
  const int lane = threadIdx.x % 32, batch = line_count(requests, parts.base);
  range->tile_overhead = kTileOverhead;
  range->items =
      head_groups(parts.base) * decode_row_tiles(line_rows(parts.base), kGqaRatio, kRows);
  range->even = 0;
  range->cut_each(kKeys);
  int total = 0, most = 0;
  for (int first = 0; first < batch; first += 32) {
    if (first > 0) requests.load<true>(first);
    const int count = requests.has_own() ? tiles_of(requests.own()).count : 0;
    total += __reduce_add_sync(~0u, own_cost(requests, *range));
    most = max(most, __reduce_max_sync(~0u, count));
  }
  const int blocks = static_cast<int>(gridDim.x);
  int block = static_cast<int>(blockIdx.x);
  if constexpr (kWaits == 1) block = blocks - 1 - block;
  range->take_alike(total, batch * range->items, most, blocks * kGangs, kMinTiles, kEvenSlack,
                    team_index() / (kHeads * kColumnWarps) * blocks + block);
  int start = 0;
  for (int first = 0; first < batch; first += 32) {
    if (batch > 32) requests.load<true>(first);
    const int cost = own_cost(requests, *range);
    const int before = start + sum_of_lanes_before(cost, lane);
    const unsigned found = __ballot_sync(~0u, range->begin < before + cost);
    if (found != 0) {
      const int owner = __ffs(static_cast<int>(found)) - 1;
      return {first + owner, __shfl_sync(~0u, before, owner), range->begin};
    }
    start = __shfl_sync(~0u, before + cost, 31);
  }
  return {0, 0, range->end};  // no positions are left
}

// How the parts of an item are joined: by a counter (split_join_by_counter.cuh) or by flags
// (split_join_by_flags.cuh).
template <bool kByFlags>
class SplitJoin;

// An item: up to kRows rows of q, token by token, with the heads of each token side by side.
struct DecodeItem : ItemRow {
  DecodeRequest request;
  int number, kv_head, first;  // first: index of its first row among the rows of kv_head
  int ticket;                  // number among all items, times kColumnWarps for wide heads
  int rows_of_gang;            // at most 0 if a packed request has fewer rows than others
  int rows;                    // like rows_of_gang, but 0 if kv_head does not exist

  __device__ __forceinline__ DecodeItem(const KernelParts& parts, LineRequests& requests,
                                        const DecodePiece& piece)
      : ItemRow(requests, piece.request), request(requests[piece.request]), number(piece.request) {
    const int tiles = decode_row_tiles(line_rows(parts.base), kGqaRatio, kRows);
    kv_head = piece.item / tiles * kHeads + head_in_gang();
    first = piece.item % tiles * kRows;
    rows = rows_of_gang = min(kRows, request.rows * kGqaRatio - first);
    if (kHeads > 1 && kv_head >= parts.base.num_heads_kv) rows = 0;
    ticket = (number * parts.base.num_heads_kv + kv_head) * tiles + piece.item % tiles;
    if constexpr (kColumnWarps > 1) ticket = ticket * kColumnWarps + column_warp();
  }
  // True if the warp has tiles of the item. Warps that share a ring all return the same.
  __device__ __forceinline__ bool has_tiles() const {
    return (kTogether ? rows_of_gang : rows) > 0;
  }
  __device__ __forceinline__ int batch() const { return batch_of(number); }
  __device__ __forceinline__ int position(int row) const {
    return position_of(request, token(row));
  }
  __device__ __forceinline__ int token(int row) const { return (first + row) / kGqaRatio; }
  __device__ __forceinline__ int head(int row) const {
    return kv_head * kGqaRatio + (first + row) % kGqaRatio;
  }
  // Returns the offset of a row from the beginning of q or o, in elements.
  __device__ __forceinline__ long long in(const OperandView& view, int row) const {
    const long long batch = kHasBegins ? 0 : this->batch();
    return batch * view.batch_stride + (request.first_row + token(row)) * view.row_stride +
           head(row) * view.head_stride;
  }
  __device__ __forceinline__ long long in_lse(const AttentionArgs& args, int row) const {
    const long long batch = kHasBegins ? 0 : this->batch();
    return batch * args.lse_batch_stride + head(row) * args.lse_head_stride + request.first_row +
           token(row);
  }
};

}  // namespace attune
