// SPDX-License-Identifier: Apache-2.0
// KernelSpec: the part of a Problem that is compiled in. Shape: the part that is not. The Arch stands beside both, so that
// the same spec means the same on every machine.
#pragma once

#include <cstdint>
#include <string>

#include "generator/core/problem.hpp"

namespace attune {

struct KernelSpec {
  Op op = Op::kPrefill;
  Dtype dtype_q = Dtype::kBf16;
  Dtype dtype_kv = Dtype::kBf16;
  Dtype dtype_o = Dtype::kBf16;
  int head_dim_qk = 128;
  int head_dim_v = 128;
  int gqa_ratio = 1;
  Mask mask = Mask::kNone;
  int64_t window_left = -1;
  int64_t window_right = -1;
  Fp8Options fp8;

  bool operator==(const KernelSpec&) const = default;
};

struct Shape {
  int64_t batch = 1;
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = 0;
  int num_heads_q = 1;
  int num_heads_kv = 1;
};

bool is_fp8(const KernelSpec& spec);  // as of the Problem
KernelSpec spec_of(const Problem& problem);
Shape shape_of(const Problem& problem);
Problem problem_of(const KernelSpec& spec, const Shape& shape);

// What validate(Problem) says of each half, for halves that come from a file. Throw
// kInvalidArgument or kUnsupported.
void validate(const KernelSpec& spec);
void validate(const Shape& shape);

// Canonical texts; their digests are the identities in the store (cache/FORMAT.md).
std::string to_text(const KernelSpec& spec);
std::string to_text(const Shape& shape);
// Shapes of one bucket share a winner unless an exact one exists: each length and batch * num_heads_q rounded up to a power of two.
std::string bucket_of(const Shape& shape);

}  // namespace attune
