// SPDX-License-Identifier: Apache-2.0
// KernelSpec: the part of a Problem that is compiled in. Shape (problem.hpp): the part that is not.
// The Arch is separate from both, so that a spec means the same on every machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generator/core/problem/problem.hpp"

namespace attune {

struct KernelSpec : SpecFields {
  int gqa_ratio = 1;  // num_heads_q / num_heads_kv

  bool operator==(const KernelSpec&) const = default;
};

KernelSpec spec_of(const Problem& problem);
Shape shape_of(const Problem& problem);
Problem problem_of(const KernelSpec& spec, const Shape& shape);
// Returns a problem with batch 1, lengths of 0, and heads in the spec's ratio.
Problem problem_of(const KernelSpec& spec);

// Check one half of a problem, as validate(Problem) checks both. For halves that were read from a
// file. Throw kInvalidArgument or kUnsupported.
void validate(const KernelSpec& spec);
void validate(const Shape& shape);

// Canonical texts; their digests are the identities in the store (cache/FORMAT.md).
std::string to_text(const KernelSpec& spec);
std::string to_text(const Shape& shape);
// Parse canonical texts. Throw kInvalidArgument for a text that is not canonical, and the errors of
// validate.
KernelSpec parse_spec_text(std::string_view text);
Shape parse_shape_text(std::string_view text);
// Returns a spec in the form of a problem's text, for messages:
// "dtype=bf16,head_dim=128,heads=4/1,mask=none". Lengths are left out, and heads show the ratio.
std::string to_problem_text(const KernelSpec& spec);
// Returns the bucket of a shape: each length, and batch * num_heads_q, rounded up to a power of
// two. A config tuned for one shape also serves shapes of its bucket that have no tuned config
// themselves.
std::string bucket_of(const Shape& shape);

}  // namespace attune
