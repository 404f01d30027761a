// SPDX-License-Identifier: Apache-2.0
// Splits a Problem into KernelSpec and Shape; see kernel_spec.hpp. Their texts are in
// problem_text.cpp.
#include "generator/core/problem/kernel_spec.hpp"

#include <fmt/format.h>

#include <bit>

namespace attune {
namespace {

int64_t round_up_to_power_of_two(int64_t value) {
  return value <= 1 ? value : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
}

// Drops a right window side that a causal mask makes redundant, so that equal kernels have equal
// specs.
int64_t normal_window_right(const Problem& p) {
  if (p.window_right < 0) return -1;
  return p.mask == Mask::kNone ? p.window_right : -1;  // the diagonal already bounds the right side
}

}  // namespace

KernelSpec spec_of(const Problem& p) {
  KernelSpec spec{p, p.num_heads_q / p.num_heads_kv};
  spec.window_left = p.window_left < 0 ? -1 : p.window_left;
  spec.window_right = normal_window_right(p);
  return spec;
}

Shape shape_of(const Problem& p) { return p; }

Problem problem_of(const KernelSpec& spec, const Shape& shape) { return {spec, shape, {}}; }

Problem problem_of(const KernelSpec& spec) {
  return problem_of(spec, Shape{1, 0, 0, spec.gqa_ratio, 1});
}

void validate(const KernelSpec& spec) {
  validate(problem_of(spec, Shape{1, 1, 1, spec.gqa_ratio, 1}));
}

void validate(const Shape& shape) {
  Shape plain = shape;
  plain.listed_keys = 0;
  validate(problem_of(KernelSpec{}, plain));
  plain.seqlen_kv = shape.listed_keys;  // has the same limit
  validate(problem_of(KernelSpec{}, plain));
}

std::string bucket_of(const Shape& s) {
  std::string text = fmt::format(
      "v1:rows={},seqlen_q={},seqlen_kv={}", round_up_to_power_of_two(s.batch * s.num_heads_q),
      round_up_to_power_of_two(s.seqlen_q), round_up_to_power_of_two(s.seqlen_kv));
  if (s.listed_keys > 0)
    text += fmt::format(",listed_keys={}", round_up_to_power_of_two(s.listed_keys));
  return text;
}

}  // namespace attune
