// SPDX-License-Identifier: Apache-2.0
// Op merge: merges two attention states (o, lse) over different keys into one, as a split-KV join
// does. The states are q with q_scale, and k with k_scale.
#pragma once

#include "generator/core/problem/op.hpp"

namespace attune {

// Returns the problem for `rows` consecutive rows.
Problem merge_problem(Dtype first, Dtype second, Dtype result, int head_dim, int num_heads,
                      int64_t rows);

}  // namespace attune
