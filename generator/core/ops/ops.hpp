// SPDX-License-Identifier: Apache-2.0
// The ops, and their functions that other rooms use. Each op has a description in the file of its
// name in this folder; generator/core/problem/op.cpp lists them.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "generator/core/problem/op.hpp"
#include "generator/core/problem/problem.hpp"
#include "generator/core/system/error.hpp"

namespace attune {

const OpDescription& append_kv_op();
const OpDescription& attention_backward_op();
const OpDescription& attention_kvcache_op();
const OpDescription& block_map_op();
const OpDescription& index_scores_op();
const OpDescription& merge_op();
const OpDescription& prefill_op();
const OpDescription& quantise_op();
const OpDescription& top_k_op();

// Refuses softmax_scale and all score features, for ops without a softmax.
void check_no_score_features(const Problem& p, const char* op);

// For ops whose operands all have the shape of q. Requires the other shape fields to equal those of
// q, so that equal problems have one text.
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

// Ops top_k and index_scores, which choose keys.

// Refuses everything but a mask. Throws like validate(Problem).
void check_choosing(const Problem& p, const char* op);
// Returns the operand with the number of keys that each row sees; the call may leave it out.
OperandSpec key_lengths_of_rows(const Problem& p);
// Returns the length of a list that top_k writes.
int64_t keys_of_list(const Shape& shape);

// The op append_kv writes new rows of k and v into the cache that attention_kvcache reads. It
// rotates k by rotary angles, and divides k and v by scale factors if the cache is 8-bit. The same
// launch can rotate q. batch, seqlen_q, seqlen_kv, pages, slots, packed rows and lengths have the
// same meaning as for attention_kvcache. Row i of a request with `rows` new rows and `length` keys,
// including the new ones, is at position length - rows + i. A call may give positions and locations
// of rows instead (templates/shared/append_args.h).

// Returns the number of leading columns of k, and of q, that are rotated.
int turned_columns(const SpecFields& fields, int head_dim_qk);
// Returns the canonical form: one text for all equal problems.
Problem canonical_of_append(const Problem& problem);

// The op attention_backward computes gradients of attention's q, k and v, or of a score input.

// Returns the problems that training needs in addition to a problem of op prefill: gradients of q,
// k and v, and of learnt inputs (bias, table of distances, sinks). For a forward pass with 8-bit
// operands they use the 16-bit type of its o. Returns none for other ops.
std::vector<Problem> gradient_problems(const Problem& forward);

// The op attention_kvcache computes attention for requests whose keys and values are in a cache.
// batch is the number of requests, seqlen_q the most rows of q per request (tokens, not heads),
// seqlen_kv the most keys. A call gives the number and location of each request's keys in device
// memory (templates/shared/cache_args.h), so a captured graph remains valid while requests grow.
// Row i of a request with `rows` rows and `length` keys is at position length - rows + i: the
// newest token is the last key. Masks, windows and score features use that position.

// Checks types, pages and slots, for all ops with a cache. Throws like validate(Problem).
void check_cached_problem(const Problem& problem, const char* op);
// Appends the scale factors of an 8-bit cache with `pages` pages of `keys` keys, if the cache is
// 8-bit.
void add_cache_factors(const Problem& problem, int64_t pages, int64_t keys, OperandList* all);
// Returns the number of pages (or slots) in a call's k and v: Problem::num_pages, or the most that
// the requests can need.
int64_t pages_of_cache(const Problem& problem);
// True if o is a sum of values by weights, which kernels may round to the type of q.
bool sums_by_weights(const Problem& problem);
// Refuses masks and windows of a problem with key_indices: they would hide keys that the caller has
// chosen.
void check_no_mask_beside_lists(const Problem& problem);
// Returns the floating-point operations of both products of a forward pass. With lists of keys all
// lists count as full.
double seen_flops(const Problem& problem);
// Returns the most keys that a row sees: the length of its list if it has one, else seqlen_kv.
int64_t keys_of_row(const SpecFields& fields, const Shape& shape);
// Returns the shape of the requests between which decode kernels share their work: with lists of
// keys each row of q is a request whose keys are the entries of its list.
Shape line_shape(const SpecFields& fields, const Shape& shape);
// Returns the entries per row of the page table, the pages of the longest request.
int64_t pages_of_request(const Problem& problem);
// Returns the problem with the length of its lists, if it has lists.
Problem canonical_of_lists(const Problem& problem);
// Returns the canonical form: one text for all equal problems. For example, a single row per
// request sees all keys under a causal mask, so the mask is dropped.
Problem canonical_of_cache(const Problem& problem);

// Op block_map: writes for each block of rows and keys whether the masks show all, some or none of
// it (templates/shared/block_map.h). Calls with block_map=skips use the result.

// Returns the problem whose o is a map for calls of `of`. It has the same masks. It has one batch
// entry or head if the masks do not depend on them.
Problem block_map_problem(const Problem& of);

// Op merge: merges two attention states (o, lse) over different keys into one, as a split-KV join
// does. The states are q with q_scale, and k with k_scale.

// Returns the problem for `rows` consecutive rows.
Problem merge_problem(Dtype first, Dtype second, Dtype result, int head_dim, int num_heads,
                      int64_t rows);

}  // namespace attune
