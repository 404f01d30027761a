// SPDX-License-Identifier: Apache-2.0
// KernelSpec: the part of a Problem that is compiled in. Shape (problem.hpp): the part that is not.
// The Arch is separate from both, so that a spec means the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generator/core/problem.hpp"

namespace attune {

struct KernelSpec : SpecFields {
  int gqa_ratio = 1;  // num_heads_q / num_heads_kv

  bool operator==(const KernelSpec&) const = default;
};

KernelSpec spec_of(const Problem& problem);
Shape shape_of(const Problem& problem);
Problem problem_of(const KernelSpec& spec, const Shape& shape);
// Returns a problem with lengths of 0, and heads in the spec's ratio.
Problem problem_of(const KernelSpec& spec);

// Check each half as validate(Problem) does, for halves that come from a file. Throw
// kInvalidArgument or kUnsupported.
void validate(const KernelSpec& spec);
void validate(const Shape& shape);

// Canonical texts; their digests are the identities in the store (cache/FORMAT.md).
std::string to_text(const KernelSpec& spec);
std::string to_text(const Shape& shape);
// Parse canonical texts. Throw kInvalidArgument for any other text, and the errors of validate.
KernelSpec parse_spec_text(std::string_view text);
Shape parse_shape_text(std::string_view text);
// Returns a spec as a problem's text, for people: "dtype=bf16,head_dim=128,heads=4/1,mask=none". It
// has no lengths, and its heads are the ratio.
std::string to_problem_text(const KernelSpec& spec);
// Returns the bucket of a shape: each length, and batch * num_heads_q, rounded up to a power of
// two. Shapes of one bucket share a winner unless an exact one exists.
std::string bucket_of(const Shape& shape);

}  // namespace attune
