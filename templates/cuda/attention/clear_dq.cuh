// SPDX-License-Identifier: Apache-2.0
// Ahead of dq_free.cuh: zeros in the fp32 to which blocks of keys add dQ.
#pragma once

#include "cuda/attention/fused_workspace.cuh"
#include "shared/numbered_row.h"

namespace attune {

// By kLanes lanes: as many floats as a row has. Which of its block of rows they are is no matter, for all rows of a block are cleared.
template <int kLanes>
__device__ __forceinline__ void clear_dq(const AttentionArgs& args, const NumberedRow& at,
                                         int lane) {
  const FusedWorkspace sums(args);
  const int block = at.row / kKeyBlockM;
  if (!at.exists || block >= sums.blocks()) return;
  const long long head = static_cast<long long>(at.batch) * args.num_heads_q + at.head;
  auto* to = reinterpret_cast<float4*>(sums.dq(head * sums.blocks() + block)) +
             at.row % kKeyBlockM * (kHeadDimQk / 4);
  for (int i = lane; i < kHeadDimQk / 4; i += kLanes) to[i] = make_float4(0.f, 0.f, 0.f, 0.f);
}

}  // namespace attune
