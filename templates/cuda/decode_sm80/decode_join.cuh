// SPDX-License-Identifier: Apache-2.0
// Ends a piece: joins the warps of a team through shared memory. Teams that share the columns of a
// wide head join their own columns, as if these were heads. If an item has several parts, each team
// writes its part to the workspace. One of these teams (SplitJoin) joins all parts in their order,
// so that results do not depend on which team it is.
#pragma once

#include "cuda/decode_sm80/decode_products.cuh"  // unless kGroupFactors, else nibble_products.cuh
#include "cuda/decode_sm80/split_join_by_counter.cuh"  // where kWaits == 0
#include "cuda/decode_sm80/split_join_by_flags.cuh"    // where kWaits == 1
#include "cuda/parts/none/cache_features.cuh"
#include "cuda/parts/sinks.cuh"  // where kSinks, else none/
#include "cuda/ptx/special_functions.cuh"

namespace attune {

using Join = SplitJoin<kWaits == 1>;

// Statistics of a row: the largest score in log2, and the sum of weights relative to it.
struct DecodeStats {
  float maximum, sum;
};

class DecodeJoin {
 public:
  __device__ __forceinline__ DecodeJoin(const KernelParts& parts, char* shared)
      : parts_(parts),
        values_(reinterpret_cast<float*>(shared + kShared.join_at) +
                team_index() * kTeam * kDecodeJoinFloats),
        stats_(reinterpret_cast<DecodeStats*>(shared + kShared.stats_at) +
               team_index() * 2 * kTeam * kDecodeRows),
        split_join_(parts, reinterpret_cast<int*>(shared + kShared.ticket_at) + team_index()) {}

  // Joins the team's warps and stores O, or writes the team's part to the workspace. All threads of
  // the team call it. `item` has at least one row.
  __device__ __forceinline__ void finish(const DecodeItem& item, const DecodePiece& piece,
                                         const DecodeProducts& products) {
    join_stats(item.rows, products);
    const bool alone = piece.parts == 1;
    float* const part = slot(piece.slot);
    join_values(item.rows, products, [&](int row, int column, float first, float second) {
      if (alone) return store<kDtypeO>(item, row, column, first, second, of_team(row));
      float* const to = part + row * kColumns.v + column;
      split_join_.write(reinterpret_cast<float2*>(to), make_float2(first, second));
    });
    const int thread = team_thread();
    if (alone) {
      if (thread < item.rows) store_lse(item, thread, of_team(thread));
      sync_team();  // shared memory is free again
      return;
    }
    if (thread < item.rows) split_join_.write(stats_in(part) + thread, as_float2(of_team(thread)));
    if (!split_join_.joins(item, piece)) return;
    join_parts(item, piece);
    split_join_.clear_stats(piece.parts, item.rows,
                            [&](int part) { return stats_in(part_of(piece, part)); });
  }

 private:
  static __device__ __forceinline__ float2 as_float2(DecodeStats stats) {
    return make_float2(stats.maximum, stats.sum);
  }
  __device__ __forceinline__ float* slot(int number) const {
    const long long items =
        static_cast<long long>(line_room(parts_.base)) * parts_.base.num_heads_kv *
        decode_row_tiles(line_rows(parts_.base), kGqaRatio, kRows) * kColumnWarps;
    return reinterpret_cast<float*>(static_cast<char*>(parts_.base.workspace) +
                                    decode_ticket_bytes(items)) +
           static_cast<long long>((number * kHeads + head_in_gang()) * kColumnWarps +
                                  column_warp()) *
               part_floats();
  }
  __device__ __forceinline__ int part_rows() const {
    return decode_part_rows(line_rows(parts_.base), kGqaRatio, kRows);
  }
  __device__ __forceinline__ int part_floats() const {
    return static_cast<int>(decode_part_floats(part_rows(), kColumns.v));
  }
  __device__ __forceinline__ float2* stats_in(float* part) const {
    return reinterpret_cast<float2*>(part + part_rows() * kColumns.v);
  }
  // Returns the statistics of a row over all warps of the team.
  __device__ __forceinline__ DecodeStats& of_team(int row) const {
    return stats_[kTeam * kDecodeRows + row];
  }

  __device__ __forceinline__ void join_stats(int rows, const DecodeProducts& products) {
    const int lane = team_thread() % 32, warp = team_warp();
#pragma unroll
    for (int i = 0; i < DecodeProducts::kRowsOfLane; ++i) {
      const float sum = products.sum(i);
      if (DecodeProducts::has_sums(lane))
        stats_[warp * kDecodeRows + DecodeProducts::row_of(lane, i)] = {products.maximum(i), sum};
    }
    sync_team();
    const int row = team_thread();
    if (row < rows) {
      DecodeStats all{kLowestMax, 0.0f};
#pragma unroll
      for (int i = 0; i < kTeam; ++i)
        all.maximum = fmaxf(all.maximum, stats_[i * kDecodeRows + row].maximum);
#pragma unroll
      for (int i = 0; i < kTeam; ++i) {
        const DecodeStats one = stats_[i * kDecodeRows + row];
        all.sum += one.sum * exp2_approx(one.maximum - all.maximum);
      }
      of_team(row) = all;
    }
    sync_team();
  }

  // Calls `take(row, column, value of column, value of column + 1)` for each two columns of the
  // rows.
  template <class Take>
  __device__ __forceinline__ void join_values(int rows, const DecodeProducts& products,
                                              const Take& take) {
    const int lane = team_thread() % 32, warp = team_warp();
    const int columns =
        min(kColumns.v, kDecodeJoinFloats / rows / Products::kTileColumns * Products::kTileColumns);
    constexpr int kRowsOfLane = DecodeProducts::kRowsOfLane;
    float factor[kRowsOfLane];
#pragma unroll
    for (int i = 0; i < kRowsOfLane; ++i) {
      const int row = DecodeProducts::row_of(lane, i);
      factor[i] = row < rows ? exp2_approx(products.maximum(i) - of_team(row).maximum) : 0.0f;
    }
    for (int first = 0; first < kColumns.v; first += columns) {
      if (first > 0) sync_team();
      float* const own = values_ + warp * kDecodeJoinFloats;
#pragma unroll
      for (int n = 0; n < DecodeProducts::kPairs; ++n) {
        const int column = DecodeProducts::first_column(n) - first;
        if (column < 0 || column >= columns) continue;
#pragma unroll
        for (int i = 0; i < kRowsOfLane; ++i) {
          const int row = DecodeProducts::row_of(lane, i);
          if (row < rows)
            *reinterpret_cast<float2*>(own + row * columns + column +
                                       DecodeProducts::lane_column(n, lane)) =
                make_float2(products.output(n, i, 0) * factor[i],
                            products.output(n, i, 1) * factor[i]);
        }
      }
      sync_team();
      const int here = min(columns, kColumns.v - first);
      for (int i = team_thread() * 2; i < rows * here; i += kTeamThreads * 2) {
        const int row = i / here, column = i % here;
        float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
        for (int w = 0; w < kTeam; ++w) {
          const float2 one = *reinterpret_cast<const float2*>(values_ + w * kDecodeJoinFloats +
                                                              row * columns + column);
          sum.x += one.x;
          sum.y += one.y;
        }
        take(row, first + column, sum.x, sum.y);
      }
    }
  }

  // Returns the address of part `part`. Parts after the first have slots that are two apart. The
  // first part has the second slot of its worker.
  __device__ __forceinline__ float* part_of(const DecodePiece& piece, int part) const {
    if constexpr (kBatchInvariant) return slot(piece.slot - piece.part + part);
    const int of_first = piece.slot - (piece.part == 0 ? 1 : 0) - 2 * piece.part;
    return slot(of_first + 2 * part + (part == 0 ? 1 : 0));
  }

  // A sum of weighted values, and the statistics that it is relative to.
  struct Sum {
    float4 values;
    DecodeStats stats;

    __device__ __forceinline__ void raise(float maximum) {
      const float factor = exp2_approx(stats.maximum - maximum);
      stats = {maximum, stats.sum * factor};
      values =
          make_float4(values.x * factor, values.y * factor, values.z * factor, values.w * factor);
    }
    __device__ __forceinline__ void add(const float4& other, float2 of_other) {
      const float weight = exp2_approx(of_other.x - stats.maximum);
      stats.sum += of_other.y * weight;
      values.x += weight * other.x;
      values.y += weight * other.y;
      values.z += weight * other.z;
      values.w += weight * other.w;
    }
  };

  // Joins the parts of an item and stores its rows. Each thread has four columns of a row. If there
  // are more threads than columns, groups of threads take parts in turn.
  __device__ __forceinline__ void join_parts(const DecodeItem& item, const DecodePiece& piece) {
    constexpr int kOfRow = kColumns.v / 4;
    const int wanted = item.rows * kOfRow;
    const int room = min(kTeamThreads / wanted, kTeam * kDecodeJoinFloats / (6 * wanted));
    const int groups = room < 1 ? 1 : min(room, piece.parts);
    auto* const shared = reinterpret_cast<float4*>(values_);
    auto* const shared_stats = reinterpret_cast<float2*>(shared + groups * wanted);
    for (int first = 0; first < wanted; first += kTeamThreads) {
      const int at = first + (groups > 1 ? team_thread() % wanted : team_thread());
      const int group = groups > 1 ? team_thread() / wanted : 0;
      const bool takes_part = at < wanted && group < groups;
      Sum sum{{0.0f, 0.0f, 0.0f, 0.0f}, {kLowestMax, 0.0f}};
      if (takes_part) add_parts(piece, at / kOfRow, at % kOfRow * 4, group, groups, &sum);
      if (groups > 1) {
        if (takes_part) {
          shared[group * wanted + at] = sum.values;
          shared_stats[group * wanted + at] = as_float2(sum.stats);
        }
        sync_team();
        for (int i = 1; takes_part && group == 0 && i < groups; ++i) {
          const float2 stats = shared_stats[i * wanted + at];
          sum.raise(fmaxf(sum.stats.maximum, stats.x));
          sum.add(shared[i * wanted + at], stats);
        }
      }
      if (takes_part && group == 0) store_four(item, at / kOfRow, at % kOfRow * 4, sum);
    }
    sync_team();
  }

  // Adds the parts group, group + groups, and so on, to `sum`, for four columns of a row.
  __device__ __forceinline__ void add_parts(const DecodePiece& piece, int row, int column,
                                            int group, int groups, Sum* sum) const {
    constexpr int kAtOnce = Join::kAtOnce;
    for (int first = group; first < piece.parts; first += kAtOnce * groups) {
      const auto part = [&](int i) { return part_of(piece, first + i * groups); };
      float4 values[kAtOnce];
      float2 stats[kAtOnce];
      split_join_.load(
          (piece.parts - first + groups - 1) / groups,
          [&](int i) { return reinterpret_cast<float4*>(part(i) + row * kColumns.v + column); },
          [&](int i) { return stats_in(part(i)) + row; }, values, stats);
      float maximum = sum->stats.maximum;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) maximum = fmaxf(maximum, stats[i].x);
      sum->raise(maximum);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        if (first + i * groups < piece.parts) sum->add(values[i], stats[i]);
    }
  }

  __device__ __forceinline__ void store_four(const DecodeItem& item, int row, int column,
                                             const Sum& sum) const {
    store<kDtypeO>(item, row, column, sum.values.x, sum.values.y, sum.stats);
    store<kDtypeO>(item, row, column + 2, sum.values.z, sum.values.w, sum.stats);
    if (column == 0) store_lse(item, row, sum.stats);
  }

  // Computes the factor of a row of O, and its LSE. A row that saw no key gets 0 and -infinity.
  __device__ __forceinline__ void end_row(const DecodeItem& item, int row, DecodeStats stats,
                                          float& inverse, float& lse) const {
    constexpr float kLn2 = 0.69314718055994531f;
    inverse = stats.sum == 0.0f ? 0.0f : __fdiv_rn(1.0f, stats.sum);
    lse = (stats.maximum + log2_approx(stats.sum)) * kLn2;
    join_sink(parts_.scores, item.head(row), inverse, lse);
    inverse = scaled_by_v(parts_.scales, item.kv_head, inverse);
  }
  template <Dtype kDtype>
  __device__ __forceinline__ void store(const DecodeItem& item, int row, int column, float first,
                                        float second, DecodeStats stats) const {
    float inverse, lse;
    end_row(item, row, stats, inverse, lse);
    if constexpr (!ValueColumns::kAllExist)
      if (!ValueColumns::exists(column)) return;
    const long long at = item.in(parts_.base.o, row);
    column = ValueColumns::in_head(column);
    if constexpr (kDtype == Dtype::kFp32) {
      auto* const o = static_cast<float*>(parts_.base.o.data) + at;
      const float2 two = make_float2(first * inverse, second * inverse);
      *reinterpret_cast<float2*>(o + column) = stats.sum == 0.0f ? make_float2(0.f, 0.f) : two;
    } else {
      auto* const o = static_cast<unsigned short*>(parts_.base.o.data) + at;
      const unsigned two = pack<kDtype>(first * inverse, second * inverse);
      // Exactly 0 even if V is not finite.
      *reinterpret_cast<unsigned*>(o + column) = stats.sum == 0.0f ? 0u : two;
    }
  }
  __device__ __forceinline__ void store_lse(const DecodeItem& item, int row,
                                            DecodeStats stats) const {
    if (parts_.base.lse == nullptr || column_warp() != 0) return;
    float inverse, lse;
    end_row(item, row, stats, inverse, lse);
    parts_.base.lse[item.in_lse(parts_.base, row)] = lse;
  }

  const KernelParts& parts_;
  float* const values_;
  DecodeStats* const stats_;
  const Join split_join_;
};

}  // namespace attune
