// SPDX-License-Identifier: Apache-2.0
// See ops.hpp.
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/nibble_rows.h"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_rotary(const Problem& p) {
  if (p.append.rotary == ScoreTensor::kNone) {
    if (p.append.rotary_dim != 0 || p.append.rotary_interleaved || p.append.rotary_q)
      refuse(
          fmt::format("rotary is none, but rotary_dim is {}, rotary_interleaved {:d} and rotary_q "
                      "{:d}; rotary must be fp32, bf16 or fp16 (the type of cosines and sines), or "
                      "the other three 0",
                      p.append.rotary_dim, p.append.rotary_interleaved, p.append.rotary_q));
    return;
  }
  if (p.append.rotary_dim < 0 || p.append.rotary_dim > p.head_dim_qk ||
      p.append.rotary_dim % 2 != 0)
    refuse(fmt::format(
        "rotary_dim is {}; must be even, from 2 to head_dim_qk ({}), or 0 for all columns",
        p.append.rotary_dim, p.head_dim_qk));
}

void check(const Problem& p) {
  check_cached_problem(p, "append_kv");
  check_rotary(p);
  constexpr int64_t kMostRows = int64_t{1} << 31;
  if (p.batch * p.seqlen_q >= kMostRows)
    refuse(fmt::format("batch is {} and seqlen_q is {}; their product must be below 2^31", p.batch,
                       p.seqlen_q));
  if (p.cache.packed_kv) refuse("packed_kv is 1; op append_kv writes into pages and slots");
  check_no_mask(p, "append_kv");
  check_no_score_features(p, "append_kv");
}

OperandSpec written(OperandSpec operand) {
  operand.written = true;
  return operand;
}

OperandList operands(const Problem& p) {
  const int64_t pages = pages_of_cache(p),
                keys = p.cache.page_size > 0 ? p.cache.page_size : p.seqlen_kv;
  const int64_t batch = p.cache.packed_q ? std::min<int64_t>(1, p.batch) : p.batch;
  const int64_t rows = p.cache.packed_q ? p.batch * p.seqlen_q : p.seqlen_q;
  const int heads_kv = p.num_heads_kv;
  const OperandSpec k{Role::kNewK, "append.k", p.dtype_q, batch, rows, heads_kv, p.head_dim_qk};
  const OperandSpec v{Role::kNewV, "append.v", p.dtype_q, batch, rows, heads_kv, p.head_dim_v};
  const OperandSpec q{Role::kQ, "q", p.dtype_q, batch, rows, p.num_heads_q, p.head_dim_qk};
  const OperandSpec o{Role::kO, "o", p.dtype_o, batch, rows, p.num_heads_q, p.head_dim_qk};
  OperandList all{k.of_packed(p.cache.packed_q), v.of_packed(p.cache.packed_q),
                  written({Role::kK, "k", p.dtype_kv, pages, keys, heads_kv,
                           stored_columns(p.dtype_kv, p.head_dim_qk)}),
                  written({Role::kV, "v", p.dtype_kv, pages, keys, heads_kv,
                           stored_columns(p.dtype_kv, p.head_dim_v)})};
  if (p.append.rotary != ScoreTensor::kNone) {
    const Dtype dtype = p.append.rotary == ScoreTensor::kFp32   ? Dtype::kFp32
                        : p.append.rotary == ScoreTensor::kBf16 ? Dtype::kBf16
                                                                : Dtype::kFp16;
    const int pairs = turned_columns(p, p.head_dim_qk) / 2;
    all.add({Role::kCos, "append.cos", dtype, 1, p.seqlen_kv, 1, pairs});
    all.add({Role::kSin, "append.sin", dtype, 1, p.seqlen_kv, 1, pairs});
  }
  if (p.append.rotary_q) {
    all.add(q.of_packed(p.cache.packed_q));
    all.add(written(o.of_packed(p.cache.packed_q)));
  }
  add_cache_factors(p, pages, keys, &all);
  return all;
}

double no_flops(const Problem&) { return 0; }

// Returns the bytes of a row of k or v that are read and written.
double bytes_of_row(const Problem& p, int columns) {
  const int group = columns_of_factor(p.cache.kv_factors);
  return columns * dtype_bytes(p.dtype_q) +
         stored_columns(p.dtype_kv, columns) * dtype_bytes(p.dtype_kv) +
         (group > 0 ? group_row_bytes(columns, group) : 0);
}

// Each row is read once and written once.
double bytes(const Problem& p) {
  const double rows = static_cast<double>(p.batch) * static_cast<double>(p.seqlen_q);
  const double of_kv = static_cast<double>(p.num_heads_kv) *
                       (bytes_of_row(p, p.head_dim_qk) + bytes_of_row(p, p.head_dim_v));
  const double of_q = p.append.rotary_q ? static_cast<double>(p.num_heads_q) * p.head_dim_qk * 2 *
                                              dtype_bytes(p.dtype_q)
                                        : 0;
  return rows * (of_kv + of_q);
}

}  // namespace

void check_no_score_features(const Problem& p, const char* op) {
  if (p.softmax_scale) refuse(fmt::format("scale is given; op {} has no scores to scale", op));
  for (const ScoreFeature* feature : score_features())
    if (feature->is_on(p))
      refuse(fmt::format("{} is given; op {} has no score features", feature->field, op));
}

int turned_columns(const SpecFields& fields, int head_dim_qk) {
  if (fields.append.rotary == ScoreTensor::kNone) return 0;
  return fields.append.rotary_dim > 0 ? fields.append.rotary_dim : head_dim_qk;
}

Problem canonical_of_append(const Problem& asked) {
  Problem p = asked;
  if (p.append.rotary_dim == p.head_dim_qk) p.append.rotary_dim = 0;
  return p;
}

const OpDescription& append_kv_op() {
  static const OpDescription op{.op = Op::kAppendKv,
                                .name = "append_kv",
                                .alias = "",
                                .validate = check,
                                .operands = operands,
                                .useful_flops = no_flops,
                                .keeps_programs = true,
                                .has_cache = true,
                                .appends = true,
                                .useful_bytes = bytes};
  return op;
}

}  // namespace attune
