// SPDX-License-Identifier: Apache-2.0
// See ops.hpp.
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/latent_rows.h"
#include "templates/shared/nibble_rows.h"
#include "templates/shared/visibility.h"

namespace attune {
namespace {

constexpr int kMaxPageSize = 65536;
constexpr int64_t kMaxPages = int64_t{1} << 31;  // ids are 32-bit integers

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_dtypes(const Problem& p, const char* op) {
  const bool is_16_bit = dtype_bytes(p.dtype_q) == 2;
  const bool narrow_cache = is_narrow(p.dtype_kv) && is_16_bit;
  const bool wide_o = p.op == Op::kAttentionKvCache && p.dtype_o == Dtype::kFp32 && is_16_bit;
  for (const auto& [name, dtype, as] :
       {std::tuple{"dtype_q", p.dtype_q, p.dtype_q},
        {"dtype_kv", p.dtype_kv, narrow_cache ? p.dtype_q : p.dtype_kv},
        {"dtype_o", p.dtype_o, wide_o ? p.dtype_q : p.dtype_o}})
    if (is_narrow(as) || as != p.dtype_q)
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format(
              "{} is {} and dtype_q is {}; op {} takes bf16, fp16 or fp32, the same for q, "
              "k, v and o; with bf16 and fp16, k and v may be e4m3, e5m2, int8, int4 or e2m1{}",
              name, dtype_name(dtype), dtype_name(p.dtype_q), op,
              p.op == Op::kAttentionKvCache ? ", and o fp32" : ""));
}

// Features indexed by a call's row and key numbers would need an offset per request.
void check_features(const Problem& p) {
  for (const ScoreFeature* feature : score_features()) {
    if (feature->over_caches || !feature->is_on(p)) continue;
    std::string taken;
    for (const ScoreFeature* other : score_features())
      if (other->over_caches) taken += other->field + ", ";
    refuse(
        fmt::format("{} is given; op attention_kvcache takes {}sinks (a call's kv_lengths say how "
                    "many keys a request has)",
                    feature->field, taken));
  }
}

void check_lists(const Problem& p) {
  if (p.cache.key_indices == KeyIndices::kNone) return;
  check_no_mask_beside_lists(p);
  if (p.cache.key_indices == KeyIndices::kPositions) return;
  if (p.cache.packed_kv)
    refuse(
        "key_indices is places and packed_kv is 1; packed_kv must be 0: places are in pages or "
        "slots, and packed keys are a cache of one slot");
  for (const ScoreFeature* feature : score_features())
    if (feature->is_on(p) && !feature->of_score_alone)
      refuse(
          fmt::format("key_indices is places and {} is given, which depends on positions of keys; "
                      "key_indices must be positions",
                      feature->field));
}

void check(const Problem& p) {
  check_cached_problem(p, "attention_kvcache");
  check_features(p);
  check_lists(p);
  if (p.mask == Mask::kCausalTopLeft)
    refuse(
        "mask is causal_top_left; op attention_kvcache takes none or causal_bottom_right, since "
        "rows are the newest tokens");
  if (p.cache.packed_kv && p.cache.page_size > 0)
    refuse(fmt::format(
        "packed_kv is 1 and page_size is {}; give only one of them: packed keys have no pages",
        p.cache.page_size));
}

// The number of packed rows is the most that all requests may have. Rows past the last request are
// not accessed.
OperandList operands(const Problem& p) {
  const int64_t pages =
      p.cache.packed_kv ? std::min<int64_t>(1, pages_of_cache(p)) : pages_of_cache(p);
  const int64_t keys = p.cache.packed_kv       ? pages_of_cache(p)
                       : p.cache.page_size > 0 ? p.cache.page_size
                                               : p.seqlen_kv;
  const int64_t batch = p.cache.packed_q ? std::min<int64_t>(1, p.batch) : p.batch;
  const int64_t rows = p.cache.packed_q ? p.batch * p.seqlen_q : p.seqlen_q;
  const int heads = p.num_heads_q, heads_kv = p.num_heads_kv;
  const OperandSpec q{Role::kQ, "q", p.dtype_q, batch, rows, heads, p.head_dim_qk};
  const bool is_latent = p.cache.kv_factors == KvFactors::kLatent;
  const int columns = is_latent ? latent_row_bytes(p.head_dim_qk, p.head_dim_v)
                                : stored_columns(p.dtype_kv, p.head_dim_qk);
  const OperandSpec k{Role::kK, "k", p.dtype_kv, pages, keys, heads_kv, columns};
  const OperandSpec v{
      Role::kV, "v", p.dtype_kv, pages, keys, heads_kv, stored_columns(p.dtype_kv, p.head_dim_v)};
  const OperandSpec o{Role::kO, "o", p.dtype_o, batch, rows, heads, p.head_dim_v, false, true};
  const OperandSpec lse{Role::kLse, "lse", Dtype::kFp32, batch, rows, heads, 1, false, true, true};
  OperandList all{q.of_packed(p.cache.packed_q), k.of_packed(p.cache.packed_kv),
                  v.of_packed(p.cache.packed_kv), o.of_packed(p.cache.packed_q),
                  lse.of_packed(p.cache.packed_q)};
  add_cache_factors(p, pages, keys, &all);
  return all;
}

bool has_lists_of_keys(const Problem& p) { return p.cache.key_indices != KeyIndices::kNone; }

// Work assumes that all requests have the full length, and all lists.
double flops(const Problem& p) { return seen_flops(p); }
// Returns how many keys of a request its rows see.
int64_t seen_keys(const Problem& p) {
  const int64_t rows = std::max<int64_t>(p.seqlen_q, 1);
  if (has_lists_of_keys(p)) return std::min(p.seqlen_kv, keys_of_row(p, p) * rows);
  const auto [first, last] = keys_of_rows(p, p, int64_t{0}, rows - 1);
  return std::max<int64_t>(0, last - first + 1);
}
// Counts each key and value once that a row sees, and latent values as a part of their keys.
double bytes(const Problem& p) {
  const double seen = static_cast<double>(p.batch) * static_cast<double>(seen_keys(p));
  double all = 0;
  for (const OperandSpec& x : operands(p)) {
    if (kind_of(x.role) != OperandKind::kTensor || (x.role == Role::kV && p.cache.v_in_k)) continue;
    const double rows = static_cast<double>(x.batch) * static_cast<double>(x.rows);
    const bool is_cache = x.role == Role::kK || x.role == Role::kV || x.by_head;
    all += (is_cache ? std::min(rows, seen) : rows) * static_cast<double>(x.heads * x.columns) *
           dtype_bytes(x.dtype);
  }
  return all;
}

}  // namespace

bool sums_by_weights(const Problem& problem) {
  return problem.op == Op::kPrefill || problem.op == Op::kAttentionKvCache;
}

void check_no_mask_beside_lists(const Problem& p) {
  if (p.mask == Mask::kNone && p.window_left < 0 && p.window_right < 0) return;
  refuse(fmt::format(
      "key_indices is {}, mask is {} and the window is {}:{}; must be mask none "
      "without a window: lists name the keys that a row sees",
      key_indices_name(p.cache.key_indices), mask_name(p.mask), p.window_left, p.window_right));
}

void check_cached_problem(const Problem& p, const char* op) {
  check_dtypes(p, op);
  if (p.cache.page_size < 0 || p.cache.page_size > kMaxPageSize)
    refuse(fmt::format("page_size is {}; must be 1 to {}, or 0 for no pages", p.cache.page_size,
                       kMaxPageSize));
  if (p.num_pages < 0 || p.num_pages >= kMaxPages)
    refuse(fmt::format(
        "num_pages is {}; must be 1 to {}, or 0 for as many as the requests need at most",
        p.num_pages, kMaxPages - 1));
  check_no_fp8_options(p, op);
}

void add_cache_factors(const Problem& p, int64_t pages, int64_t keys, OperandList* all) {
  if (!is_narrow(p.dtype_kv) || p.cache.kv_factors == KvFactors::kLatent) return;
  const int group = columns_of_factor(p.cache.kv_factors);
  const bool by_key = p.cache.kv_factors != KvFactors::kHeads && group == 0;
  for (const auto& [role, name] :
       {std::pair{Role::kKScale, "k_scale"}, {Role::kVScale, "v_scale"}}) {
    OperandSpec scale{role, name, p.dtype_kv, by_key ? pages : 1, keys, p.num_heads_kv};
    if (by_key) scale.block = 1;
    scale.written = p.cache.kv_factors == KvFactors::kMade;
    scale.optional = !by_key;
    all->add(scale);
  }
  if (group == 0) return;
  for (const auto& [role, name, columns] :
       {std::tuple{Role::kKGroups, "cache.k_factors", p.head_dim_qk},
        {Role::kVGroups, "cache.v_factors", p.head_dim_v}}) {
    OperandSpec factors{
        role, name, Dtype::kE4m3, pages, keys, p.num_heads_kv, group_row_bytes(columns, group)};
    factors.by_head = true;
    factors.alignment = group_row_alignment(static_cast<int>(factors.columns));
    factors.written = describe(p.op).appends;
    all->add(factors);
  }
}

double seen_flops(const Problem& p) {
  if (!has_lists_of_keys(p)) return visible_flops(p);
  return 2.0 * (p.head_dim_qk + p.head_dim_v) * static_cast<double>(p.batch) *
         static_cast<double>(p.seqlen_q) * static_cast<double>(keys_of_row(p, p)) * p.num_heads_q;
}

int64_t keys_of_row(const SpecFields& fields, const Shape& shape) {
  const bool has_lists = fields.cache.key_indices != KeyIndices::kNone;
  return has_lists && shape.listed_keys > 0 ? shape.listed_keys : shape.seqlen_kv;
}

Shape line_shape(const SpecFields& fields, const Shape& shape) {
  if (fields.cache.key_indices == KeyIndices::kNone) return shape;
  Shape line = shape;
  line.batch = shape.batch * shape.seqlen_q;
  line.seqlen_q = 1;
  line.seqlen_kv = keys_of_row(fields, shape);
  return line;
}

int64_t pages_of_request(const Problem& p) {
  return p.cache.page_size > 0 ? (p.seqlen_kv + p.cache.page_size - 1) / p.cache.page_size : 1;
}

int64_t pages_of_cache(const Problem& p) {
  if (p.num_pages > 0) return p.num_pages;
  return p.batch * (p.cache.packed_kv ? p.seqlen_kv : pages_of_request(p));
}

Problem canonical_of_lists(const Problem& asked) {
  Problem p = asked;
  if (has_lists_of_keys(p) && p.listed_keys == 0) p.listed_keys = p.seqlen_kv;
  return p;
}

Problem canonical_of_cache(const Problem& asked) {
  Problem p = canonical_of_lists(asked);
  const bool is_last_alone = p.seqlen_q <= 1;
  if (p.mask != Mask::kNone || is_last_alone) p.window_right = -1;
  if (is_last_alone) p.mask = Mask::kNone;
  if (p.window_left >= p.seqlen_kv) p.window_left = -1;
  return p;
}

const OpDescription& attention_kvcache_op() {
  static const OpDescription op{.op = Op::kAttentionKvCache,
                                .name = "attention_kvcache",
                                .alias = "kvcache",
                                .validate = check,
                                .operands = operands,
                                .useful_flops = flops,
                                .keeps_programs = true,
                                .has_cache = true,
                                .takes_lists = true,
                                .useful_bytes = bytes};
  return op;
}

}  // namespace attune
