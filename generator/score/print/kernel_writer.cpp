// SPDX-License-Identifier: Apache-2.0
// Spells the operations of the language in kernels; see kernel_writer.hpp.
#include "generator/score/print/kernel_writer.hpp"

#include <fmt/format.h>

namespace attune::score {
namespace {

constexpr std::string_view kCaptureTypeNames[] = {"kFp32",  "kBf16",  "kFp16", "kInt32",
                                                  "kInt64", "kUint8", "kBool"};

// Returns a function call for every function of the language, for operations that C++ leaves
// undefined for some ints, and for operations that would branch.
NodeSpelling kernel_spelling(Operation operation, Type operands) {
  struct Row {
    Operation operation;
    Type operands;
    const char* function;
  };
  constexpr Row kRows[] = {{Operation::kNegate, Type::kInt, "score_negate"},
                           {Operation::kAdd, Type::kInt, "score_add"},
                           {Operation::kSubtract, Type::kInt, "score_subtract"},
                           {Operation::kMultiply, Type::kInt, "score_multiply"},
                           {Operation::kDivide, Type::kInt, "score_div"},
                           {Operation::kRemainder, Type::kInt, "score_mod"},
                           {Operation::kShiftLeft, Type::kInt, "score_shift_left"},
                           {Operation::kShiftRight, Type::kInt, "score_shift_right"},
                           {Operation::kToInt, Type::kFloat, "score_int"},
                           {Operation::kAnd, Type::kBool, "score_and"},
                           {Operation::kOr, Type::kBool, "score_or"}};
  for (const Row& row : kRows)
    if (row.operation == operation && row.operands == operands) return {row.function, Binds::kAtom};
  const NodeSpelling in_c = c_spelling(operation);
  if (operation == Operation::kSelect) return {"score_select", Binds::kAtom};
  const bool is_function = in_c.binds == Binds::kAtom && operation > Operation::kToInt;
  return is_function ? NodeSpelling{"score_" + in_c.text, Binds::kAtom} : in_c;
}

}  // namespace

std::string capture_type_text(CaptureType type) {
  return "CaptureType::" + std::string(kCaptureTypeNames[static_cast<size_t>(type)]);
}

std::string scalar_text(Type type, int place) {
  switch (type) {
    case Type::kFloat:
      return fmt::format("args.scalars[{}].f32", place);
    case Type::kInt:
      return fmt::format("args.scalars[{}].i32", place);
    case Type::kBool:
      break;
  }
  return fmt::format("(args.scalars[{}].i32 != 0)", place);
}

std::string KernelWriter::type_of_capture(int load) const {
  return capture_type_text(program_.captures()[static_cast<size_t>(node(load).index)].type);
}

std::string KernelWriter::capture_of(int load) const {
  return fmt::format("args.captures[{}]", place_of(node(load).index, places_.captures));
}

std::string KernelWriter::line_address(int load) const {
  const Node& n = node(load);
  std::string text = fmt::format("capture_line<{}>({}", type_of_capture(load), capture_of(load));
  for (size_t i = 0; i + 1 < n.num_operands; ++i) text += ", " + text_of(n.operands[i]);
  return text + ")";
}

std::string KernelWriter::address_of(int load) const {
  const std::string& address = addresses_[static_cast<size_t>(load)];
  return address.empty() ? capture_of(load) + ".data" : address;
}

std::string KernelWriter::leaf(const Node& n) const {
  if (n.operation == Operation::kName) {
    const Name name = static_cast<Name>(n.index);
    if (name == Name::kScoreUnit) return "unit";
    return std::string(name >= Name::kSeqlenQ ? "args." : "") + name_text(name);
  }
  if (n.operation == Operation::kScalar)
    return scalar_text(program_.scalars()[static_cast<size_t>(n.index)].type,
                       place_of(n.index, places_.scalars));
  if (n.type == Type::kBool) return n.int_value() != 0 ? "true" : "false";
  const int32_t value = n.int_value();
  return value == INT32_MIN ? "(-2147483647 - 1)" : std::to_string(value);
}

std::string KernelWriter::load(const Node& n, const std::vector<std::string>& indices) const {
  const int number = static_cast<int>(&n - program_.nodes().data());
  const std::string& address = addresses_[static_cast<size_t>(number)];
  if (!address.empty())
    return fmt::format("load_in_line<{}>({}, {}, {}, {})", type_of_capture(number), address,
                       capture_of(number), indices.size() - 1, indices.back());
  std::string text =
      fmt::format("load_capture<{}>({}", type_of_capture(number), capture_of(number));
  for (const std::string& index : indices) text += ", " + index;
  return text + ")";
}

NodeSpelling KernelWriter::spelling(const Node& n, Type operands) const {
  return kernel_spelling(n.operation, operands);
}

}  // namespace attune::score
