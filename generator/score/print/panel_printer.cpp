// SPDX-License-Identifier: Apache-2.0
// Prints the lines of captures and the near form; see panel_printer.hpp.
#include "generator/score/print/panel_printer.hpp"

#include <fmt/format.h>

#include "generator/score/analysis/dependence.hpp"
#include "generator/score/analysis/positions.hpp"

namespace attune::score {

PanelPrinter::PanelPrinter(const Program& program, const Places& places)
    : SourcePrinter(program, places) {
  const std::vector<Dependences> dependences = dependences_of(program_);
  const Nodes walk{[&](int i) -> const Node& { return node(i); },
                   [&](int i) { return dependences[static_cast<size_t>(i)]; }};
  for (int i = 0; i <= program_.root(); ++i) {
    const Node& n = node(i);
    if (n.operation != Operation::kLoad || n.num_operands == 0) continue;
    const size_t place = static_cast<size_t>(i);
    const bool has_line = n.num_operands == 1 || line_level_[place] != kElement;
    if (has_line && level_[place] == kElement &&
        step_along(walk, n.operands[n.num_operands - 1U], Name::kKvIdx) == 1)
      lines_.push_back(i);
  }
}

// Declares bools as ints.
std::string PanelPrinter::structs() const {
  std::string found, staged;
  for (size_t i = 0; i < lines_.size(); ++i) {
    found += fmt::format(" const void* l{}[kPanelRows];", i);
    staged += fmt::format(" {} l{}[kScoreStagedKeys][kPanelRows];",
                          node(lines_[i]).type == Type::kFloat ? "float" : "int", i);
  }
  return named(fmt::format("struct ScoreLines {{ int keys;{} }};\nstruct ScoreStaged {{{}{}}};\n",
                           found, staged, staged.empty() ? "" : " "));
}

std::string PanelPrinter::find_function() const {
  std::string body;
  for (size_t i = 0; i < lines_.size(); ++i) {
    const Node& n = node(lines_[i]);
    body += fmt::format("  lines.l{}[lane] = line_from<{}>({}, {}, {}, {}, &lines.keys);\n", i,
                        writer_.type_of_capture(lines_[i]), writer_.address_of(lines_[i]),
                        writer_.capture_of(lines_[i]), n.num_operands - 1,
                        writer_.text_of(n.operands[n.num_operands - 1U]));
  }
  return named(
             "\n// Finds where each row's lines have the key kv_idx. `keys` of them can be staged "
             "for all rows.\n"
             "ATTUNE_SCORE_FUNCTION void score_find_lines(const ScoreArgs& args, const ScoreHead& "
             "on_head, const ScoreRow& on_row,\n    const ScoreColumn& on_column, int batch, int "
             "head, int kv_head, int q_idx, int kv_idx, int lane, ScoreLines& lines) {\n") +
         body + "}\n";
}

std::string PanelPrinter::stage_function() const {
  std::string fetched, body;
  for (size_t i = 0; i < lines_.size(); ++i)
    fetched += fmt::format("  fetch_line<{}>(lines.l{}[lane], keys);\n",
                           writer_.type_of_capture(lines_[i]), i);
  for (size_t i = 0; i < lines_.size(); ++i)
    body += fmt::format("  stage_line<{}>(lines.l{}, first, staged.l{});\n",
                        writer_.type_of_capture(lines_[i]), i, i);
  return named(
             "\n// Prefetches `keys` elements of a row's lines.\n"
             "ATTUNE_SCORE_FUNCTION void score_fetch_lines(const ScoreLines& lines, int lane, int "
             "keys) {\n") +
         fetched +
         named(
             "}\n\n// Stages kScoreStagedKeys keys, from the key `first` of the lines on.\n"
             "ATTUNE_SCORE_FUNCTION void score_stage_lines(const ScoreLines& lines, int first, "
             "ScoreStaged& staged) {\n") +
         body + "}\n";
}

std::vector<bool> PanelPrinter::near_nodes() const {
  std::vector<bool> needed(nodes().size()), is_line(nodes().size());
  for (const int line : lines_) is_line[static_cast<size_t>(line)] = true;
  needed.back() = true;
  for (size_t i = nodes().size(); i-- > 0;) {
    if (!needed[i]) continue;
    if (is_line[i]) needed[i] = false;
    for (size_t o = 0; !is_line[i] && o < nodes()[i].num_operands; ++o)
      needed[static_cast<size_t>(nodes()[i].operands[o])] = true;
  }
  const std::vector<bool> of_elements = nodes_at(kElement);
  for (size_t i = 0; i < needed.size(); ++i) needed[i] = needed[i] && of_elements[i];
  return needed;
}

std::string PanelPrinter::near_function() {
  const std::vector<bool> here = near_nodes();
  for (size_t i = 0; i < lines_.size(); ++i) {
    const std::string staged = fmt::format("staged.l{}[key][lane]", i);
    writer_.bind(lines_[i], node(lines_[i]).type == Type::kBool ? "(" + staged + " != 0)" : staged);
  }
  const PrintedFunction& element = functions_[kElement];
  const std::string body = statements(kElement, here);
  const std::string result = writer_.text_of(program_.root());
  end_function(kElement, here);
  return fmt::format(
      "\n// Returns the same, with loads from the staged key `key`.\n"
      "ATTUNE_SCORE_FUNCTION {} {}({},\n    const {}& staged, int key, int lane) {{\n{}  return "
      "{};\n}}\n",
      element.returns, named("score_near_element"), element.parameters, named("ScoreStaged"), body,
      result);
}

std::string PanelPrinter::functions() {
  std::string text = SourcePrinter::functions();
  return structs() + text + find_function() + stage_function() + near_function();
}

std::string PanelPrinter::constants() const {
  return SourcePrinter::constants() + fmt::format("{}constexpr bool {} = {};\n",
                                                  program_.kind() == Kind::kMask ? "\n" : "",
                                                  named("kScoreHasLines"), !lines_.empty());
}

}  // namespace attune::score
