// SPDX-License-Identifier: Apache-2.0
// Levels of nodes, and the functions of each level; see source_printer.hpp.
#include "generator/score/print/source_printer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "generator/score/analysis/dependence.hpp"

namespace attune::score {
namespace {

// Renames the functions of a score program for a mask program.
std::string as_mask(std::string text) {
  for (const auto& [from, to] : {std::pair{"Score", "Mask"}, std::pair{"score_", "mask_"}})
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; ++at)
      if (text.compare(at, 9, "ScoreArgs") != 0) text.replace(at, std::strlen(from), to);
  return text;
}

std::vector<PrintedFunction> functions_of(Kind kind) {
  std::vector<PrintedFunction> functions{
      {"ScoreHead", "score_head", "on_head.",
       "const ScoreArgs& args, int batch, int head, int kv_head"},
      {"ScoreRow", "score_row", "on_row.",
       "const ScoreArgs& args, const ScoreHead& on_head, int batch, int head, int kv_head, int "
       "q_idx"},
      {"ScoreColumn", "score_column", "on_column.",
       "const ScoreArgs& args, const ScoreHead& on_head, int batch, int head, int kv_head, int "
       "kv_idx"},
      {"float", "score_element", "",
       "const ScoreArgs& args, const ScoreHead& on_head, const ScoreRow& on_row, const "
       "ScoreColumn& on_column,\n"
       "    float score, int batch, int head, int kv_head, int q_idx, int kv_idx"}};
  if (kind != Kind::kMask) return functions;
  PrintedFunction& element = functions.back();
  element.returns = "bool";
  element.parameters.erase(element.parameters.find("float score, "), 13);
  for (PrintedFunction& f : functions)
    for (std::string* text : {&f.returns, &f.name, &f.parameters}) *text = as_mask(*text);
  return functions;
}

}  // namespace

SourcePrinter::SourcePrinter(const Program& program, const Places& places)
    : program_(program), writer_(program_, places), functions_(functions_of(program.kind())) {
  place_nodes();
}

// True for leaves other than loads and the unit of scores. Only one function has the unit as an
// argument; elsewhere it is a member.
bool SourcePrinter::is_leaf(int number) const {
  const Node& n = node(number);
  const bool is_unit =
      n.operation == Operation::kName && static_cast<Name>(n.index) == Name::kScoreUnit;
  return n.num_operands == 0 && n.operation != Operation::kLoad && !is_unit;
}

// True for a leaf, and for a sum or difference of two leaves of which one is a constant, a scalar
// or a length.
bool SourcePrinter::is_trivial(int number) const {
  const Node& n = node(number);
  if (n.num_operands == 0) return is_leaf(number);
  if (n.operation != Operation::kAdd && n.operation != Operation::kSubtract) return false;
  const auto is_constant = [&](int i) {
    const Node& leaf = node(i);
    return leaf.operation != Operation::kName || leaf.index >= static_cast<int>(Name::kSeqlenQ);
  };
  const int a = n.operands[0], b = n.operands[1];
  return is_leaf(a) && is_leaf(b) && (is_constant(a) || is_constant(b));
}

void SourcePrinter::place_lines() {
  line_level_.assign(nodes().size(), kElement);
  line_names_.resize(nodes().size());
  for (size_t i = 0; i < nodes().size(); ++i) {
    const Node& n = nodes()[i];
    if (n.operation != Operation::kLoad || n.num_operands < 2) continue;
    size_t highest = 0;
    for (size_t o = 0; o + 1 < n.num_operands; ++o)
      highest = std::max(highest, level_[static_cast<size_t>(n.operands[o])]);
    if (highest < level_[i] && highest != kColumn) line_level_[i] = highest;
  }
}

void SourcePrinter::place_nodes() {
  const size_t count = nodes().size();
  const std::vector<Dependences> dependences = dependences_of(program_);
  is_member_.resize(count);
  names_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const Level level = level_of(dependences[i]);
    level_.push_back(level == Level::kConstant ? kHead : static_cast<size_t>(level) - 1);
    is_inline_.push_back(is_trivial(static_cast<int>(i)));
  }
  place_lines();
  const auto use = [&](size_t node, size_t by_level) {
    if (!is_inline_[node] && level_[node] != by_level) is_member_[node] = true;
  };
  for (size_t i = 0; i < count; ++i)
    for (size_t o = 0; !is_inline_[i] && o < nodes()[i].num_operands; ++o)
      use(static_cast<size_t>(nodes()[i].operands[o]),
          line_level_[i] != kElement && o + 1 < nodes()[i].num_operands ? line_level_[i]
                                                                        : level_[i]);
  use(count - 1, kElement);
}

std::vector<bool> SourcePrinter::nodes_at(size_t level) const {
  std::vector<bool> here(nodes().size());
  for (size_t i = 0; i < here.size(); ++i) here[i] = level_[i] == level && !is_inline_[i];
  return here;
}

std::string SourcePrinter::statements(size_t level, const std::vector<bool>& here) {
  const std::vector<bool> needs_name = nodes_to_name(program_, here, is_member_);
  std::string body;
  for (size_t i = 0; i < here.size(); ++i) {
    if (!here[i] || !(needs_name[i] || is_member_[i])) continue;
    const int node = static_cast<int>(i);
    if (level == kElement && node == program_.root()) continue;
    if (names_[i].empty()) names_[i] = "v" + std::to_string(next_name_++);
    const std::string value = writer_.text_of(node);
    body += is_member_[i] ? fmt::format("  values.{} = {};\n", names_[i], value)
                          : fmt::format("  const {} {} = {};\n", type_name(nodes()[i].type),
                                        names_[i], value);
    writer_.bind(node, (is_member_[i] ? "values." : "") + names_[i]);
  }
  return body;
}

void SourcePrinter::end_function(size_t level, const std::vector<bool>& here) {
  for (size_t i = 0; i < here.size(); ++i)
    if (here[i])
      writer_.bind(static_cast<int>(i),
                   is_member_[i] ? functions_[level].member_prefix + names_[i] : std::string());
}

std::string SourcePrinter::function(size_t level) {
  const PrintedFunction& f = functions_[level];
  const std::vector<bool> here = nodes_at(level);
  std::string body = statements(level, here);
  for (size_t i = 0; level != kElement && i < here.size(); ++i) {
    if (line_level_[i] != level) continue;
    line_names_[i] = "a" + std::to_string(next_line_++);
    body += fmt::format("  values.{} = {};\n", line_names_[i],
                        writer_.line_address(static_cast<int>(i)));
  }
  body += more_statements(level);
  if (level == kElement) {
    body += "  return " + writer_.text_of(program_.root()) + ";\n";
  } else {
    body = fmt::format("  {} values{{}};\n{}  return values;\n", f.returns, body);
  }
  end_function(level, here);
  for (size_t i = 0; level != kElement && i < here.size(); ++i)
    if (line_level_[i] == level)
      writer_.bind_address(static_cast<int>(i), f.member_prefix + line_names_[i]);
  return fmt::format("ATTUNE_SCORE_FUNCTION {} {}({}) {{\n{}}}\n", f.returns, f.name, f.parameters,
                     body);
}

std::string SourcePrinter::members(size_t level) const {
  std::string text;
  for (size_t i = 0; i < names_.size(); ++i)
    if (is_member_[i] && level_[i] == level)
      text += fmt::format(" {} {};", type_name(nodes()[i].type), names_[i]);
  for (size_t i = 0; i < names_.size(); ++i)
    if (line_level_[i] == level) text += fmt::format(" const void* {};", line_names_[i]);
  text += more_members(level);
  return fmt::format("struct {} {{{}{}}};\n", functions_[level].returns, text,
                     text.empty() ? "" : " ");
}

std::string SourcePrinter::functions() {
  std::string text;
  for (size_t level = 0; level <= kElement; ++level) text += "\n" + function(level);
  return text;
}

std::string SourcePrinter::named(std::string text) const {
  return program_.kind() == Kind::kMask ? as_mask(std::move(text)) : text;
}

std::string SourcePrinter::constants() const {
  if (program_.kind() == Kind::kMask) return "";
  bool reads_columns = false;
  for (size_t i = 0; i < names_.size(); ++i)
    reads_columns = reads_columns || (is_member_[i] && level_[i] == kColumn);
  return fmt::format(
      "\nconstexpr bool kScoreReadsColumns = {};\nconstexpr bool kScoreHides = {};\n",
      reads_columns, may_hide(program_));
}

std::string SourcePrinter::text() {
  const std::string printed = functions();
  std::string structs;
  for (size_t level = 0; level < kElement; ++level) structs += members(level);
  return structs + printed + constants();
}

}  // namespace attune::score
