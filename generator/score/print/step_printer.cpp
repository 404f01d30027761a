// SPDX-License-Identifier: Apache-2.0
// Prints the near form of a program; see step_printer.hpp.
#include "generator/score/print/step_printer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/score/analysis/dependence.hpp"
#include "generator/score/analysis/positions.hpp"

namespace attune::score {
StepPrinter::StepPrinter(const SteppedProgram& program, const Places& places, bool hides,
                         bool stages)
    : SourcePrinter(program.program, places),
      keeps_units_(program.keeps_units),
      hides_(hides),
      stages_(stages) {
  functions_[kHead].parameters =
      "const ScoreArgs& args, float unit, int batch, int head, int kv_head";
  find_nodes();
  find_tanhs();
  find_linear_terms();
}

void StepPrinter::find_nodes() {
  const std::vector<Dependences> dependences = dependences_of(program_);
  const Nodes walk{[&](int i) -> const Node& { return node(i); },
                   [&](int i) { return dependences[static_cast<size_t>(i)]; }};
  for (int i = 0; i <= program_.root(); ++i) {
    const Node& n = node(i);
    if (n.operation == Operation::kToFloat && is_position(walk, n.operands[0])) {
      positions_.push_back(i);
      position_steps_.push_back(*step_along(walk, n.operands[0], Name::kKvIdx));
    }
    if (n.operation != Operation::kLoad || n.num_operands == 0) continue;
    const int last = n.operands[n.num_operands - 1U];
    const bool has_line = n.num_operands == 1 || line_level_[static_cast<size_t>(i)] != kElement;
    if (!has_line || step_along(walk, last, Name::kKvIdx) != 1) continue;
    const auto row_step = step_along(walk, last, Name::kQIdx);
    const bool same_line = n.num_operands == 1 || line_level_[static_cast<size_t>(i)] == kHead;
    const bool is_dense = line_level_[static_cast<size_t>(i)] == kRow;
    lines_.push_back(
        {i, row_step == 0, is_dense, row_step.has_value() && same_line, row_step.value_or(0)});
  }
}

bool StepPrinter::is_multiple_of_score(int number) const {
  const Node& n = node(number);
  const auto is_of_head = [&](int i) { return level_[static_cast<size_t>(i)] == kHead; };
  switch (n.operation) {
    case Operation::kName:
      return static_cast<Name>(n.index) == Name::kScore;
    case Operation::kNegate:
      return is_multiple_of_score(n.operands[0]);
    case Operation::kMultiply:
      return (is_of_head(n.operands[1]) && is_multiple_of_score(n.operands[0])) ||
             (is_of_head(n.operands[0]) && is_multiple_of_score(n.operands[1]));
    default:
      return false;
  }
}

// True if the node is affine in the score. Terms and factors may depend on the row.
bool StepPrinter::is_affine_in_score(int number) const {
  const Node& n = node(number);
  const auto is_of_row = [&](int i) { return level_[static_cast<size_t>(i)] <= kRow; };
  switch (n.operation) {
    case Operation::kName:
      return static_cast<Name>(n.index) == Name::kScore;
    case Operation::kNegate:
      return is_affine_in_score(n.operands[0]);
    case Operation::kAdd:
    case Operation::kSubtract:
    case Operation::kMultiply:
      return (is_of_row(n.operands[1]) && is_affine_in_score(n.operands[0])) ||
             (is_of_row(n.operands[0]) && is_affine_in_score(n.operands[1]));
    default:
      return false;
  }
}

void StepPrinter::find_tanhs() {
  // True for a factor of a product that is replaced as a whole
  std::vector<bool> is_scaled(nodes().size());
  const auto tanh_in = [&](int number) {
    return node(number).operation == Operation::kTanh &&
           is_multiple_of_score(node(number).operands[0]);
  };
  for (int i = 0; i <= program_.root(); ++i) {
    const Node& n = node(i);
    if (n.operation != Operation::kMultiply || n.type != Type::kFloat) continue;
    for (const size_t place : {size_t{0}, size_t{1}}) {
      const int tanh = n.operands[place], scale = n.operands[1 - place];
      if (!tanh_in(tanh) || level_[static_cast<size_t>(scale)] != kHead) continue;
      tanhs_.push_back({i, node(tanh).operands[0], scale, true});
      is_scaled[static_cast<size_t>(tanh)] = true;
    }
  }
  for (int i = 0; i <= program_.root(); ++i) {
    const Node& n = node(i);
    if (n.operation != Operation::kTanh || !is_affine_in_score(n.operands[0])) continue;
    const bool is_odd = is_multiple_of_score(n.operands[0]);
    tanhs_.push_back({i, n.operands[0], -1, is_odd});
  }
  // A tanh that only these products read needs no polynomial itself.
  const auto is_read_alone = [&](const Tanh& t) {
    if (t.scale >= 0 || !is_scaled[static_cast<size_t>(t.node)]) return false;
    for (int i = 0; i <= program_.root(); ++i) {
      const bool replaced = std::any_of(tanhs_.begin(), tanhs_.end(), [&](const Tanh& other) {
        return other.scale >= 0 && other.node == i;
      });
      const Node& n = node(i);
      for (size_t o = 0; !replaced && o < n.num_operands; ++o)
        if (n.operands[o] == t.node) return false;
    }
    return true;
  };
  tanhs_.erase(std::remove_if(tanhs_.begin(), tanhs_.end(), is_read_alone), tanhs_.end());
}

// Returns the index in tanhs_ of the tanh that equals the result, except for hidden scores, or -1.
// With such a tanh the near form is monotonic in the score (see OddTanh::low).
int StepPrinter::rising_tanh() const {
  const auto is_hidden = [&](int i) {
    return node(i).operation == Operation::kConstant && node(i).float_value() == -INFINITY;
  };
  int root = program_.root();
  while (node(root).operation == Operation::kSelect) {
    const Node& n = node(root);
    if (!is_hidden(n.operands[1]) && !is_hidden(n.operands[2])) return -1;
    root = n.operands[is_hidden(n.operands[1]) ? 2 : 1];
  }
  if (tanhs_.size() != 1 || !tanhs_[0].is_odd || tanhs_[0].node != root) return -1;
  return 0;
}

std::string StepPrinter::more_members(size_t level) const {
  std::string text;
  for (size_t i = 0; level == kHead && i < tanhs_.size(); ++i)
    if (tanhs_[i].is_odd) text += fmt::format(" OddTanh t{};", i);
  return text;
}

// Binds the score to 1, so that the text of a tanh's argument is the score's factor.
std::string StepPrinter::more_statements(size_t level) {
  std::string text;
  if (level != kHead) return text;
  int score = 0;  // the node of the score; without one there is no tanh of it
  if (tanhs_.empty()) return text;
  while (score < program_.root() && !(node(score).operation == Operation::kName &&
                                      static_cast<Name>(node(score).index) == Name::kScore))
    ++score;
  writer_.bind(score, "1.0f");
  for (size_t i = 0; i < tanhs_.size(); ++i) {
    const Tanh& t = tanhs_[i];
    if (!t.is_odd) continue;
    text +=
        fmt::format("  values.t{} = odd_tanh_of({}, {});\n", i,
                    t.scale < 0 ? "1.0f" : writer_.text_of(t.scale), writer_.text_of(t.argument));
  }
  writer_.bind(score, "");
  return text;
}

std::string StepPrinter::step_structs() const {
  std::string step = "struct ScoreStep { bool is_near; bool is_linear; int staged_index;",
              loaded = "struct ScoreLoaded {";
  for (size_t i = 0; i < positions_.size(); ++i) step += fmt::format(" float p{};", i);
  for (size_t i = 0; i < signs_.size(); ++i) step += fmt::format(" float g{};", i);
  for (size_t i = 0; i < lines_.size(); ++i) {
    step += fmt::format(" const void* l{};", i);
    loaded += fmt::format(" {} l{};", type_name(node(lines_[i].node).type), i);
  }
  return step + " };\n" + loaded + (lines_.empty() ? "};\n" : " };\n");
}

std::string StepPrinter::step_function() {
  std::string body = "  ScoreStep values{true, true, 0};\n";
  if (staged_line() >= 0) {
    const Node& staged = node(lines_[static_cast<size_t>(staged_line())].node);
    body += fmt::format("  values.staged_index = {};\n",
                        writer_.text_of(staged.operands[staged.num_operands - 1U]));
  }
  for (size_t i = 0; i < positions_.size(); ++i)
    body += fmt::format("  values.p{} = {};\n", i, writer_.text_of(positions_[i]));
  body += sign_statements();
  for (size_t i = 0; i < lines_.size(); ++i) {
    const Node& n = node(lines_[i].node);
    body += fmt::format(
        "  values.l{} = step_in_line<{}, {}>({}, {}, {}, {}, span, "
        "&values.is_near);\n",
        i, writer_.type_of_capture(lines_[i].node), lines_[i].is_pair,
        writer_.address_of(lines_[i].node), writer_.capture_of(lines_[i].node), n.num_operands - 1,
        writer_.text_of(n.operands[n.num_operands - 1U]));
  }
  return fmt::format(
      "\nATTUNE_SCORE_FUNCTION ScoreStep score_step({}) {{\n{}  return values;\n}}\n",
      kStepParameters, body);
}

// Checks the arguments at both ends, since an affine function is largest at an end.
std::string StepPrinter::reach_function() {
  std::string ends, odd;
  for (size_t i = 0; i < tanhs_.size(); ++i) {
    const std::string argument = writer_.text_of(tanhs_[i].argument);
    for (const char* end : {"top", "bottom"})
      ends +=
          fmt::format("  {{\n    const float score = {};\n    is_near &= tanh_is_near({});\n  }}\n",
                      end, argument);
    if (tanhs_[i].is_odd) odd += fmt::format("  is_near &= is_usable(on_head.t{});\n", i);
  }
  return fmt::format(
      "\n// True if the near form is right for scores from `bottom` to `top`.\n"
      "ATTUNE_SCORE_FUNCTION bool score_is_near(const ScoreArgs& args, const ScoreHead& on_head, "
      "const ScoreRow& on_row,\n    int q_idx, float bottom, float top) {{\n  bool is_near = "
      "true;\n{}{}  return is_near;\n}}\n"
      "\n// Returns an upper bound of results for scores below the near range, in either form.\n"
      "ATTUNE_SCORE_FUNCTION float score_low(const ScoreHead& on_head) {{\n  return {};\n}}\n",
      ends, odd, rising_tanh() < 0 ? "score_infinity()" : "on_head.t0.low");
}

void StepPrinter::bind_near() {
  for (size_t i = 0; i < positions_.size(); ++i)
    writer_.bind(positions_[i], fmt::format("(on_step.p{} {} float(offset))", i,
                                            position_steps_[i] > 0 ? "+" : "-"));
  for (size_t i = 0; i < lines_.size(); ++i)
    writer_.bind(lines_[i].node, fmt::format("loaded.l{}", i));
  for (size_t i = 0; i < tanhs_.size(); ++i)
    writer_.bind(tanhs_[i].node,
                 tanhs_[i].is_odd
                     ? fmt::format("odd_tanh(score, on_head.t{})", i)
                     : fmt::format("near_tanh({})", writer_.text_of(tanhs_[i].argument)));
}

// Returns the nodes that `roots` need in the near form.
std::vector<bool> StepPrinter::near_nodes(const std::vector<int>& roots) const {
  std::vector<bool> needed(nodes().size()), is_replaced(nodes().size());
  for (const int i : positions_) is_replaced[static_cast<size_t>(i)] = true;
  for (const Line& line : lines_) is_replaced[static_cast<size_t>(line.node)] = true;
  for (const Tanh& tanh : tanhs_) is_replaced[static_cast<size_t>(tanh.node)] = true;
  for (const int root : roots) needed[static_cast<size_t>(root)] = true;
  for (size_t i = nodes().size(); i-- > 0;) {
    if (!needed[i]) continue;
    if (is_replaced[i]) needed[i] = false;
    for (size_t o = 0; !is_replaced[i] && o < nodes()[i].num_operands; ++o)
      needed[static_cast<size_t>(nodes()[i].operands[o])] = true;
  }
  return needed;
}

std::vector<bool> StepPrinter::near_nodes_at(size_t level, const std::vector<int>& roots) {
  const std::vector<bool> needed = near_nodes(roots);
  std::vector<bool> nodes = nodes_at(level);
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i] = nodes[i] && needed[i];
    if (nodes[i]) writer_.bind(static_cast<int>(i), "");
  }
  return nodes;
}

std::string StepPrinter::near_element(const std::vector<Term>& terms) {
  std::vector<int> roots;
  for (const Term& term : terms) roots.push_back(term.node);
  const std::vector<bool> element = near_nodes_at(kElement, roots);
  const std::string body = statements(kElement, element);
  std::string sum;
  for (const Term& term : terms)
    sum += fmt::format(
        "{}{}",
        term.is_negative ? " - "
        : sum.empty()    ? ""
                         : " + ",
        terms.size() == 1 ? writer_.text_of(term.node) : "(" + writer_.text_of(term.node) + ")");
  end_function(kElement, element);
  return fmt::format("{}  return {};\n", body, sum);
}

std::string StepPrinter::near_functions() {
  const std::vector<bool> column = near_nodes_at(kColumn, {program_.root()});
  bind_near();
  const std::string of_column = statements(kColumn, column);
  end_function(kColumn, column);
  const std::string of_element = near_element({{program_.root(), false}});
  return fmt::format(
      "\n// The near form for column `offset` of the step.\n"
      "ATTUNE_SCORE_FUNCTION ScoreColumn score_near_column(const ScoreArgs& args, const ScoreHead& "
      "on_head, const ScoreStep& on_step,\n    const ScoreLoaded& loaded, int batch, int head, int "
      "kv_head, int kv_idx, int offset) {{\n  ScoreColumn values{{}};\n{}  return values;\n}}\n"
      "\nATTUNE_SCORE_FUNCTION float score_near_element({}) {{\n{}}}\n",
      of_column, kNearParameters, of_element);
}

// Prints functions of a step first: they must not use the names of columns and elements.
std::string StepPrinter::functions() {
  std::string text;
  for (const size_t level : {kHead, kRow}) text += "\n" + function(level);
  text += step_function();
  text += share_function();
  text += loads_function();
  text += prefetch_function();
  text += reach_function();
  for (const size_t level : {kColumn, kElement}) text += "\n" + function(level);
  text += near_functions();
  text += linear_functions();
  text += tanh_function();
  return step_structs() + text;
}

bool StepPrinter::reads_elements() const {
  for (int i = 0; i <= program_.root(); ++i) {
    const bool is_line =
        std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) { return line.node == i; });
    if (node(i).operation == Operation::kLoad && level_[static_cast<size_t>(i)] == kElement &&
        !is_line)
      return true;
  }
  return false;
}

std::string StepPrinter::constants() const {
  const auto shared =
      std::count_if(lines_.begin(), lines_.end(), [](const Line& line) { return line.is_shared; });
  return fmt::format(
      "\nconstexpr bool kScoreHides = {};\n"
      "constexpr bool kScoreKeepsUnits = {};    // results are in units of `unit`\n"
      "constexpr bool kScoreHasConditions = {};  // the near form has conditions\n"
      "constexpr bool kScoreHasLines = {};       // score_loads reads tensors\n"
      "constexpr int kScoreSharedLines = {};     // lines that all rows of a head share\n"
      "constexpr bool kScoreReadsLines = {};     // some lines are not shared\n"
      "constexpr bool kScoreReadsElements = {};  // the near form also loads per element\n"
      "constexpr bool kScoreStagesLine = {};     // one line comes through shared memory\n"
      "constexpr bool kScoreHasReach = {};       // score_is_near needs the largest scores\n"
      "constexpr bool kScoreHasLow = {};         // score_low may be finite\n"
      "constexpr bool kScoreIsTanh = {};         // score_only_tanh is the near form\n"
      "constexpr bool kScoreIsLinear = {};       // score_linear is not 0\n",
      hides_, keeps_units_, has_conditions(), !lines_.empty(), shared,
      shared < static_cast<int>(lines_.size()), reads_elements(), stages_line(), !tanhs_.empty(),
      rising_tanh() >= 0, is_tanh(), !linear_sum_.slope.empty());
}

}  // namespace attune::score
