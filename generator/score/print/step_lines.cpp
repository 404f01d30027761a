// SPDX-License-Identifier: Apache-2.0
// Prints the lines of captures in the near form: one line may come through shared memory, the
// others are loaded; see step_printer.hpp.
#include <fmt/format.h>

#include "generator/score/print/step_printer.hpp"

namespace attune::score {

// Returns the index in lines_ of the first line that has 16-bit elements and differs per row, or
// -1. Kernels copy its rows to shared memory for a whole step.
int StepPrinter::staged_line() const {
  for (size_t i = 0; stages_ && i < lines_.size(); ++i) {
    const CaptureType type =
        program_.captures()[static_cast<size_t>(node(lines_[i].node).index)].type;
    if (lines_[i].is_dense && lines_[i].is_pair &&
        (type == CaptureType::kBf16 || type == CaptureType::kFp16))
      return static_cast<int>(i);
  }
  return -1;
}

std::string StepPrinter::share_function() const {
  std::string body;
  for (size_t i = 0; i < lines_.size(); ++i)
    if (lines_[i].is_shared)
      body += fmt::format("  below->l{0} = line_element<{1}>(above.l{0}, {2} * rows);\n", i,
                          writer_.type_of_capture(lines_[i].node), lines_[i].row_step);
  return fmt::format(
      "\n// `below` is `rows` further down in the same head; its addresses follow from those of "
      "`above`.\n"
      "ATTUNE_SCORE_FUNCTION void score_share(const ScoreStep& above, int rows, ScoreStep* below) "
      "{{\n{}}}\n",
      body);
}

std::string StepPrinter::loads_function() const {
  std::string body;
  const int staged = staged_line();
  for (int i = 0; i < static_cast<int>(lines_.size()); ++i) {
    const Line& line = lines_[static_cast<size_t>(i)];
    const std::string type = writer_.type_of_capture(line.node);
    body +=
        i == staged
            ? fmt::format("  unpack_pair<{}>(staged, &pair[0].l{}, &pair[1].l{});\n", type, i, i)
            : fmt::format("  load_pair<{}, {}>(on_step.l{}, offset, &pair[0].l{}, &pair[1].l{});\n",
                          type, line.is_pair, i, i, i);
  }
  return fmt::format(
      "\nATTUNE_SCORE_FUNCTION void score_loads(const ScoreStep& on_step, int offset, unsigned "
      "staged, ScoreLoaded (&pair)[2]) {{\n{}}}\n"
      "\n// Returns the begin of a row of the staged line.\n"
      "ATTUNE_SCORE_FUNCTION const void* score_staged_line(const ScoreStep& on_step) {{\n"
      "  return {};\n}}\n",
      body, staged < 0 ? "nullptr" : fmt::format("on_step.l{}", staged));
}

// Prints the prefetch of lines that only one row reads.
std::string StepPrinter::prefetch_function() {
  std::string body;
  for (const Line& line : lines_) {
    const Node& n = node(line.node);
    if (line.is_dense)
      body += fmt::format("  prefetch_in_line<{}>({}, {}, {}, {}, part, parts, span);\n",
                          writer_.type_of_capture(line.node), writer_.address_of(line.node),
                          writer_.capture_of(line.node), n.num_operands - 1,
                          writer_.text_of(n.operands[n.num_operands - 1U]));
  }
  return fmt::format(
      "\n// Prefetches for a later step: arguments as for score_step, for part `part` of `parts` "
      "of its keys.\n"
      "ATTUNE_SCORE_FUNCTION void score_prefetch({}, int part, int parts) {{\n{}}}\n",
      kStepParameters, body);
}

}  // namespace attune::score
