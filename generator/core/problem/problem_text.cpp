// SPDX-License-Identifier: Apache-2.0
// Writes and parses the texts of Problem, KernelSpec and Shape, with the table of fields; see
// problem_fields.hpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/problem/op.hpp"
#include "generator/core/problem/problem.hpp"
#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

using Pair = std::pair<std::string_view, std::string_view>;

// Splits "a=1, b=2" into pairs. Spaces around commas are allowed.
std::vector<Pair> pairs_of(std::string_view text) {
  std::vector<Pair> pairs;
  while (!trimmed(text).empty()) {
    const size_t comma = text.find(',');
    const std::string_view pair = trimmed(text.substr(0, comma));
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos)
      refuse(fmt::format("problem part \"{}\" has no '='; must be key=value", pair));
    const std::string_view value = pair.substr(equals + 1);
    const size_t next = value.rfind('=');
    if (next != std::string_view::npos && value.find(' ') < next && !value.starts_with('@'))
      refuse(fmt::format("problem part is \"{}\"; keys must be separated by commas", pair));
    pairs.emplace_back(pair.substr(0, equals), value);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return pairs;
}

const ProblemKey& key_named(std::string_view name) {
  std::vector<std::string_view> known;
  for (const ProblemKey& key : problem_keys()) {
    if (key.name == name) return key;
    known.push_back(key.name);
  }
  refuse(fmt::format("problem key is \"{}\"; must be {}", name, fmt::join(known, ", ")));
}

// Reads the pairs of a problem's text, and records which key set each field.
class TextReader {
 public:
  void apply(const Pair& pair) {
    const ProblemKey& key = key_named(pair.first);
    for (const ProblemField* field : key.fields) claim(field->key, key.name);
    for (const ProblemField* field : key.fields) field->parse(key.name, pair.second, &problem_);
  }

  // Throws if the text sets one of the fields nowhere.
  void require(std::initializer_list<std::string_view> fields, std::string_view accepted) const {
    for (const std::string_view field : fields)
      if (set_by_.count(field) == 0)
        refuse(fmt::format("the problem has no {}; give {}", field, accepted));
  }

  const Problem& problem() const { return problem_; }

 private:
  void claim(std::string_view field, std::string_view key) {
    const auto [place, is_new] = set_by_.emplace(field, key);
    if (is_new) return;
    if (place->second == key) refuse(fmt::format("{} is in the problem twice; give it once", key));
    refuse(fmt::format("{} and {} both set {}; give only one of them", place->second, key, field));
  }

  Problem problem_;
  std::map<std::string_view, std::string_view> set_by_;  // field -> key
};

std::string brief(const ProblemField& field, const Problem& problem) {
  if (field.brief) return field.brief(problem);
  return field.is_default(problem) ? "" : fmt::format("{}={}", field.key, field.print(problem));
}

// Returns the text of the fields for which `is_in` returns true.
template <class IsIn>
std::string brief_text(const Problem& problem, const IsIn& is_in) {
  std::string text;
  for (const ProblemField& field : problem_fields()) {
    const std::string part = is_in(field) ? brief(field, problem) : "";
    if (!part.empty()) text += (text.empty() ? "" : ",") + part;
  }
  return text;
}

std::string canonical_text(const Problem& problem, Part part) {
  std::string text;
  for (const ProblemField& field : problem_fields())
    if (field.part == part && (field.always_written || !field.is_default(problem)))
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", field.name, field.print(problem));
  return text;
}

void refuse_files(const std::vector<Pair>& pairs) {
  for (const auto& [name, value] : pairs)
    if (value.starts_with('@'))
      refuse(
          fmt::format("{} is {}; must be a digest: only the program attune reads files, if its "
                      "command line names them",
                      name, value));
}

// Parses the text of one part. The caller compares the canonical text of the result with `text`.
Problem parse_canonical(std::string_view text, Part part) {
  const std::vector<Pair> pairs = pairs_of(text);
  Problem problem;
  refuse_files(pairs);
  for (const ProblemField& field : problem_fields())
    for (const auto& [name, value] : pairs)
      if (field.part == part && field.name == name) field.parse(name, value, &problem);
  return problem;
}

// Replaces mask=causal and is_causal=1, as in Python's functions, with mask=causal_bottom_right.
// Returns true if the text has one of them.
bool name_alignment(std::vector<Pair>* pairs) {
  bool is_causal = false;
  const bool has_mask = std::any_of(pairs->begin(), pairs->end(),
                                    [](const Pair& pair) { return pair.first == "mask"; });
  for (auto& [name, value] : *pairs) {
    if (name == "is_causal") {
      if (has_mask) refuse("mask and is_causal both set mask; give only one of them");
      if (value != "0" && value != "1")
        refuse(fmt::format("is_causal is \"{}\"; must be 0 or 1", value));
      name = "mask";
      value = value == "1" ? "causal" : "none";
    }
    if (name != "mask" || value != "causal") continue;
    value = "causal_bottom_right";
    is_causal = true;
  }
  return is_causal;
}

// Refuses plain "causal" with unequal lengths, whose alignment it does not say. Rows over a cache
// are always at its end.
void require_one_alignment(const Problem& problem) {
  if (describe(problem.op).has_cache || problem.seqlen_q == problem.seqlen_kv) return;
  refuse(fmt::format(
      "mask is causal, with {} queries and {} keys; must be causal_bottom_right (the last "
      "query sees all keys) or causal_top_left (query i sees keys 0 to i)",
      problem.seqlen_q, problem.seqlen_kv));
}

}  // namespace

Problem read_problem(std::string_view text, TextLengths lengths, TextFiles files) {
  std::vector<Pair> pairs = pairs_of(text);
  if (files == TextFiles::kRefused) refuse_files(pairs);
  // dtype goes first: dtype_kv and dtype_o then override it.
  std::stable_partition(pairs.begin(), pairs.end(),
                        [](const Pair& pair) { return pair.first == "dtype"; });
  const bool is_plainly_causal = name_alignment(&pairs);
  TextReader reader;
  for (const Pair& pair : pairs) reader.apply(pair);
  if (is_plainly_causal) require_one_alignment(reader.problem());
  reader.require({"heads"}, "heads=Q or heads=Q/KV");
  if (describe(reader.problem().op).has_head_dim)
    reader.require({"head_dim_qk", "head_dim_v"}, "head_dim=D, or head_dim_qk=D,head_dim_v=D");
  if (lengths == TextLengths::kRequired)
    reader.require({"seqlen_q", "seqlen_kv"}, "seqlen=N, or seqlen_q=N,seqlen_kv=N");
  return reader.problem();
}

Problem parse_problem(std::string_view text, TextLengths lengths, TextFiles files) {
  Problem problem = read_problem(text, lengths, files);
  validate(problem);
  return problem;
}

KernelSpec parse_spec_text(std::string_view text) {
  const Problem problem = parse_canonical(text, Part::kSpec);
  const KernelSpec spec{problem, problem.num_heads_q};
  if (to_text(spec) != text) refuse(fmt::format("\"{}\" is not the text of a kernel spec", text));
  validate(spec);
  return spec;
}

Shape parse_shape_text(std::string_view text) {
  const Shape shape = parse_canonical(text, Part::kShape);
  if (to_text(shape) != text) refuse(fmt::format("\"{}\" is not the text of a shape", text));
  validate(shape);
  return shape;
}

std::string to_text(const Problem& problem) {
  return brief_text(problem, [](const ProblemField&) { return true; });
}

std::string to_problem_text(const KernelSpec& spec) {
  return brief_text(problem_of(spec),
                    [](const ProblemField& field) { return field.part == Part::kSpec; });
}

std::string to_text(const KernelSpec& spec) {
  return canonical_text(problem_of(spec), Part::kSpec);
}

std::string to_text(const Shape& shape) {
  return canonical_text(problem_of(KernelSpec{}, shape), Part::kShape);
}

}  // namespace attune
