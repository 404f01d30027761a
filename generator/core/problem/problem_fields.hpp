// SPDX-License-Identifier: Apache-2.0
// One table of all fields of a Problem: name, part, printing and parsing. The texts of Problem,
// KernelSpec and Shape, their parsers (problem_text.cpp) and the help of --problem use it.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem/kernel_spec.hpp"

namespace attune {

enum class Part {
  kSpec,   // compiled in: in the text of a KernelSpec
  kShape,  // in the text of a Shape
  kCall,   // only an argument of the kernel
};

struct ProblemField {
  Part part = Part::kSpec;
  std::string name;                       // in texts of specs and shapes: "dtype_q"
  std::string key = {};                   // in texts of problems: "dtype"; empty: not in them
  std::vector<std::string> c_names = {};  // in attune_problem and in Python's mirror of it
  std::string accepted = {};              // "none, causal_top_left, causal_bottom_right"
  std::string meaning = {};               // for the help: "causal alone needs equal lengths"
  std::function<std::string(const Problem&)> print;  // the value without its key
  // Throws kInvalidArgument with a sentence that names `key`, the key in the text.
  std::function<void(std::string_view key, std::string_view value, Problem*)> parse;
  std::function<void(Problem*)> reset = nullptr;  // sets the default; for fields with one value

  // True for the original fields, which every text of their part has. Later fields are written only
  // if they differ from their defaults, so old texts stay the same.
  bool always_written = false;
  // For specs. True: the default needs nothing from a kernel, and any other value is a feature that
  // a template must support (KernelTemplate::serves). False: every value is an alternative, such as
  // a type or an extent.
  bool default_is_off = true;
  // The capability of a template without the feature, for a sentence: "no window". Empty: the
  // default's text and "only".
  std::string without = {};
  // Returns "key=value" for a problem's text, or "" to omit the field. Null: the same text as in
  // specs.
  std::function<std::string(const Problem&)> brief = nullptr;

  bool is_default(const Problem& problem) const { return print(problem) == print(Problem{}); }
};

// Returns the fields in the order of the texts.
const std::deque<ProblemField>& problem_fields();
// Appends a field, for tests of new fields. Must be called before any other function of the
// library.
void add_problem_field(ProblemField field);

// Fields of a spec that are set to a feature a template must support.
using Features = std::vector<const ProblemField*>;
Features features_of(const KernelSpec& spec);

// Returns one side of a window as problem texts have it: "-" for an open side.
std::string window_side_text(int64_t side);

// A key in a problem's text. Some keys set two fields.
struct ProblemKey {
  std::string name;      // "mask"
  std::string accepted;  // "none, causal_top_left, causal_bottom_right"
  std::string meaning;   // "causal alone needs equal lengths"
  std::vector<const ProblemField*> fields;
};

// Returns the keys in the order in which the help lists them.
const std::vector<ProblemKey>& problem_keys();

// Returns the fields of `problem` that differ from `than`: "accuracy=fast,scale_block_q=64".
std::string difference_text(const Problem& problem, const Problem& than);

}  // namespace attune
