// SPDX-License-Identifier: Apache-2.0
// The end of a tile that several blocks of cache_sm90 share: each warpgroup leaves its rows in the workspace and takes a ticket, and the
// last one joins all parts in their order. So results do not depend on who is last, and nobody waits. shared/cache_layout.h draws the
// workspace.
#pragma once

#include "cuda/attention/cache_stream.cuh"
#include "cuda/attention/epilogue_rows.cuh"
#include "cuda/attention/sinks.cuh"  // where kSinks
#include "cuda/ptx/convert.cuh"
#include "cuda/ptx/ticket.cuh"
#include "shared/cache_layout.h"

namespace attune {

// Of a tile, each with a part of its own: of rows, or of columns of the same rows.
constexpr int kJoiners = kWarpgroups;  // unless kMla
#ifdef ATTUNE_MLA                      // where kMla
constexpr int kJoiners = kMlaHalves;   // where kMla
#endif                                 // where kMla

class CacheJoin {
 public:
  __device__ __forceinline__ CacheJoin(const KernelParts& parts, int warpgroup)
      : parts_(parts), warpgroup_(warpgroup) {}

  // By all threads of the warpgroup. `rows`: its sums are those of whole rows. `args`: of the request.
  template <int kCount>
  __device__ __forceinline__ void finish(const AttentionArgs& args, const CacheTile& tile,
                                         ThreadRows place, const float (&o)[kCount],
                                         const RowStats& rows) const {
    leave(args, tile, place, o, rows);
    if (take_ticket(tile)) join(args, tile);
  }

 private:
  __device__ __forceinline__ int tickets() const {
    return cache_tickets(parts_.base.batch, parts_.base.seqlen_q, parts_.base.num_heads_q,
                         kTileRows, kTileHeads, kJoiners);
  }
  __device__ __forceinline__ float* part(int slot) const {
    char* const first = static_cast<char*>(parts_.base.workspace) + decode_ticket_bytes(tickets());
    return reinterpret_cast<float*>(first) +
           (static_cast<long long>(slot) * kJoiners + warpgroup_) *
               decode_part_floats(kWarpgroupRows, kHeadDimV);
  }
  // Slots of parts after the first stand two apart; that of the first is its worker's second.
  __device__ __forceinline__ float* part_of(const CacheTile& tile, int number) const {
    const int of_first = tile.slot - (tile.part == 0 ? 1 : 0) - 2 * tile.part;
    return part(of_first + 2 * number + (number == 0 ? 1 : 0));
  }
  static __device__ __forceinline__ float2* stats_in(float* part) {
    return reinterpret_cast<float2*>(part + kWarpgroupRows * kHeadDimV);
  }

  template <int kCount>
  __device__ __forceinline__ void leave(const AttentionArgs& args, const CacheTile& tile,
                                        ThreadRows place, const float (&o)[kCount],
                                        const RowStats& rows) const {
    float* const to = part(tile.slot);
    const int lane = threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (!has_row(args, tile.place, place, half)) continue;
      const int row = accumulator_row(threadIdx.x % kWarpgroupThreads) + 8 * half;
#pragma unroll
      for (int i = 2 * half; i < kCount; i += 4)
        __stcg(reinterpret_cast<float2*>(to + row * kHeadDimV + i / 4 * 8 + lane * 2),
               make_float2(o[i], o[i + 1]));
      if (lane == 0) __stcg(stats_in(to) + row, make_float2(rows.max[half], rows.sum[half]));
    }
  }

  __device__ __forceinline__ bool take_ticket(const CacheTile& tile) const {
    const int barrier = kBarrierWarpgroup + warpgroup_;
    named_barrier_sync(barrier, kWarpgroupThreads);
    bool last = false;
    if (threadIdx.x % kWarpgroupThreads == 0) {
      const int groups = parts_.base.num_heads_q / kTileHeads;
      const int tiles = (parts_.base.seqlen_q + kTileRows - 1) / kTileRows;
      const int item = (tile.place.batch * tiles + tile.place.first_row / kTileRows) * groups +
                       tile.place.head / kTileHeads;
      auto* const ticket =
          static_cast<unsigned*>(parts_.base.workspace) + item * kJoiners + warpgroup_;
      last = takes_last_ticket(ticket, tile.parts);
    }
    return named_barrier_any(barrier, kWarpgroupThreads, last);
  }

  // Four columns of a row, of all parts so far.
  struct Sum {
    float4 values;
    float2 stats;  // as RowStats

    __device__ __forceinline__ void raise(float maximum) {
      const float factor = exp2_approx(stats.x - maximum);
      stats = make_float2(maximum, stats.y * factor);
      values =
          make_float4(values.x * factor, values.y * factor, values.z * factor, values.w * factor);
    }
    __device__ __forceinline__ void add(const float4& other, float2 of_other) {
      const float weight = exp2_approx(of_other.x - stats.x);
      stats.y += weight * of_other.y;
      values.x += weight * other.x;
      values.y += weight * other.y;
      values.z += weight * other.z;
      values.w += weight * other.w;
    }
  };

  // Each thread has four columns of some rows at a time, so that many loads are under way.
  __device__ __forceinline__ void join(const AttentionArgs& args, const CacheTile& tile) const {
    constexpr int kOfRow = kHeadDimV / 4, kRows = 4;
    static_assert(kHeadDimV % 4 == 0, "four columns a thread");
    int first = tile.place.first_row;
    first += warpgroup_ * kHeadRows;                         // unless kMla
    const int rows = min(kHeadRows, args.seqlen_q - first);  // of each head
    const int wanted = rows * kTileHeads * kOfRow;
#pragma unroll 1
    for (int at = threadIdx.x % kWarpgroupThreads; at < wanted; at += kRows * kWarpgroupThreads) {
      int place[kRows];  // in a part
      Sum sums[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const int here = min(at + i * kWarpgroupThreads, wanted - 1), number = here / kOfRow;
        place[i] = (number / rows * kHeadRows + number % rows) * kHeadDimV + here % kOfRow * 4;
        sums[i] = {make_float4(0.f, 0.f, 0.f, 0.f), make_float2(kLowestMax, 0.f)};
      }
      add_parts(tile, place, sums);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (at + i * kWarpgroupThreads >= wanted) continue;
        const int row = place[i] / kHeadDimV;
        store(args, tile, first + row % kHeadRows, tile.place.head + row / kHeadRows,
              place[i] % kHeadDimV, sums[i]);
      }
    }
  }

  template <int kRows>
  __device__ __forceinline__ void add_parts(const CacheTile& tile, const int (&place)[kRows],
                                            Sum (&sums)[kRows]) const {
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int first = 0; first < tile.parts; first += kAtOnce) {
      float4 values[kAtOnce][kRows];
      float2 stats[kAtOnce][kRows];
#pragma unroll
      for (int part = 0; part < kAtOnce; ++part) {
        float* const from = part_of(tile, min(first + part, tile.parts - 1));
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          values[part][i] = __ldcg(reinterpret_cast<const float4*>(from + place[i]));
          stats[part][i] = __ldcg(stats_in(from) + place[i] / kHeadDimV);
        }
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        float maximum = sums[i].stats.x;
#pragma unroll
        for (int part = 0; part < kAtOnce; ++part) maximum = fmaxf(maximum, stats[part][i].x);
        sums[i].raise(maximum);
#pragma unroll
        for (int part = 0; part < kAtOnce; ++part)
          if (first + part < tile.parts) sums[i].add(values[part][i], stats[part][i]);
      }
    }
  }

  __device__ __forceinline__ void store(const AttentionArgs& args, const CacheTile& tile, int row,
                                        int head, int column, const Sum& sum) const {
    const float4& values = sum.values;
    float inverse = sum.stats.y == 0.f ? 0.f : __fdiv_rn(1.f, sum.stats.y);
    float lse = (sum.stats.x + log2_approx(sum.stats.y)) * kLn2;
    join_sink(parts_.scores, head, inverse, lse);  // where kSinks
    const long long at = tile.place.batch * args.o.batch_stride + row * args.o.row_stride +
                         head * args.o.head_stride + column;
    auto* const o = reinterpret_cast<uint2*>(static_cast<unsigned short*>(args.o.data) + at);
    const bool is_none = inverse == 0.f;  // exactly 0 also where V is not finite
    const unsigned low = pack<kDtypeO>(values.x * inverse, values.y * inverse);
    const unsigned high = pack<kDtypeO>(values.z * inverse, values.w * inverse);
    *o = is_none ? make_uint2(0u, 0u) : make_uint2(low, high);
    if (column == 0 && args.lse != nullptr)
      args.lse[tile.place.batch * args.lse_batch_stride + head * args.lse_head_stride + row] = lse;
  }

  const KernelParts& parts_;
  int warpgroup_;
};

}  // namespace attune
