// SPDX-License-Identifier: Apache-2.0
// The end of a tile that several blocks of cache_sm90 share: each warpgroup leaves its rows in the workspace and takes a ticket, and the
// last one joins all parts in their order. So results do not depend on who is last, and nobody waits. shared/cache_layout.h draws the
// workspace.
#pragma once

#include "cuda/attention/cache_stream.cuh"
#include "cuda/attention/epilogue_rows.cuh"
#include "cuda/attention/sinks.cuh"  // where kSinks
#include "cuda/ptx/convert.cuh"
#include "shared/cache_layout.h"

namespace attune {

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
                         kTileRows, kTileHeads, kWarpgroups);
  }
  __device__ __forceinline__ float* part(int slot) const {
    char* const first = static_cast<char*>(parts_.base.workspace) + decode_ticket_bytes(tickets());
    return reinterpret_cast<float*>(first) +
           (static_cast<long long>(slot) * kWarpgroups + warpgroup_) *
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
    __threadfence();
    const int barrier = kBarrierWarpgroup + warpgroup_;
    named_barrier_sync(barrier, kWarpgroupThreads);
    bool last = false;
    if (threadIdx.x % kWarpgroupThreads == 0) {
      const int groups = parts_.base.num_heads_q / kTileHeads;
      const int tiles = (parts_.base.seqlen_q + kTileRows - 1) / kTileRows;
      const int item = (tile.place.batch * tiles + tile.place.first_row / kTileRows) * groups +
                       tile.place.head / kTileHeads;
      auto* const ticket =
          static_cast<unsigned*>(parts_.base.workspace) + item * kWarpgroups + warpgroup_;
      const auto behind = static_cast<unsigned>(tile.parts - 1);
      last = atomicInc(ticket, behind) == behind;  // back to 0 behind the last
    }
    last = named_barrier_any(barrier, kWarpgroupThreads, last);
    if (last) __threadfence();
    return last;
  }

  // Each thread has four columns of a row.
  __device__ __forceinline__ void join(const AttentionArgs& args, const CacheTile& tile) const {
    constexpr int kOfRow = kHeadDimV / 4;
    static_assert(kHeadDimV % 4 == 0, "four columns a thread");
    const int first = tile.place.first_row + warpgroup_ * kHeadRows;
    const int rows = min(kHeadRows, args.seqlen_q - first);  // of each head
#pragma unroll 1
    for (int at = threadIdx.x % kWarpgroupThreads; at < rows * kTileHeads * kOfRow;
         at += kWarpgroupThreads) {
      const int number = at / kOfRow, column = at % kOfRow * 4;
      const int head = number / rows, row = number % rows;
      float4 values;
      float2 stats;
      add_parts(tile, head * kHeadRows + row, column, values, stats);
      store(args, tile, first + row, tile.place.head + head, column, values, stats);
    }
  }

  // Loads of several parts go out before the first is needed.
  __device__ __forceinline__ void add_parts(const CacheTile& tile, int row, int column,
                                            float4& sum, float2& of_sum) const {
    constexpr int kAtOnce = 4;
    sum = make_float4(0.f, 0.f, 0.f, 0.f);
    of_sum = make_float2(kLowestMax, 0.f);
#pragma unroll 1
    for (int first = 0; first < tile.parts; first += kAtOnce) {
      float4 values[kAtOnce];
      float2 stats[kAtOnce];
      float maximum = of_sum.x;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        float* const from = part_of(tile, min(first + i, tile.parts - 1));
        values[i] = __ldcg(reinterpret_cast<const float4*>(from + row * kHeadDimV + column));
        stats[i] = __ldcg(stats_in(from) + row);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) maximum = fmaxf(maximum, stats[i].x);
      const float factor = exp2_approx(of_sum.x - maximum);
      sum = make_float4(sum.x * factor, sum.y * factor, sum.z * factor, sum.w * factor);
      of_sum = make_float2(maximum, of_sum.y * factor);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= tile.parts) continue;
        const float weight = exp2_approx(stats[i].x - maximum);
        of_sum.y += weight * stats[i].y;
        sum.x += weight * values[i].x;
        sum.y += weight * values[i].y;
        sum.z += weight * values[i].z;
        sum.w += weight * values[i].w;
      }
    }
  }

  __device__ __forceinline__ void store(const AttentionArgs& args, const CacheTile& tile, int row,
                                        int head, int column, const float4& values,
                                        float2 stats) const {
    float inverse = stats.y == 0.f ? 0.f : __fdiv_rn(1.f, stats.y);
    float lse = (stats.x + log2_approx(stats.y)) * kLn2;
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
