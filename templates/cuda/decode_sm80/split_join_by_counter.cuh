// SPDX-License-Identifier: Apache-2.0
// Split-KV join by a counter: each team adds 1 to the counter of the item (a ticket) after it has
// written its part. The team that counts last joins the parts. No team waits, and the counter is
// zero again afterwards.
#pragma once

#include "cuda/decode_sm80/decode_items.cuh"
#include "cuda/ptx/block_order.cuh"

namespace attune {

template <>
class SplitJoin<false> {
 public:
  static constexpr int kAtOnce = 4;  // parts whose loads go out before the first is needed

  // `is_last` is a word of the team in shared memory.
  __device__ __forceinline__ SplitJoin(const KernelParts& parts, int* is_last)
      : tickets_(static_cast<unsigned*>(parts.base.workspace)), is_last_(is_last) {}

  static __device__ __forceinline__ void write(float2* to, float2 words) { __stcg(to, words); }

  // True if this team joins all parts. All threads of the team call it after they have written
  // their part. On return the team may reuse its shared memory.
  __device__ __forceinline__ bool joins(const DecodeItem& item, const DecodePiece& piece) const {
    sync_team();
    if (team_thread() == 0)
      *is_last_ = takes_last_ticket(tickets_ + item.ticket, piece.parts) ? 1 : 0;
    sync_team();
    return *is_last_ != 0;
  }

  // Loads four values and the statistics (largest score and sum) of each of `count` parts. The
  // addresses are `at(i)` and `stats_at(i)`.
  template <class At, class StatsAt>
  static __device__ __forceinline__ void load(int count, const At& at, const StatsAt& stats_at,
                                              float4 (&values)[kAtOnce], float2 (&stats)[kAtOnce]) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      values[i] = __ldcg(at(min(i, count - 1)));
      stats[i] = __ldcg(stats_at(min(i, count - 1)));
    }
  }

  // Does nothing: with tickets, the statistics need not be zero for the next launch.
  template <class StatsOf>
  static __device__ __forceinline__ void clear_stats(int, int, const StatsOf&) {}

 private:
  unsigned* const tickets_;
  int* const is_last_;
};

}  // namespace attune
