// SPDX-License-Identifier: Apache-2.0
// Splitting a Problem into KernelSpec and Shape, and their canonical texts; see kernel_spec.hpp.
#include "generator/core/kernel_spec.hpp"

#include <fmt/format.h>

#include <bit>

namespace attune {
namespace {

int64_t round_up_to_power_of_two(int64_t value) {
  return value <= 1 ? value : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

// Closed windows that no mask needs are normalised, so that equal kernels have equal specs.
int64_t normal_window_right(const Problem& p) {
  if (p.window_right < 0) return -1;
  return p.mask == Mask::kNone ? p.window_right : -1;  // the diagonal already bounds the right side
}

}  // namespace

KernelSpec spec_of(const Problem& p) {
  KernelSpec spec;
  spec.op = p.op;
  spec.dtype_q = p.dtype_q;
  spec.dtype_kv = p.dtype_kv;
  spec.dtype_o = p.dtype_o;
  spec.head_dim_qk = p.head_dim_qk;
  spec.head_dim_v = p.head_dim_v;
  spec.gqa_ratio = p.num_heads_q / p.num_heads_kv;
  spec.mask = p.mask;
  spec.window_left = p.window_left < 0 ? -1 : p.window_left;
  spec.window_right = normal_window_right(p);
  spec.fp8 = p.fp8;
  return spec;
}

bool is_fp8(const KernelSpec& s) { return is_fp8(s.op == Op::kQuantise ? s.dtype_o : s.dtype_q); }

Shape shape_of(const Problem& p) {
  return {p.batch, p.seqlen_q, p.seqlen_kv, p.num_heads_q, p.num_heads_kv};
}

Problem problem_of(const KernelSpec& spec, const Shape& shape) {
  Problem p;
  p.op = spec.op;
  p.dtype_q = spec.dtype_q;
  p.dtype_kv = spec.dtype_kv;
  p.dtype_o = spec.dtype_o;
  p.head_dim_qk = spec.head_dim_qk;
  p.head_dim_v = spec.head_dim_v;
  p.num_heads_q = shape.num_heads_q;
  p.num_heads_kv = shape.num_heads_kv;
  p.batch = shape.batch;
  p.seqlen_q = shape.seqlen_q;
  p.seqlen_kv = shape.seqlen_kv;
  p.mask = spec.mask;
  p.window_left = spec.window_left;
  p.window_right = spec.window_right;
  p.fp8 = spec.fp8;
  return p;
}

void validate(const KernelSpec& spec) {
  validate(problem_of(spec, Shape{1, 1, 1, spec.gqa_ratio, 1}));
}

void validate(const Shape& shape) { validate(problem_of(KernelSpec{}, shape)); }

std::string to_text(const KernelSpec& s) {
  return fmt::format(
      "op={},dtype_q={},dtype_kv={},dtype_o={},head_dim_qk={},head_dim_v={},gqa_ratio={},mask={},"
      "window={}:{}{}",
      op_name(s.op), dtype_name(s.dtype_q), dtype_name(s.dtype_kv), dtype_name(s.dtype_o),
      s.head_dim_qk, s.head_dim_v, s.gqa_ratio, mask_name(s.mask), s.window_left, s.window_right,
      to_text(s.fp8));
}

std::string to_text(const Shape& s) {
  return fmt::format("batch={},seqlen_q={},seqlen_kv={},heads={}/{}", s.batch, s.seqlen_q,
                     s.seqlen_kv, s.num_heads_q, s.num_heads_kv);
}

std::string bucket_of(const Shape& s) {
  return fmt::format("v1:rows={},seqlen_q={},seqlen_kv={}",
                     round_up_to_power_of_two(s.batch * s.num_heads_q),
                     round_up_to_power_of_two(s.seqlen_q), round_up_to_power_of_two(s.seqlen_kv));
}

}  // namespace attune
