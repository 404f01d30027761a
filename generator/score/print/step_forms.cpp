// SPDX-License-Identifier: Apache-2.0
// Prints the two cheaper near forms: the second table of step_printer.hpp.
#include <fmt/format.h>

#include <algorithm>

#include "generator/score/print/step_printer.hpp"

namespace attune::score {
// Returns a node's linear form, or nullopt. The form's texts are valid only after the functions of
// heads and rows are printed. Before that, callers may only test whether there is a result.
std::optional<StepPrinter::Linear> StepPrinter::linear(int number) {
  const Node& n = node(number);
  if (n.type != Type::kFloat) return std::nullopt;
  if (level_[static_cast<size_t>(number)] <= kRow) return Linear{writer_.text_of(number), ""};
  const auto place = [&](int i) {
    return std::find(positions_.begin(), positions_.end(), i) - positions_.begin();
  };
  const auto position = [&](size_t i, const std::string& sign) {
    return Linear{
        fmt::format("{}on_step.p{}", sign.empty() ? "" : sign + " * ", i),
        fmt::format("{}{}", position_steps_[i] > 0 ? "" : "-", sign.empty() ? "1.0f" : sign)};
  };
  if (const auto i = static_cast<size_t>(place(number)); i < positions_.size())
    return position(i, "");
  if (n.operation == Operation::kAbs) {
    const auto i = static_cast<size_t>(place(n.operands[0]));
    if (i >= positions_.size()) return std::nullopt;
    const auto known = std::find(signs_.begin(), signs_.end(), static_cast<int>(i));
    const auto sign = known - signs_.begin();
    if (known == signs_.end()) signs_.push_back(static_cast<int>(i));
    return position(i, fmt::format("on_step.g{}", sign));
  }
  const auto times = [](const std::string& a, const std::string& b) {
    return b.empty() ? b : fmt::format("({}) * ({})", a, b);
  };
  if (n.operation == Operation::kNegate) {
    const auto a = linear(n.operands[0]);
    return a ? std::optional(Linear{times("-1.0f", a->base), times("-1.0f", a->slope)}) : a;
  }
  if (n.operation != Operation::kMultiply) return std::nullopt;
  for (const size_t o : {size_t{0}, size_t{1}}) {
    const int factor = n.operands[o];
    if (level_[static_cast<size_t>(factor)] > kRow) continue;
    const auto a = linear(n.operands[1 - o]);
    const std::string by = writer_.text_of(factor);
    return a ? std::optional(Linear{times(by, a->base), times(by, a->slope)}) : a;
  }
  return std::nullopt;
}

void StepPrinter::add_terms(int number, bool is_negative, std::vector<Term>* terms) const {
  constexpr size_t kMostTerms = 16;
  const Node& n = node(number);
  const bool is_sum = n.operation == Operation::kAdd || n.operation == Operation::kSubtract;
  if (n.operation == Operation::kNegate) {
    add_terms(n.operands[0], !is_negative, terms);
  } else if (is_sum && terms->size() < kMostTerms) {
    add_terms(n.operands[0], is_negative, terms);
    add_terms(n.operands[1], is_negative != (n.operation == Operation::kSubtract), terms);
  } else {
    terms->push_back({number, is_negative});
  }
}

void StepPrinter::find_linear_terms() {
  std::vector<Term> terms;
  add_terms(program_.root(), false, &terms);
  other_terms_.clear();
  linear_sum_ = {};
  for (const Term& term : terms) {
    const auto found = linear(term.node);
    if (!found) {
      other_terms_.push_back(term);
      continue;
    }
    const char* sign = term.is_negative ? " - " : " + ";
    linear_sum_.base += sign + found->base;
    if (!found->slope.empty()) linear_sum_.slope += sign + found->slope;
  }
  if (!linear_sum_.slope.empty() && !other_terms_.empty()) return;
  linear_sum_ = {};
  signs_.clear();
}

// Replaces the absolute value of a position by the position or its negation, if both ends of the
// step have one sign.
std::string StepPrinter::sign_statements() const {
  std::string text;
  for (size_t i = 0; i < signs_.size(); ++i)
    text += fmt::format(
        "  values.g{0} = values.p{1} < 0.0f ? -1.0f : 1.0f;\n"
        "  values.is_linear &= values.g{0} * (values.p{1} {2} float(span)) >= 0.0f;\n",
        i, signs_[i], position_steps_[static_cast<size_t>(signs_[i])] > 0 ? "+" : "-");
  return text;
}

std::string StepPrinter::linear_functions() {
  find_linear_terms();
  const bool none = linear_sum_.slope.empty();
  const std::string element = none ? std::string("  return score;\n") : near_element(other_terms_);
  return fmt::format(
      "\n// Returns the terms that are linear in a position, at the step's first key, and their "
      "growth per key.\n"
      "ATTUNE_SCORE_FUNCTION ScoreLinear score_linear(const ScoreArgs& args, const ScoreHead& "
      "on_head, const ScoreRow& on_row,\n"
      "    const ScoreStep& on_step, int batch, int head, int kv_head, int q_idx) {{\n  return "
      "{{0.0f{}, 0.0f{}}};\n}}\n"
      "\n// Returns the sum of the other terms.\n"
      "ATTUNE_SCORE_FUNCTION float score_linear_element({}) {{\n{}}}\n",
      linear_sum_.base, linear_sum_.slope, kNearParameters, element);
}

std::string StepPrinter::tanh_function() const {
  return fmt::format(
      "\n// Returns the tanh of the score, if that is the whole result (kScoreIsTanh).\n"
      "ATTUNE_SCORE_FUNCTION OddTanh score_only_tanh(const ScoreHead& on_head) {{\n  return "
      "{};\n}}\n",
      is_tanh() ? "on_head.t0" : "{}");
}

}  // namespace attune::score
