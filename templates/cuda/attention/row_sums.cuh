// SPDX-License-Identifier: Apache-2.0
// L2 and delta in the workspace of kernels with gradients: attune_prepare writes them, later
// kernels read them.
#pragma once

#include "shared/attention_args.h"
#include "shared/attention_enums.h"
#include "shared/backward_sm90_layout.h"

namespace attune {

constexpr float kLog2E = 1.44269504088896341f;

__device__ __forceinline__ int padded_rows(const AttentionArgs& args) {
  return static_cast<int>(backward_sm90_rows(args.seqlen_q, kBlockM, kKeyBlockM));
}

// L2 of a head's rows: lse in units of log2, +inf for rows that see no key and beyond the last row.
// Behind them, padded_rows() on, delta: rowsum(dout * o) - dlse, 0 for these rows. Then the next
// head.
__device__ __forceinline__ float* row_sums(const AttentionArgs& args, int batch, int head) {
  const long long heads = static_cast<long long>(batch) * args.num_heads_q + head;
  return static_cast<float*>(args.workspace) + 2 * heads * padded_rows(args);
}

}  // namespace attune
