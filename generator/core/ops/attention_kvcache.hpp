// SPDX-License-Identifier: Apache-2.0
// The op attention_kvcache: attention of requests whose keys and values are in a cache. batch is
// the number of requests, seqlen_q the most rows of q per request (tokens, not heads), seqlen_kv
// the most keys. A call gives the number and place of each request's keys in device memory
// (templates/shared/cache_args.h), so a captured graph stays valid while requests grow. Row i of a
// request with `rows` rows and `length` keys is at position length - rows + i, so the newest token
// is the last key. Masks, windows and score features count from that position.
#pragma once

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& attention_kvcache_op();
// Checks types and places, for all ops with a cache. Throws like validate(Problem).
void check_cached_problem(const Problem& problem, const char* op);
// Appends the factors of an 8-bit cache with `pages` pages of `keys` keys, if it has any.
void add_cache_factors(const Problem& problem, int64_t pages, int64_t keys, OperandList* all);
// Returns the pages (or slots) of a call's k and v: Problem::num_pages, or as many as the requests
// need at most.
int64_t pages_of_cache(const Problem& problem);
// Returns the entries per row of the page table: pages of the longest request.
int64_t pages_of_request(const Problem& problem);
// Returns the canonical form, so that equal problems have one text. For example, a single row per
// request sees all keys under a causal mask.
Problem canonical_of_cache(const Problem& problem);

}  // namespace attune
