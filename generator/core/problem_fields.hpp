// SPDX-License-Identifier: Apache-2.0
// One table of all fields of a Problem: name, part, printing and parsing. It yields the texts of
// Problem, KernelSpec and Shape with their parsers (problem_text.cpp), and the help of --problem.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/kernel_spec.hpp"

namespace attune {

enum class Part {
  kSpec,   // compiled in: in the text of a KernelSpec
  kShape,  // in the text of a Shape
  kCall,   // an argument of the kernel alone
};

struct ProblemField {
  Part part = Part::kSpec;
  std::string name;                       // in texts of specs and shapes: "dtype_q"
  std::string key = {};                   // in texts of problems: "dtype"; empty if not given there
  std::vector<std::string> c_names = {};  // in attune_problem and in Python's mirror of it
  std::string accepted = {};              // "none, causal_top_left, causal_bottom_right"
  std::string meaning = {};               // for the help: "causal alone needs equal lengths"
  std::function<std::string(const Problem&)> print;  // the value alone
  // Throws kInvalidArgument with a sentence that names `key`, the key that gave the value.
  std::function<void(std::string_view key, std::string_view value, Problem*)> parse;

  // True for the original fields, which are in every text of their part. A later field is there
  // only if it differs from its default, so old texts stay the same.
  bool always_written = false;
  // For specs. True: the default asks nothing of a kernel, and any other value is a feature that a
  // template must know (KernelTemplate::serves). False: all values are alternatives, such as types
  // and extents.
  bool default_is_off = true;
  // The capability of a template without the feature, for a sentence: "no window". Empty: the
  // default's text and "only".
  std::string without = {};
  // Returns "key=value" as a problem's text has it, or "" if it is left out. Null: as in texts of
  // specs.
  std::function<std::string(const Problem&)> brief = nullptr;

  bool is_default(const Problem& problem) const { return print(problem) == print(Problem{}); }
};

// Returns the fields in the order of the texts.
const std::deque<ProblemField>& problem_fields();
// Adds a field at the end, before anything else is called: for tests of a new field.
void add_problem_field(ProblemField field);

// The fields of a spec that ask something of a kernel.
using Features = std::vector<const ProblemField*>;
Features features_of(const KernelSpec& spec);

// A key of a problem's text; some set two fields.
struct ProblemKey {
  std::string name;      // "mask"
  std::string accepted;  // "none, causal_top_left, causal_bottom_right"
  std::string meaning;   // "causal alone needs equal lengths"
  std::vector<const ProblemField*> fields;
};

// Returns the keys in the order of the help.
const std::vector<ProblemKey>& problem_keys();

// Returns the fields of `problem` that differ in `than`: "accuracy=fast,scale_block_q=64".
std::string difference_text(const Problem& problem, const Problem& than);

}  // namespace attune
