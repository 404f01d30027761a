// SPDX-License-Identifier: Apache-2.0
// For ops whose operands all have the shape of q. Requires the other shape fields to equal those of
// q, so that equal problems have one text.
#pragma once

#include <fmt/format.h>

#include "generator/core/problem/problem.hpp"
#include "generator/core/system/error.hpp"

namespace attune {

inline void check_equal(const char* name, int64_t value, const char* other, int64_t wanted,
                        const char* op) {
  if (value != wanted)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is {}; for op {} it must equal {}, {}",
                                                         name, value, op, other, wanted));
}

inline void check_one_shape(const Problem& p, const char* op) {
  check_equal("head_dim_v", p.head_dim_v, "head_dim_qk", p.head_dim_qk, op);
  check_equal("num_heads_kv", p.num_heads_kv, "num_heads_q", p.num_heads_q, op);
  check_equal("seqlen_kv", p.seqlen_kv, "seqlen_q", p.seqlen_q, op);
}

}  // namespace attune
