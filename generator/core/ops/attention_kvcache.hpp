// SPDX-License-Identifier: Apache-2.0
// The op attention_kvcache computes attention for requests whose keys and values are in a cache.
// batch is the number of requests, seqlen_q the most rows of q per request (tokens, not heads),
// seqlen_kv the most keys. A call gives the number and location of each request's keys in device
// memory (templates/shared/cache_args.h), so a captured graph remains valid while requests grow.
// Row i of a request with `rows` rows and `length` keys is at position length - rows + i: the
// newest token is the last key. Masks, windows and score features use that position.
#pragma once

#include "generator/core/problem/op.hpp"

namespace attune {

// Checks types, pages and slots, for all ops with a cache. Throws like validate(Problem).
void check_cached_problem(const Problem& problem, const char* op);
// Appends the scale factors of an 8-bit cache with `pages` pages of `keys` keys, if the cache is
// 8-bit.
void add_cache_factors(const Problem& problem, int64_t pages, int64_t keys, OperandList* all);
// Returns the number of pages (or slots) in a call's k and v: Problem::num_pages, or the most that
// the requests can need.
int64_t pages_of_cache(const Problem& problem);
// Returns the entries per row of the page table, the pages of the longest request.
int64_t pages_of_request(const Problem& problem);
// Returns the canonical form: one text for all equal problems. For example, a single row per
// request sees all keys under a causal mask, so the mask is dropped.
Problem canonical_of_cache(const Problem& problem);

}  // namespace attune
