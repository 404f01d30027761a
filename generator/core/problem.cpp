// SPDX-License-Identifier: Apache-2.0
// Validation and counting of Problems; parsing stands in problem_text.cpp. See problem.hpp.
#include "generator/core/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "generator/core/error.hpp"
#include "generator/core/problem_fields.hpp"
#include "generator/core/visibility.hpp"

namespace attune {
namespace {

constexpr int kMinHeadDim = 16;
constexpr int kMaxHeadDim = 256;
constexpr int kHeadDimStep = 8;
constexpr int64_t kMaxLength =
    std::numeric_limits<int32_t>::max() - 65536;  // tiles round up within int
constexpr int kMaxHeads = 65536;
constexpr double kMaxRows = 0x1p50;  // of 1 KB: strides, tiles and bytes stay within 64 bits

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_head_dim(const char* name, int value) {
  if (value < kMinHeadDim || value > kMaxHeadDim || value % kHeadDimStep != 0)
    refuse(fmt::format("{} is {}; accepted are multiples of {} from {} to {}", name, value,
                       kHeadDimStep, kMinHeadDim, kMaxHeadDim));
}

void check_length(const char* name, int64_t value) {
  if (value < 0 || value > kMaxLength)
    refuse(fmt::format("{} is {}; accepted are 0 to {}", name, value, kMaxLength));
}

void check_rows(const Problem& p, const char* name, int64_t seqlen, int num_heads) {
  if (static_cast<double>(p.batch) * static_cast<double>(seqlen) * num_heads > kMaxRows)
    refuse(fmt::format(
        "batch is {}, {} is {} and there are {} heads; accepted are products up to 2^50", p.batch,
        name, seqlen, num_heads));
}

void check_heads(const Problem& p) {
  if (p.num_heads_q < 1 || p.num_heads_q > kMaxHeads)
    refuse(fmt::format("num_heads_q is {}; accepted are 1 to {}", p.num_heads_q, kMaxHeads));
  if (p.num_heads_kv < 1 || p.num_heads_kv > p.num_heads_q)
    refuse(fmt::format("num_heads_kv is {}; accepted are 1 to num_heads_q ({})", p.num_heads_kv,
                       p.num_heads_q));
  if (p.num_heads_q % p.num_heads_kv != 0)
    refuse(fmt::format(
        "num_heads_q is {} and num_heads_kv is {}; num_heads_kv must divide num_heads_q",
        p.num_heads_q, p.num_heads_kv));
}

// e4m3 Q with K and V of either 8-bit type; O in 16 bits, or fp32 from the reference kernels.
void check_fp8_dtypes(const Problem& p) {
  if (p.dtype_q != Dtype::kE4m3)
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("dtype_q is {}; with 8-bit operands it must be e4m3", dtype_name(p.dtype_q)));
  if (!is_fp8(p.dtype_kv))
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype_kv is {} and dtype_q is e4m3; accepted are e4m3 and e5m2",
                            dtype_name(p.dtype_kv)));
  if (is_fp8(p.dtype_o))
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype_o is {}; accepted are bf16 and fp16", dtype_name(p.dtype_o)));
}

void check_dtypes(const Problem& p) {
  if (is_fp8(p.dtype_q) || is_fp8(p.dtype_kv)) return check_fp8_dtypes(p);
  if (p.dtype_kv != p.dtype_q)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype_kv is {} and dtype_q is {}; they must be equal",
                            dtype_name(p.dtype_kv), dtype_name(p.dtype_q)));
  if (p.dtype_o != p.dtype_q)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype_o is {} and dtype_q is {}; they must be equal",
                            dtype_name(p.dtype_o), dtype_name(p.dtype_q)));
}

constexpr int kScaleBlockStep = 16;
constexpr int kMaxScaleBlock = 65536;

void check_scale_block(const char* name, int value) {
  if (value < 0 || value > kMaxScaleBlock || value % kScaleBlockStep != 0)
    refuse(
        fmt::format("{} is {}; accepted are multiples of {} up to {}, or 0 for one factor a head",
                    name, value, kScaleBlockStep, kMaxScaleBlock));
}

void check_fp8_options(const Problem& p) {
  check_scale_block("scale_block_q", p.fp8.scale_block_q);
  check_scale_block("scale_block_kv", p.fp8.scale_block_kv);
  Problem plain = p;
  plain.fp8 = {};
  if (!is_fp8(p) && p.fp8 != plain.fp8)
    refuse(fmt::format("options \"{}\" are for 8-bit operands; dtype_q is {}",
                       difference_text(p, plain), dtype_name(p.dtype_q)));
  if (p.op == Op::kPrefill && p.fp8.rotation != Rotation::kNone)
    refuse(
        "rotation is hadamard; accepted is none: the quantise op rotates, attention takes rotated "
        "operands as they are");
}

// The quantise op reads q and writes o; what it does not have must be as in q, so that one problem has one text.
void check_quantise(const Problem& p) {
  const auto equal = [](const char* name, int64_t value, const char* other, int64_t wanted) {
    if (value != wanted)
      refuse(fmt::format("{} is {}; for op quantise it must equal {}, {}", name, value, other,
                         wanted));
  };
  if (is_fp8(p.dtype_q) || p.dtype_kv != p.dtype_q)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype is {}; op quantise reads bf16, fp16 or fp32",
                            dtype_name(is_fp8(p.dtype_q) ? p.dtype_q : p.dtype_kv)));
  if (!is_fp8(p.dtype_o))
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("dtype_o is {}; op quantise writes e4m3 or e5m2", dtype_name(p.dtype_o)));
  equal("head_dim_v", p.head_dim_v, "head_dim_qk", p.head_dim_qk);
  equal("num_heads_kv", p.num_heads_kv, "num_heads_q", p.num_heads_q);
  equal("seqlen_kv", p.seqlen_kv, "seqlen_q", p.seqlen_q);
  equal("scale_block_kv", p.fp8.scale_block_kv, "scale_block_q", p.fp8.scale_block_q);
  if (p.mask != Mask::kNone || p.window_left >= 0 || p.window_right >= 0)
    refuse("op quantise takes no mask and no window");
  if (p.fp8.accuracy != Accuracy::kAccurate)
    refuse("accuracy is fast; op quantise has one mode, accurate");
  if (p.softmax_scale) refuse("scale is given; op quantise has no softmax");
  const bool power_of_two = (p.head_dim_qk & (p.head_dim_qk - 1)) == 0;
  if (p.fp8.rotation == Rotation::kHadamard && !power_of_two)
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("head_dim_qk is {}; a Hadamard rotation takes powers of two", p.head_dim_qk));
}

}  // namespace

float Problem::scale() const {
  return softmax_scale ? *softmax_scale : 1.0F / std::sqrt(static_cast<float>(head_dim_qk));
}

void validate(const Problem& p) {
  check_head_dim("head_dim_qk", p.head_dim_qk);
  check_head_dim("head_dim_v", p.head_dim_v);
  check_heads(p);
  check_length("batch", p.batch);
  check_length("seqlen_q", p.seqlen_q);
  check_length("seqlen_kv", p.seqlen_kv);
  check_rows(p, "seqlen_q", p.seqlen_q, p.num_heads_q);
  check_rows(p, "seqlen_kv", p.seqlen_kv, p.num_heads_kv);
  if (p.op == Op::kQuantise)
    check_quantise(p);
  else
    check_dtypes(p);
  check_fp8_options(p);
  if (p.window_left > kMaxLength)
    refuse(fmt::format("window_left is {}; accepted are 0 to {}, or a negative number for open",
                       p.window_left, kMaxLength));
  if (p.window_right > kMaxLength)
    refuse(fmt::format("window_right is {}; accepted are 0 to {}, or a negative number for open",
                       p.window_right, kMaxLength));
  if (p.softmax_scale && (!std::isfinite(*p.softmax_scale) || *p.softmax_scale <= 0))
    refuse(
        fmt::format("softmax_scale is {}; accepted are finite numbers above 0", *p.softmax_scale));
}

bool is_fp8(const SpecFields& p) { return is_fp8(p.op == Op::kQuantise ? p.dtype_o : p.dtype_q); }

int64_t padded_row(Dtype dtype, int64_t head_dim) {
  const int64_t elements = 16 / dtype_bytes(dtype);
  return (head_dim + elements - 1) / elements * elements;
}

double visible_flops(const Problem& p) {
  if (p.op == Op::kQuantise) return 0;
  double visible = 0;
  if (p.mask == Mask::kNone && p.window_left < 0 && p.window_right < 0) {
    visible = static_cast<double>(p.seqlen_q) * static_cast<double>(p.seqlen_kv);
  } else {
    for (int64_t row = 0; row < p.seqlen_q; ++row) {
      const Columns columns = visible_columns(p, row);
      visible += static_cast<double>(std::max<int64_t>(0, columns.last - columns.first + 1));
    }
  }
  return 2.0 * (p.head_dim_qk + p.head_dim_v) * visible * static_cast<double>(p.batch) *
         p.num_heads_q;
}

double operand_bytes(const Problem& p) {
  const double q_rows =
      static_cast<double>(p.batch) * static_cast<double>(p.seqlen_q) * p.num_heads_q;
  const double kv_rows =
      static_cast<double>(p.batch) * static_cast<double>(p.seqlen_kv) * p.num_heads_kv;
  const double q_and_o =
      q_rows * (p.head_dim_qk * dtype_bytes(p.dtype_q) + p.head_dim_v * dtype_bytes(p.dtype_o));
  if (p.op == Op::kQuantise) return q_and_o;
  return q_and_o + kv_rows * (p.head_dim_qk + p.head_dim_v) * dtype_bytes(p.dtype_kv);
}

}  // namespace attune
