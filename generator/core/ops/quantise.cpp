// SPDX-License-Identifier: Apache-2.0
// Op quantise: o = q in 8 bits, with a scale factor per block of rows.
#include "generator/core/ops/ops.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_dtypes(const Problem& p) {
  if (is_8_bit(p.dtype_q) || p.dtype_kv != p.dtype_q)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("dtype is {}; op quantise reads bf16, fp16 or fp32",
                            dtype_name(is_8_bit(p.dtype_q) ? p.dtype_q : p.dtype_kv)));
  if (!is_8_bit(p.dtype_o) || p.dtype_o == Dtype::kInt8)
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("dtype_o is {}; op quantise writes e4m3 or e5m2", dtype_name(p.dtype_o)));
}

void check(const Problem& p) {
  check_dtypes(p);
  check_one_shape(p, "quantise");
  check_equal("scale_block_kv", p.fp8.scale_block_kv, "scale_block_q", p.fp8.scale_block_q,
              "quantise");
  check_no_mask(p, "quantise");
  if (p.fp8.accuracy != Accuracy::kAccurate)
    refuse(fmt::format("accuracy is {}; op quantise has one mode, accurate",
                       accuracy_name(p.fp8.accuracy)));
  if (p.softmax_scale) refuse("scale is given; op quantise has no softmax");
  const bool power_of_two = (p.head_dim_qk & (p.head_dim_qk - 1)) == 0;
  if (p.quantise.rotation == Rotation::kHadamard && !power_of_two)
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("head_dim_qk is {}; a Hadamard rotation takes powers of two", p.head_dim_qk));
}

OperandList operands(const Problem& p) {
  const bool transposed = p.fp8.v_layout == VLayout::kTransposed;
  OperandSpec scale{Role::kOScale, "o_scale", p.dtype_o, p.batch, p.seqlen_q, p.num_heads_q};
  scale.written = true;
  scale.block = p.fp8.scale_block_q;
  return {{Role::kQ, "q", p.dtype_q, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk},
          {Role::kO, "o", p.dtype_o, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v, transposed,
           true},
          scale};
}

double no_flops(const Problem&) { return 0; }

}  // namespace

const OpDescription& quantise_op() {
  static const OpDescription op{Op::kQuantise, "quantise", "quantize", check, operands, no_flops};
  return op;
}

}  // namespace attune
