// SPDX-License-Identifier: Apache-2.0
// L2 and delta in the workspace of kernels with gradients: attune_prepare writes them, later
// kernels read them.
#pragma once

#include "shared/attention_args.h"
#include "shared/attention_enums.h"
#include "shared/layouts/backward_sm90_layout.h"

namespace attune {

constexpr float kLog2E = 1.44269504088896341f;

__device__ __forceinline__ int padded_rows(const AttentionArgs& args) {
  return static_cast<int>(backward_sm90_rows(args.seqlen_q, kBlockM, kKeyBlockM));
}

// Returns the address of a head's sums. First comes L2 of each row: lse in units of log2, or +inf
// for a row that sees no key or lies past the last row. padded_rows() floats later comes delta:
// rowsum(dout * o) - dlse, or 0 for the rows whose L2 is +inf. The next head follows.
__device__ __forceinline__ float* row_sums(const AttentionArgs& args, int batch, int head) {
  const long long heads = static_cast<long long>(batch) * args.num_heads_q + head;
  return static_cast<float*>(args.workspace) + 2 * heads * padded_rows(args);
}

}  // namespace attune
