// SPDX-License-Identifier: Apache-2.0
// One line for each node; see range_text.hpp.
#include "generator/core/score/range_text.hpp"

#include <fmt/format.h>

#include <cmath>

#include "generator/core/error.hpp"

namespace attune::score {
namespace {

constexpr std::string_view kCaptureTypeNames[] = {"kFp32",  "kBf16",  "kFp16", "kInt32",
                                                  "kInt64", "kUint8", "kBool"};

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

std::string scalar_text(Type type, int place) {
  switch (type) {
    case Type::kFloat:
      return fmt::format("float_range(args.scalars[{}].f32)", place);
    case Type::kInt:
      return fmt::format("int_range(args.scalars[{}].i32)", place);
    case Type::kBool:
      break;
  }
  return fmt::format("bool_range(args.scalars[{}].i32 != 0)", place);
}

std::string node_text(const Program& program, const Places& places, const Node& n) {
  const auto operand = [&](size_t i) { return fmt::format("r{}", n.operands[i]); };
  switch (n.operation) {
    case Operation::kConstant:
      return constant_text(n);
    case Operation::kName:
      return name_range(static_cast<Name>(n.index));
    case Operation::kScalar:
      return scalar_text(n.type, place_of(n.index, places.scalars));
    default:
      break;
  }
  std::string text = range_function(n.operation);
  if (n.operation == Operation::kLoad) {
    const Capture& capture = program.captures()[static_cast<size_t>(n.index)];
    text += fmt::format("<CaptureType::{}>(args.captures[{}]",
                        kCaptureTypeNames[static_cast<size_t>(capture.type)],
                        place_of(n.index, places.captures));
    for (size_t i = 0; i < n.num_operands; ++i) text += ", " + operand(i);
    return text + ")";
  }
  if (text.empty()) return "any_float()";
  text += "(" + operand(0);
  for (size_t i = 1; i < n.num_operands; ++i) text += ", " + operand(i);
  return text + ")";
}

}  // namespace

std::string range_function(Operation operation) {
  switch (operation) {
    case Operation::kLoad:
      return "load_range";
    case Operation::kToFloat:
      return "range_float";
    case Operation::kToInt:
      return "range_int";
    case Operation::kNegate:
      return "range_negate";
    case Operation::kAdd:
      return "range_add";
    case Operation::kSubtract:
      return "range_subtract";
    case Operation::kMultiply:
      return "range_multiply";
    case Operation::kDivide:
      return "range_div";
    case Operation::kRemainder:
      return "range_mod";
    case Operation::kFloorDivide:
      return "range_floordiv";
    case Operation::kFloorModulo:
      return "range_floormod";
    case Operation::kBitAnd:
      return "range_bit_and";
    case Operation::kBitOr:
      return "range_bit_or";
    case Operation::kBitXor:
      return "range_bit_xor";
    case Operation::kBitNot:
      return "range_bit_not";
    case Operation::kShiftLeft:
      return "range_shift_left";
    case Operation::kShiftRight:
      return "range_shift_right";
    case Operation::kLess:
      return "range_less";
    case Operation::kLessEqual:
      return "range_less_equal";
    case Operation::kEqual:
      return "range_equal";
    case Operation::kNotEqual:
      return "range_not_equal";
    case Operation::kNot:
      return "range_not";
    case Operation::kAnd:
      return "range_and";
    case Operation::kOr:
      return "range_or";
    case Operation::kSelect:
      return "range_select";
    case Operation::kAbs:
      return "range_abs";
    case Operation::kMin:
      return "range_min";
    case Operation::kMax:
      return "range_max";
    case Operation::kClamp:
      return "range_clamp";
    case Operation::kFloor:
      return "range_floor";
    default:
      return "";
  }
}

std::string range_text(const Program& mask, const Places& places) {
  if (mask.kind() != Kind::kMask)
    throw Error(ErrorCode::kInternal, "ranges are printed of mask programs");
  std::string text =
      "ATTUNE_SCORE_FUNCTION BoolRange mask_range(const ScoreArgs& args, IntRange batch, IntRange "
      "head,\n    IntRange kv_head, IntRange q_idx, IntRange kv_idx) {\n";
  int number = 0;
  for (const Node& node : mask.nodes())
    text += fmt::format("  const {} r{} = {};\n", range_type(node.type), number++,
                        node_text(mask, places, node));
  return text + fmt::format("  return r{};\n}}\n", mask.root());
}

}  // namespace attune::score
