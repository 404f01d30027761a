// SPDX-License-Identifier: Apache-2.0
// The op attention_kvcache: attention of requests whose keys and values stand in a cache. batch is the number of requests, seqlen_q the
// most rows of q that one has (tokens, not heads), seqlen_kv the most keys. How many keys each has, and where they stand, a call says in
// device memory (templates/shared/cache_args.h), so that a captured graph stays valid while requests grow. Row i of a request with
// `rows` rows and `length` keys stands at position length - rows + i, from which masks, windows and score features count: the newest
// token is the last key.
#pragma once

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& attention_kvcache_op();
// What ops with a cache ask alike of types and places. Throws as validate(Problem) does.
void check_cached_problem(const Problem& problem, const char* op);
// Appends the factors of a cache of 8 bits with `pages` pages of `keys` keys, where it has any.
void add_cache_factors(const Problem& problem, int64_t pages, int64_t keys, OperandList* all);
// Pages that a call's k and v have, or slots: Problem::num_pages, or as many as the requests need at most.
int64_t pages_of_cache(const Problem& problem);
// Entries of a row of the page table: pages of the longest request.
int64_t pages_of_request(const Problem& problem);
// The same problem in one text: a single row a request sees all keys under a causal mask.
Problem canonical_of_cache(const Problem& problem);

}  // namespace attune
