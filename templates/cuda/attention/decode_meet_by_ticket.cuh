// SPDX-License-Identifier: Apache-2.0
// How the teams that have parts of an item meet: each takes a ticket when it has left its own, and
// the last joins them. Nobody waits, and tickets are zero again afterwards.
#pragma once

#include "cuda/attention/decode_items.cuh"
#include "cuda/ptx/ticket.cuh"

namespace attune {

class DecodeMeeting {
 public:
  static constexpr int kAtOnce = 4;  // parts whose loads go out before the first is needed

  // `is_last`: a word of the team's in shared memory.
  __device__ __forceinline__ DecodeMeeting(const KernelParts& parts, int* is_last)
      : tickets_(static_cast<unsigned*>(parts.base.workspace)), is_last_(is_last) {}

  static __device__ __forceinline__ void leave(float2* to, float2 words) { __stcg(to, words); }

  // True if this team joins all parts. All threads of a team that has left its part call it; shared
  // memory is free then.
  __device__ __forceinline__ bool joins(const DecodeItem& item, const DecodePiece& piece) const {
    sync_team();
    if (team_thread() == 0)
      *is_last_ = takes_last_ticket(tickets_ + item.ticket, piece.parts) ? 1 : 0;
    sync_team();
    return *is_last_ != 0;
  }

  // Takes four values and the largest score and sum of each of `count` parts, which stand at
  // `at(i)` and `stats_at(i)`.
  template <class At, class StatsAt>
  static __device__ __forceinline__ void take(int count, const At& at, const StatsAt& stats_at,
                                              float4 (&values)[kAtOnce], float2 (&stats)[kAtOnce]) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      values[i] = __ldcg(at(min(i, count - 1)));
      stats[i] = __ldcg(stats_at(min(i, count - 1)));
    }
  }

  // They may stay as they are.
  template <class StatsOf>
  static __device__ __forceinline__ void clear_stats(int, int, const StatsOf&) {}

 private:
  unsigned* const tickets_;
  int* const is_last_;
};

}  // namespace attune
