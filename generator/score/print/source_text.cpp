// SPDX-License-Identifier: Apache-2.0
// Prints a program as C++ of kernels; see source_text.hpp.
#include "generator/score/print/source_text.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/core/system/error.hpp"
#include "generator/score/analysis/dependence.hpp"
#include "generator/score/analysis/positions.hpp"
#include "generator/score/analysis/rewrites.hpp"
#include "generator/score/language/builder.hpp"
#include "generator/score/print/panel_printer.hpp"
#include "generator/score/print/source_printer.hpp"
#include "generator/score/print/step_printer.hpp"

namespace attune::score {
namespace {

// Rewrites a / b as a * (1 / b) if b has a lower level than a.
Program with_reciprocals(const Program& program) {
  const std::vector<Dependences> dependences = dependences_of(program);
  const auto level = [&](int node) { return level_of(dependences[static_cast<size_t>(node)]); };
  Builder builder("the printed program");
  return builder.finish(
      builder.import(program, [&](int there, std::span<const int> here) -> std::optional<int> {
        const Node& node = program.nodes()[static_cast<size_t>(there)];
        if (node.operation != Operation::kDivide || node.type != Type::kFloat ||
            level(node.operands[1]) >= level(there))
          return std::nullopt;
        const int reciprocal =
            builder.make(Operation::kDivide, Type::kFloat, {builder.constant(1.0F), here[1]});
        if (builder.is_constant(here[1]) &&
            (!builder.is_constant(reciprocal) ||
             !std::isnormal(builder.node(reciprocal).float_value())))
          return std::nullopt;
        return builder.make(Operation::kMultiply, Type::kFloat, {here[0], reciprocal});
      }));
}

// Returns the places in ScoreArgs of a rewritten program's captures or scalars, given the places of
// the original program.
template <class Operands>
std::vector<int> places_by_name(const Operands& rewritten, const Operands& before,
                                const std::vector<int>& places) {
  std::vector<int> found;
  for (const auto& operand : rewritten) {
    const auto same = std::find_if(before.begin(), before.end(),
                                   [&](const auto& other) { return other.name == operand.name; });
    if (same == before.end())
      throw Error(ErrorCode::kInternal, "a rewritten program reads " + operand.name +
                                            ", which the program as it was does not");
    found.push_back(place_of(static_cast<int>(same - before.begin()), places));
  }
  return found;
}

// Maps places to a rewritten program. Programs number their operands in the order of first use, and
// rewriting may change it: score * unit - a[h] * b[kv] reads b first if the product is divided by
// the unit.
Places places_in(const Program& rewritten, const Program& before, const Places& places) {
  return {places_by_name(rewritten.captures(), before.captures(), places.captures),
          places_by_name(rewritten.scalars(), before.scalars(), places.scalars)};
}

// Returns the program after all rewrites that printing applies.
Program printed(const Program& program) {
  return with_reciprocals(program.kind() == Kind::kMask ? hide(identity(), program) : program);
}

}  // namespace

std::string source_text(const Program& program, const Places& places) {
  const Program text = printed(program);
  return SourcePrinter(text, places_in(text, program, places)).text();
}

std::string slope_source_text(const Program& slope, const Places& places) {
  std::string text = source_text(slope, places);
  for (const std::string_view name :
       {"ScoreHead", "ScoreRow", "ScoreColumn", "score_head", "score_row", "score_column",
        "score_element", "kScoreReadsColumns", "kScoreHides"}) {
    std::string own(name);
    const size_t at = own.find_first_of("Ss");
    own.replace(at, 5, own[at] == 'S' ? "Slope" : "slope");
    for (size_t place = 0; (place = text.find(name, place)) != std::string::npos;
         place += own.size())
      text.replace(place, name.size(), own);
  }
  return text;
}

std::string mask_source_text(const Program& program, const Places& places) {
  const Program text = with_reciprocals(program);
  return SourcePrinter(text, places_in(text, program, places)).text();
}

std::string panel_text(const Program& program, const Places& places) {
  const Program text = printed(program);
  return PanelPrinter(text, places_in(text, program, places)).text();
}

std::string mask_panel_text(const Program& program, const Places& places) {
  const Program text = with_reciprocals(program);
  return PanelPrinter(text, places_in(text, program, places)).text();
}

std::string step_text(const Program& program, const Places& places) {
  const SteppedProgram steps = stepped(printed(program));
  return StepPrinter(steps, places_in(steps.program, program, places), may_hide(program), true)
      .text();
}

std::string mask_step_text(const Program& program, const Places& places) {
  const SteppedProgram steps = stepped(printed(program));
  return StepPrinter(steps, places_in(steps.program, program, places), true, false).text();
}

bool keeps_units(const Program& program) { return stepped(printed(program)).keeps_units; }

bool is_tanh(const Program& program) {
  return StepPrinter(stepped(printed(program)), {}, false, true).is_tanh();
}

bool adds_along_diagonals(const Program& program) {
  const SteppedProgram steps = stepped(printed(program));
  return steps.keeps_units && is_score_and_diagonals(steps.program);
}

bool stages_line(const Program& program) {
  return StepPrinter(stepped(printed(program)), {}, false, true).stages_line();
}

}  // namespace attune::score
