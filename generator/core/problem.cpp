// SPDX-License-Identifier: Apache-2.0
// Validation and counting of Problems; parsing stands in problem_text.cpp. See problem.hpp.
#include "generator/core/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "generator/core/error.hpp"

namespace attune {
namespace {

constexpr int kMinHeadDim = 16;
constexpr int kMaxHeadDim = 256;
constexpr int kHeadDimStep = 8;
constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max() - 65536;  // tiles round up within int
constexpr int kMaxHeads = 65536;

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidArgument, message); }

void check_head_dim(const char* name, int value) {
  if (value < kMinHeadDim || value > kMaxHeadDim || value % kHeadDimStep != 0)
    refuse(fmt::format("{} is {}; accepted are multiples of {} from {} to {}", name, value, kHeadDimStep, kMinHeadDim, kMaxHeadDim));
}

void check_length(const char* name, int64_t value) {
  if (value < 0 || value > kMaxLength) refuse(fmt::format("{} is {}; accepted are 0 to {}", name, value, kMaxLength));
}

void check_heads(const Problem& p) {
  if (p.num_heads_q < 1 || p.num_heads_q > kMaxHeads)
    refuse(fmt::format("num_heads_q is {}; accepted are 1 to {}", p.num_heads_q, kMaxHeads));
  if (p.num_heads_kv < 1 || p.num_heads_kv > p.num_heads_q)
    refuse(fmt::format("num_heads_kv is {}; accepted are 1 to num_heads_q ({})", p.num_heads_kv, p.num_heads_q));
  if (p.num_heads_q % p.num_heads_kv != 0)
    refuse(fmt::format("num_heads_q is {} and num_heads_kv is {}; num_heads_kv must divide num_heads_q", p.num_heads_q, p.num_heads_kv));
}

void check_dtypes(const Problem& p) {
  if (p.dtype_kv != p.dtype_q)
    throw Error(ErrorCode::kUnsupported, fmt::format("dtype_kv is {} and dtype_q is {}; they must be equal", dtype_name(p.dtype_kv), dtype_name(p.dtype_q)));
  if (p.dtype_o != p.dtype_q)
    throw Error(ErrorCode::kUnsupported, fmt::format("dtype_o is {} and dtype_q is {}; they must be equal", dtype_name(p.dtype_o), dtype_name(p.dtype_q)));
  if (dtype_bytes(p.dtype_q) == 1)
    throw Error(ErrorCode::kUnsupported, fmt::format("dtype is {}; accepted are fp32, bf16 and fp16", dtype_name(p.dtype_q)));
}

// Columns visible to query row i, as [first, last].
struct Columns {
  int64_t first;
  int64_t last;
};

Columns visible_columns(const Problem& p, int64_t row) {
  const int64_t offset = p.mask == Mask::kCausalTopLeft ? 0 : p.seqlen_kv - p.seqlen_q;
  const int64_t diagonal = row + offset;
  Columns columns{0, p.seqlen_kv - 1};
  if (p.mask != Mask::kNone) columns.last = std::min(columns.last, diagonal);
  if (p.window_right >= 0) columns.last = std::min(columns.last, diagonal + p.window_right);
  if (p.window_left >= 0) columns.first = std::max(columns.first, diagonal - p.window_left);
  return columns;
}

}  // namespace

float Problem::scale() const {
  return softmax_scale ? *softmax_scale : 1.0F / std::sqrt(static_cast<float>(head_dim_qk));
}

bool operator==(const Problem& a, const Problem& b) { return to_text(a) == to_text(b); }

void validate(const Problem& p) {
  check_dtypes(p);
  check_head_dim("head_dim_qk", p.head_dim_qk);
  check_head_dim("head_dim_v", p.head_dim_v);
  check_heads(p);
  check_length("batch", p.batch);
  check_length("seqlen_q", p.seqlen_q);
  check_length("seqlen_kv", p.seqlen_kv);
  if (p.window_left > kMaxLength) refuse(fmt::format("window_left is {}; accepted are 0 to {}, or a negative number for open", p.window_left, kMaxLength));
  if (p.window_right > kMaxLength) refuse(fmt::format("window_right is {}; accepted are 0 to {}, or a negative number for open", p.window_right, kMaxLength));
  if (p.softmax_scale && (!std::isfinite(*p.softmax_scale) || *p.softmax_scale <= 0))
    refuse(fmt::format("softmax_scale is {}; accepted are finite numbers above 0", *p.softmax_scale));
}

double visible_flops(const Problem& p) {
  double visible = 0;
  if (p.mask == Mask::kNone && p.window_left < 0 && p.window_right < 0) {
    visible = static_cast<double>(p.seqlen_q) * static_cast<double>(p.seqlen_kv);
  } else {
    for (int64_t row = 0; row < p.seqlen_q; ++row) {
      const Columns columns = visible_columns(p, row);
      visible += static_cast<double>(std::max<int64_t>(0, columns.last - columns.first + 1));
    }
  }
  return 2.0 * (p.head_dim_qk + p.head_dim_v) * visible * static_cast<double>(p.batch) * p.num_heads_q;
}

double operand_bytes(const Problem& p) {
  const double q_rows = static_cast<double>(p.batch) * static_cast<double>(p.seqlen_q) * p.num_heads_q;
  const double kv_rows = static_cast<double>(p.batch) * static_cast<double>(p.seqlen_kv) * p.num_heads_kv;
  return q_rows * (p.head_dim_qk * dtype_bytes(p.dtype_q) + p.head_dim_v * dtype_bytes(p.dtype_o)) +
         kv_rows * (p.head_dim_qk + p.head_dim_v) * dtype_bytes(p.dtype_kv);
}

}  // namespace attune
