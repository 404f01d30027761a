// SPDX-License-Identifier: Apache-2.0
// Joins the parts of a tile that several blocks of cache_sm90 share. Each warpgroup writes its rows
// to the workspace and takes a ticket. The warpgroup with the last ticket joins all parts in their
// order. So no warpgroup waits, and results do not depend on which warpgroup is last. If there are
// many parts, the last warpgroup of each group of parts first joins that group.
// shared/layouts/cache_layout.h defines the groups and the layout of the workspace.
#pragma once

#include "cuda/cache_sm90/cache_stream.cuh"
#include "cuda/decode_sm80/head_factors.cuh"  // where kHeadFactors, else none/
#include "cuda/ptx/block_order.cuh"
#include "cuda/ptx/convert.cuh"
#include "cuda/sm90/epilogue_rows.cuh"
#include "shared/layouts/cache_layout.h"

namespace attune {

// The number of warpgroups that join a tile. Each has its own share: rows, or, with MLA, columns of
// the same rows.
constexpr int kJoiners = kConsumers;

// Stores four values at element `at`, or zeros if `is_none`.
template <Dtype kDtype>
__device__ __forceinline__ void store_four(void* o, long long at, const float4& values,
                                           bool is_none) {
  if constexpr (kDtype == Dtype::kFp32) {
    *reinterpret_cast<float4*>(static_cast<float*>(o) + at) =
        is_none ? make_float4(0.f, 0.f, 0.f, 0.f) : values;
  } else {
    auto* const to = reinterpret_cast<uint2*>(static_cast<unsigned short*>(o) + at);
    const unsigned low = pack<kDtype>(values.x, values.y);
    const unsigned high = pack<kDtype>(values.z, values.w);
    *to = is_none ? make_uint2(0u, 0u) : make_uint2(low, high);
  }
}

class CacheJoin {
 public:
  __device__ __forceinline__ CacheJoin(const KernelParts& parts, int warpgroup)
      : parts_(parts), warpgroup_(warpgroup) {}

  // Writes the part of a tile to the workspace. If the part is the last to arrive, also joins all
  // parts. All threads of the warpgroup call it. `rows` has the sums of whole rows. `args` are the
  // request's arguments.
  template <int kCount>
  __device__ __forceinline__ void finish(const AttentionArgs& args, const CacheTile& tile,
                                         ThreadRows place, const float (&o)[kCount],
                                         const RowStats& rows) const {
    leave(args, tile, place, o, rows);
    join_if_last(args, tile);
  }

  // Joins the parts if this warpgroup's part is the last. The caller has written its part itself: O
  // of all rows, then the maxima and sums of the rows.
  __device__ __forceinline__ void join_if_last(const AttentionArgs& args,
                                               const CacheTile& tile) const {
    const int size = cache_join_group(tile.parts), first = tile.part / size * size;
    if (size == tile.parts) {
      if (is_last(ticket_of(tile), size)) join<true>(args, tile, {0, 1, size, 0});
      return;
    }
    const int count = min(size, tile.parts - first), place = slot_of(tile, first);
    auto* const of_group = tickets() + items() + place * kJoiners + warpgroup_;
    if (!is_last(of_group, count)) return;
    join<false>(args, tile, {first, 1, count, 0});
    const int groups = (tile.parts + size - 1) / size;
    if (is_last(ticket_of(tile), groups)) join<true>(args, tile, {0, size, groups, kQueryRows});
  }
  __device__ __forceinline__ float* part(int slot) const {
    const int all = items() + cache_group_tickets(static_cast<int>(gridDim.x), kJoiners);
    auto* const first = reinterpret_cast<char*>(tickets()) + decode_ticket_bytes(all);
    return reinterpret_cast<float*>(first) +
           (static_cast<long long>(slot) * kJoiners + warpgroup_) *
               cache_part_floats(kQueryRows, kHeadDimV);
  }
  static __device__ __forceinline__ float2* stats_in(float* part) {
    return reinterpret_cast<float2*>(part + kQueryRows * kHeadDimV);
  }

 private:
  // Parts `first`, `first + step`, and so on. `stats`: offset of their statistics from stats_in(),
  // in rows.
  struct Parts {
    int first, step, count, stats;
  };

  __device__ __forceinline__ unsigned* tickets() const {
    return static_cast<unsigned*>(parts_.base.workspace);
  }
  __device__ __forceinline__ int items() const {
    return cache_tickets(parts_.base.batch, parts_.base.seqlen_q, parts_.base.num_heads_q,
                         kTileRows, kTileHeads, kJoiners);
  }
  // Returns the slot of part `number`. Parts after the first have slots that are two apart. The
  // first part has the second slot of its worker.
  static __device__ __forceinline__ int slot_of(const CacheTile& tile, int number) {
    const int of_first = tile.slot - (tile.part == 0 ? 1 : 0) - 2 * tile.part;
    return of_first + 2 * number + (number == 0 ? 1 : 0);
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

  __device__ __forceinline__ unsigned* ticket_of(const CacheTile& tile) const {
    const int groups = parts_.base.num_heads_q / kTileHeads;
    const int tiles = (parts_.base.seqlen_q + kTileRows - 1) / kTileRows;
    const int item = (tile.place.batch * tiles + tile.place.first_row / kTileRows) * groups +
                     tile.place.head / kTileHeads;
    return tickets() + item * kJoiners + warpgroup_;
  }
  __device__ __forceinline__ bool is_last(unsigned* ticket, int count) const {
    const int barrier = kBarrierWarpgroup + warpgroup_;
    named_barrier_sync(barrier, kWarpgroupThreads);
    bool last = false;
    if (threadIdx.x % kWarpgroupThreads == 0) last = takes_last_ticket(ticket, count);
    return named_barrier_any(barrier, kWarpgroupThreads, last);
  }

  // Four columns of a row, summed over the parts so far.
  struct Sum {
    float4 values;
    float2 stats;  // maximum and sum, as in RowStats

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

  // Joins the parts into O and LSE, or, without kToOutput, into the first of these parts. Each
  // thread has four columns of several rows at a time, so that many loads are in flight.
  template <bool kToOutput>
  __device__ __forceinline__ void join(const AttentionArgs& args, const CacheTile& tile,
                                       const Parts& parts) const {
    constexpr int kOfRow = kHeadDimV / 4, kAtOnce = 4;
    static_assert(kHeadDimV % 4 == 0, "four columns a thread");
    const int first = tile.place.first_row + (kMla ? 0 : warpgroup_ * kHeadRows);
    const int rows = min(kHeadRows, args.seqlen_q - first);  // per head
    const int wanted = rows * kTileHeads * kOfRow;
#pragma unroll 1
    for (int at = threadIdx.x % kWarpgroupThreads; at < wanted; at += kAtOnce * kWarpgroupThreads) {
      int place[kAtOnce];  // offset within a part
      Sum sums[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int here = min(at + i * kWarpgroupThreads, wanted - 1), number = here / kOfRow;
        place[i] = (number / rows * kHeadRows + number % rows) * kHeadDimV + here % kOfRow * 4;
        sums[i] = {make_float4(0.f, 0.f, 0.f, 0.f), make_float2(kLowestMax, 0.f)};
      }
      add_parts(tile, parts, place, sums);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (at + i * kWarpgroupThreads >= wanted) continue;
        const int row = place[i] / kHeadDimV;
        if constexpr (!kToOutput) {
          float* const to = part(slot_of(tile, parts.first));
          __stcg(reinterpret_cast<float4*>(to + place[i]), sums[i].values);
          if (place[i] % kHeadDimV == 0) __stcg(stats_in(to) + kQueryRows + row, sums[i].stats);
          continue;
        }
        store(args, tile, first + row % kHeadRows, tile.place.head + row / kHeadRows,
              place[i] % kHeadDimV, sums[i]);
      }
    }
  }

  template <int kCount>
  __device__ __forceinline__ void add_parts(const CacheTile& tile, const Parts& parts,
                                            const int (&place)[kCount], Sum (&sums)[kCount]) const {
    constexpr int kAtOnce = kQueryRows < kWarpgroupRows ? 5 : 4;
#pragma unroll 1
    for (int first = 0; first < parts.count; first += kAtOnce) {
      float4 values[kAtOnce][kCount];
      float2 stats[kAtOnce][kCount];
#pragma unroll
      for (int part = 0; part < kAtOnce; ++part) {
        const int number = min(first + part, parts.count - 1);
        float* const from = this->part(slot_of(tile, parts.first + number * parts.step));
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
          values[part][i] = __ldcg(reinterpret_cast<const float4*>(from + place[i]));
          stats[part][i] = __ldcg(stats_in(from) + parts.stats + place[i] / kHeadDimV);
        }
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        float maximum = sums[i].stats.x;
#pragma unroll
        for (int part = 0; part < kAtOnce; ++part) maximum = fmaxf(maximum, stats[part][i].x);
        sums[i].raise(maximum);
#pragma unroll
        for (int part = 0; part < kAtOnce; ++part)
          if (first + part < parts.count) sums[i].add(values[part][i], stats[part][i]);
      }
    }
  }

  __device__ __forceinline__ void store(const AttentionArgs& args, const CacheTile& tile, int row,
                                        int head, int column, const Sum& sum) const {
    const float4& values = sum.values;
    float inverse = sum.stats.y == 0.f ? 0.f : __fdiv_rn(1.f, sum.stats.y);
    float lse = (sum.stats.x + log2_approx(sum.stats.y)) * kLn2;
    join_sink(parts_.scores, head, inverse, lse);
    inverse = scaled_by_v(parts_.scales, head / kGqaRatio, inverse);
    const long long at = tile.place.batch * args.o.batch_stride + row * args.o.row_stride +
                         head * args.o.head_stride + column;
    store_four<kDtypeO>(
        args.o.data, at,
        make_float4(values.x * inverse, values.y * inverse, values.z * inverse, values.w * inverse),
        inverse == 0.f);  // exactly 0 even if V is not finite
    if (column == 0 && args.lse != nullptr)
      args.lse[tile.place.batch * args.lse_batch_stride + head * args.lse_head_stride + row] = lse;
  }

  const KernelParts& parts_;
  int warpgroup_;
};

}  // namespace attune
