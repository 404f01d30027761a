// SPDX-License-Identifier: Apache-2.0
// Prints one statement per node, in the function for rows or for keys; see source_text.hpp.
#include "generator/score/print/source_text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>
#include <vector>

#include "generator/core/system/error.hpp"
#include "generator/score/analysis/dependence.hpp"
#include "generator/score/print/kernel_writer.hpp"

namespace attune::score {
namespace {

// Returns the name of the function that makes a range of a single value.
const char* range_of_one(Type type) {
  return type == Type::kBool ? "bool_range" : type == Type::kInt ? "int_range" : "float_range";
}

const char* range_type(Type type) {
  return type == Type::kBool ? "BoolRange" : type == Type::kInt ? "IntRange" : "FloatRange";
}

std::string constant_text(const Node& n) {
  if (n.type == Type::kBool) return n.int_value() != 0 ? "bool_range(true)" : "bool_range(false)";
  if (n.type == Type::kInt)
    return n.int_value() == INT32_MIN ? "int_range(-2147483647 - 1)"
                                      : fmt::format("int_range({})", n.int_value());
  const float value = n.float_value();
  if (std::isnan(value)) return "any_float()";
  if (std::isinf(value))
    return value > 0 ? "float_range(score_infinity())" : "float_range(-score_infinity())";
  return fmt::format("float_range({:a}f)", value);
}

std::string name_range(Name name) {
  return name >= Name::kSeqlenQ ? fmt::format("int_range(args.{})", name_text(name))
                                : name_text(name);
}

// Prints a node as a call on ranges. `operand_text` maps an operand's number to its text.
template <class OperandText>
std::string node_text(const Program& program, const Places& places, const Node& n, bool is_on_keys,
                      const OperandText& operand_text) {
  const auto operand = [&](size_t i) { return operand_text(n.operands[i]); };
  switch (n.operation) {
    case Operation::kConstant:
      return constant_text(n);
    case Operation::kName:
      return name_range(static_cast<Name>(n.index));
    case Operation::kScalar:
      return fmt::format("{}({})", range_of_one(n.type),
                         scalar_text(n.type, place_of(n.index, places.scalars)));
    default:
      break;
  }
  std::string text = range_function(n.operation);
  if (n.operation == Operation::kLoad) {
    if (is_on_keys) text += "_of_keys";
    const Capture& capture = program.captures()[static_cast<size_t>(n.index)];
    text += fmt::format("<{}>(args.captures[{}]", capture_type_text(capture.type),
                        place_of(n.index, places.captures));
    for (size_t i = 0; i < n.num_operands; ++i) text += ", " + operand(i);
    return text + ")";
  }
  if (text.empty()) return "any_float()";
  text += "(" + operand(0);
  for (size_t i = 1; i < n.num_operands; ++i) text += ", " + operand(i);
  return text + ")";
}

std::vector<bool> depend_on_keys(const Program& mask) {
  std::vector<bool> all;
  for (const Dependences on : dependences_of(mask)) all.push_back((on & kOnKv) != 0);
  return all;
}

// Returns the nodes that a row stores: operands of nodes that depend on keys, and the result.
std::vector<bool> kept_of_rows(const Program& mask, const std::vector<bool>& on_keys) {
  std::vector<bool> kept(on_keys.size());
  kept[static_cast<size_t>(mask.root())] = true;
  for (size_t i = 0; i < on_keys.size(); ++i)
    for (size_t k = 0; on_keys[i] && k < mask.nodes()[i].num_operands; ++k)
      kept[static_cast<size_t>(mask.nodes()[i].operands[k])] = true;
  return kept;
}

}  // namespace

std::string range_function(Operation operation) {
  constexpr std::pair<Operation, const char*> kFunctions[] = {
      {Operation::kLoad, "load_range"},
      {Operation::kToFloat, "range_float"},
      {Operation::kToInt, "range_int"},
      {Operation::kNegate, "range_negate"},
      {Operation::kAdd, "range_add"},
      {Operation::kSubtract, "range_subtract"},
      {Operation::kMultiply, "range_multiply"},
      {Operation::kDivide, "range_div"},
      {Operation::kRemainder, "range_mod"},
      {Operation::kFloorDivide, "range_floordiv"},
      {Operation::kFloorModulo, "range_floormod"},
      {Operation::kBitAnd, "range_bit_and"},
      {Operation::kBitOr, "range_bit_or"},
      {Operation::kBitXor, "range_bit_xor"},
      {Operation::kBitNot, "range_bit_not"},
      {Operation::kShiftLeft, "range_shift_left"},
      {Operation::kShiftRight, "range_shift_right"},
      {Operation::kLess, "range_less"},
      {Operation::kLessEqual, "range_less_equal"},
      {Operation::kEqual, "range_equal"},
      {Operation::kNotEqual, "range_not_equal"},
      {Operation::kNot, "range_not"},
      {Operation::kAnd, "range_and"},
      {Operation::kOr, "range_or"},
      {Operation::kSelect, "range_select"},
      {Operation::kAbs, "range_abs"},
      {Operation::kMin, "range_min"},
      {Operation::kMax, "range_max"},
      {Operation::kClamp, "range_clamp"},
      {Operation::kFloor, "range_floor"},
  };
  for (const auto& [of, function] : kFunctions)
    if (of == operation) return function;
  return "";
}

std::string range_text(const Program& mask, const Places& places) {
  if (mask.kind() != Kind::kMask)
    throw Error(ErrorCode::kInternal, "ranges are printed of mask programs");
  const std::vector<Node>& nodes = mask.nodes();
  const std::vector<bool> on_keys = depend_on_keys(mask);
  const std::vector<bool> kept = kept_of_rows(mask, on_keys);
  const auto own = [](int number) { return fmt::format("r{}", number); };
  const auto with_rows = [&](int number) {
    return (on_keys[static_cast<size_t>(number)] ? "" : "rows.") + own(number);
  };
  std::string members, values, of_rows, of_keys;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const char* const type = range_type(nodes[i].type);
    const int number = static_cast<int>(i);
    if (on_keys[i]) {
      of_keys += fmt::format("  const {} {} = {};\n", type, own(number),
                             node_text(mask, places, nodes[i], true, with_rows));
      continue;
    }
    of_rows += fmt::format("  const {} {} = {};\n", type, own(number),
                           node_text(mask, places, nodes[i], false, own));
    if (!kept[i]) continue;
    members += fmt::format("  {} {};\n", type, own(number));
    values += (values.empty() ? "" : ", ") + own(number);
  }
  return fmt::format(
      "struct MaskRowRanges {{\n{}}};\n\n"
      "ATTUNE_SCORE_FUNCTION MaskRowRanges mask_row_ranges(const ScoreArgs& args, IntRange batch,\n"
      "    IntRange head, IntRange kv_head, IntRange q_idx) {{\n{}  return {{{}}};\n}}\n\n"
      "ATTUNE_SCORE_FUNCTION BoolRange mask_range(const ScoreArgs& args, const MaskRowRanges& "
      "rows,\n"
      "    IntRange kv_idx) {{\n{}  return {};\n}}\n",
      members, of_rows, values, of_keys, with_rows(mask.root()));
}

}  // namespace attune::score
