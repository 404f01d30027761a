// SPDX-License-Identifier: Apache-2.0
// The op append_kv writes new rows of k and v into the cache that attention_kvcache reads. It
// rotates k by rotary angles, and divides k and v by scale factors if the cache is 8-bit. The same
// launch can rotate q. batch, seqlen_q, seqlen_kv, pages, slots, packed rows and lengths have the
// same meaning as for attention_kvcache. Row i of a request with `rows` new rows and `length` keys,
// including the new ones, is at position length - rows + i. A call may give positions and locations
// of rows instead (templates/shared/append_args.h).
#pragma once

#include "generator/core/problem/op.hpp"

namespace attune {

// Returns the number of leading columns of k, and of q, that are rotated.
int turned_columns(const SpecFields& fields, int head_dim_qk);
// Returns the canonical form: one text for all equal problems.
Problem canonical_of_append(const Problem& problem);

}  // namespace attune
