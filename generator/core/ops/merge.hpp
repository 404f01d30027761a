// SPDX-License-Identifier: Apache-2.0
// Op merge: one state of attention (o, lse) of two, which saw different keys: those of q with q_scale, and of k with k_scale.
#pragma once

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& merge_op();
// Of `rows` rows that follow each other.
Problem merge_problem(Dtype first, Dtype second, Dtype result, int head_dim, int num_heads,
                      int64_t rows);

}  // namespace attune
