// SPDX-License-Identifier: Apache-2.0
// The op append_kv: rows of k and v of requests, written into the cache that the op attention_kvcache reads, k turned by rotary angles and
// both divided by factors where the cache has 8 bits; q turned likewise in the same launch. batch, seqlen_q, seqlen_kv, pages, slots and
// packed rows mean what they mean there, and so do lengths: row i of a request with `rows` rows and `length` keys, the new ones among
// them, stands at position length - rows + i. A call may name positions and places of rows instead (templates/shared/append_args.h).
#pragma once

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& append_kv_op();
// Leading columns of k, and of q, that are turned.
int turned_columns(const SpecFields& fields, int head_dim_qk);
// The same problem in one text.
Problem canonical_of_append(const Problem& problem);

}  // namespace attune
