// SPDX-License-Identifier: Apache-2.0
// One table that describes each field of a Problem: what it is called, which part it belongs to, how
// it is printed and parsed. From it follow the texts of Problem, KernelSpec and Shape with their
// parsers (problem_text.cpp) and the help of --problem.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/kernel_spec.hpp"

namespace attune {

enum class Part {
  kSpec,   // compiled in: stands in the text of a KernelSpec
  kShape,  // stands in the text of a Shape
  kCall,   // an argument of the kernel alone
};

struct ProblemField {
  Part part = Part::kSpec;
  std::string name;      // in texts of specs and shapes: "dtype_q"
  std::string key = {};  // in texts of problems: "dtype"; empty: it is not given there
  std::vector<std::string> c_names = {};  // in attune_problem and in Python's mirror of it
  std::string accepted = {};              // "none, causal_top_left, causal_bottom_right"
  std::string meaning = {};               // for the help: "a causal mask names its alignment"
  std::function<std::string(const Problem&)> print;  // the value alone
  // Throws kInvalidArgument with a sentence that names `key`, by which the value was given.
  std::function<void(std::string_view key, std::string_view value, Problem*)> parse;

  // The fields that stored texts have had from the beginning stand in every text of their part. Any
  // later field stands there only where it differs from its default: old texts stay as they are.
  bool always_written = false;
  // Of specs: the default asks nothing of a kernel, any other value is a feature that a template must
  // know (KernelTemplate::serves). False where every value is one of several kinds: types, extents.
  bool default_is_off = true;
  // What a template without the feature serves, in a sentence: "no window". Empty: the default's
  // text and "alone".
  std::string without = {};
  // "key=value" as it stands in a problem's text, or "" where it is left out. Without it: as in
  // texts of specs.
  std::function<std::string(const Problem&)> brief = nullptr;

  bool is_default(const Problem& problem) const { return print(problem) == print(Problem{}); }
};

// In the order of the texts.
const std::deque<ProblemField>& problem_fields();
// Adds one at the end, before anything else is called: for tests of what a new field does.
void add_problem_field(ProblemField field);

// The fields of a spec that ask something of a kernel.
using Features = std::vector<const ProblemField*>;
Features features_of(const KernelSpec& spec);

// A key of a problem's text; some set two fields.
struct ProblemKey {
  std::string name;      // "mask"
  std::string accepted;  // "none, causal_top_left, causal_bottom_right"
  std::string meaning;   // "a causal mask names its alignment"
  std::vector<const ProblemField*> fields;
};

// In the order of the help.
const std::vector<ProblemKey>& problem_keys();

// "accuracy=fast,scale_block_q=64": the fields of `problem` that are others in `than`.
std::string difference_text(const Problem& problem, const Problem& than);

}  // namespace attune
