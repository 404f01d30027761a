// SPDX-License-Identifier: Apache-2.0
// The end of items whose parts blocks of one cluster have (shared/decode_clusters.h): each leaves its part in its own shared memory, and all join the
// item together, some columns each, in the order of the parts. No part goes through memory, and nobody takes a ticket.
#pragma once

#include "cuda/attention/decode_join.cuh"
#include "cuda/ptx/cluster.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "shared/decode_clusters.h"

namespace attune {

static_assert(kGangs == 1, "a block of a cluster is one worker");

class ClusterJoin {
 public:
  __device__ __forceinline__ ClusterJoin(char* shared, const DecodeRange& range, DecodeJoin& join)
      : join_(join),
        part_(shared + team_index() * kTeamRingBytes),
        clustered_(are_in_clusters(range, kCluster)) {}

  // By all threads of the team. False where the piece is not one of a cluster.
  __device__ __forceinline__ bool finish(const DecodeItem& item, const DecodePiece& piece,
                                         const DecodeProducts& products) {
    if (!clustered_) return false;
    join_.join_stats(item.rows, products);  // all warps of the team have read their keys
    join_.join_values(item.rows, products, [&](int row, int column, float first, float second) {
      reinterpret_cast<float2*>(part_)[(row * kHeadDimV + column) / 2] = make_float2(first, second);
    });
    if (team_thread() < item.rows)
      reinterpret_cast<DecodeStats*>(part_ + kValueBytes)[team_thread()] =
          join_.of_team(team_thread());
    item_ = item;
    first_rank_ = cluster_rank() - piece.part;
    part_number_ = piece.part;
    parts_ = piece.parts;
    return true;
  }

  // Behind the last piece, by all threads.
  __device__ __forceinline__ void end() const {
    if (!clustered_) return;
    cluster_sync();
    if (parts_ > 0) join_columns();
    cluster_sync();  // until all have read it, shared memory stays
  }

 private:
  static constexpr int kTeamRingBytes = kTeam * kStages * kSlotBytes;
  static constexpr int kValueBytes = kDecodeRows * kHeadDimV * 4;
  static_assert(kValueBytes + kDecodeRows * 8 <= kTeamRingBytes, "a part lies in the team's ring");
  // Threads that share four columns, each with every kLanes-th part.
  static constexpr int kLanes = kCluster < 8 ? kCluster : 8;

  __device__ __forceinline__ void join_columns() const {
    constexpr int kOfRow = kHeadDimV / 4;
    const int wanted = item_.rows * kOfRow, share = (wanted + parts_ - 1) / parts_;
    const int begin = part_number_ * share, end = min(begin + share, wanted);
    const int lane = team_thread() % kLanes;
    for (int first = begin; first < end; first += kTeamThreads / kLanes) {
      const int at = first + team_thread() / kLanes;
      DecodeJoin::Sum sum{{0.0f, 0.0f, 0.0f, 0.0f}, {kLowestMax, 0.0f}};
      if (at < end) add_parts(at, lane, &sum);
      add_lanes(&sum);
      if (at < end && lane == 0) join_.store_four(item_, at / kOfRow, at % kOfRow * 4, sum);
    }
  }

  __device__ __forceinline__ void add_parts(int at, int lane, DecodeJoin::Sum* sum) const {
    constexpr int kMost = kCluster / kLanes;
    const unsigned own = shared_address(part_);
    float4 values[kMost];
    float2 stats[kMost];
    float maximum = kLowestMax;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int part = lane + i * kLanes;
      const unsigned from = in_block(own, first_rank_ + min(part, parts_ - 1));
      values[i] = load_cluster_16(from + at * 16);
      stats[i] = load_cluster_8(from + kValueBytes + at / (kHeadDimV / 4) * 8);
      if (part < parts_) maximum = fmaxf(maximum, stats[i].x);
    }
    sum->raise(maximum);
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      if (lane + i * kLanes < parts_) sum->add(values[i], stats[i]);
  }

  // Over the threads of four columns; all get the sum, in one order.
  __device__ __forceinline__ static void add_lanes(DecodeJoin::Sum* sum) {
#pragma unroll
    for (int step = 1; step < kLanes; step *= 2) {
      const float4 own = sum->values;
      const float4 values =
          make_float4(__shfl_xor_sync(~0u, own.x, step), __shfl_xor_sync(~0u, own.y, step),
                      __shfl_xor_sync(~0u, own.z, step), __shfl_xor_sync(~0u, own.w, step));
      const float2 stats = make_float2(__shfl_xor_sync(~0u, sum->stats.maximum, step),
                                       __shfl_xor_sync(~0u, sum->stats.sum, step));
      sum->raise(fmaxf(sum->stats.maximum, stats.x));
      sum->add(values, stats);
    }
  }

  DecodeJoin& join_;
  char* const part_;  // in the team's ring, whose keys are read by then
  const bool clustered_;
  DecodeItem item_;
  int first_rank_ = 0, part_number_ = 0, parts_ = 0;  // of the item; no parts: this team has none
};

}  // namespace attune
