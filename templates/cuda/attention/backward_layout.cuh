// SPDX-License-Identifier: Apache-2.0
// The compiled-in config of backward_sm90 as constants, and where L2 and delta stand in its workspace.
#pragma once

#include "shared/attention_args.h"
#include "shared/attention_enums.h"
#include "shared/backward_sm90_layout.h"

namespace attune {

constexpr BackwardSm90Layout kRowsLayout =
    backward_sm90_layout({kBlockM, kBlockN, kKSlots, kVSlots, kHeadDimQk, kHeadDimV, true, false});
constexpr int kRowsThreads = (kRowsLayout.warpgroups + 1) * kWarpgroupThreads;

static_assert(kBlockM % kWarpgroupRows == 0 && kKeyBlockN % kWarpgroupRows == 0,
              "tiles that stay have 64 rows for each warpgroup");
static_assert(kBlockN % 16 == 0 && kKeyBlockM % 16 == 0, "a step has whole 16s of rows");
static_assert(kKSlots >= 2 && kQSlots >= 2,
              "a step takes its tile before it gives back that of the step before it");

constexpr int kBarrierWarpgroup = 1;  // named barrier, + warpgroup: its 128 threads meet
constexpr float kLog2E = 1.44269504088896341f;

__device__ __forceinline__ int padded_rows(const AttentionArgs& args) {
  return static_cast<int>(backward_sm90_rows(args.seqlen_q, kBlockM, kKeyBlockM));
}

// L2 of a head's rows: lse in units of log2, +inf for rows that see no key and beyond the last row. Behind them, padded_rows() on,
// delta: rowsum(dout * o) - dlse, 0 for these rows. Then the next head.
__device__ __forceinline__ float* row_sums(const AttentionArgs& args, int batch, int head) {
  const long long heads = static_cast<long long>(batch) * args.num_heads_q + head;
  return static_cast<float*>(args.workspace) + 2 * heads * padded_rows(args);
}

// First of the two rows of a warpgroup's 64 that a thread has accumulators of; the second is 8 further down.
__device__ __forceinline__ int first_accumulator_row() {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  return thread / 32 * 16 + thread % 32 / 4;
}

}  // namespace attune
