// SPDX-License-Identifier: Apache-2.0
// KernelSpec: the part of a Problem that is compiled in. Shape (problem.hpp): the part that is not. The Arch stands beside
// both, so that the same spec means the same on every machine.
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
// With lengths of 0, and heads of the spec's ratio.
Problem problem_of(const KernelSpec& spec);

// What validate(Problem) says of each half, for halves that come from a file. Throw
// kInvalidArgument or kUnsupported.
void validate(const KernelSpec& spec);
void validate(const Shape& shape);

// Canonical texts; their digests are the identities in the store (cache/FORMAT.md).
std::string to_text(const KernelSpec& spec);
std::string to_text(const Shape& shape);
// Their inverse. Throw kInvalidArgument for any other text, and what validate throws.
KernelSpec parse_spec_text(std::string_view text);
Shape parse_shape_text(std::string_view text);
// A spec in the keys of a problem, for people: "dtype=bf16,head_dim=128,heads=4/1,mask=none". It has
// no lengths, and its heads are the ratio.
std::string to_problem_text(const KernelSpec& spec);
// Shapes of one bucket share a winner unless an exact one exists: each length and batch * num_heads_q rounded up to a power of two.
std::string bucket_of(const Shape& shape);

}  // namespace attune
