// SPDX-License-Identifier: Apache-2.0
// Writes expressions with few parentheses; see expression_writer.hpp. Keeps parentheses around
// mixed operators that cause compiler warnings or that readers misread.
#include "generator/score/language/expression_writer.hpp"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "generator/core/system/error.hpp"

namespace attune::score {
namespace {

constexpr int kMaxDepth = 24;  // of nested operations without a local

// Spellings of the operations from kToFloat on, in the order of Operation.
struct Spelling {
  const char* text;
  Binds binds;
};
constexpr Spelling kSpellings[] = {
    {"float", Binds::kAtom},     // kToFloat
    {"int", Binds::kAtom},       // kToInt
    {"-", Binds::kSign},         // kNegate
    {"+", Binds::kSum},          // kAdd
    {"-", Binds::kSum},          // kSubtract
    {"*", Binds::kProduct},      // kMultiply
    {"/", Binds::kProduct},      // kDivide
    {"%", Binds::kProduct},      // kRemainder
    {"floordiv", Binds::kAtom},  // kFloorDivide
    {"floormod", Binds::kAtom},  // kFloorModulo
    {"&", Binds::kBits},         // kBitAnd
    {"|", Binds::kBits},         // kBitOr
    {"^", Binds::kBits},         // kBitXor
    {"~", Binds::kSign},         // kBitNot
    {"<<", Binds::kShift},       // kShiftLeft
    {">>", Binds::kShift},       // kShiftRight
    {"<", Binds::kOrder},        // kLess
    {"<=", Binds::kOrder},       // kLessEqual
    {"==", Binds::kEquality},    // kEqual
    {"!=", Binds::kEquality},    // kNotEqual
    {"!", Binds::kSign},         // kNot
    {"&&", Binds::kAnd},         // kAnd
    {"||", Binds::kOr},          // kOr
    {"", Binds::kChoice},        // kSelect
    {"abs", Binds::kAtom},       // kAbs
    {"min", Binds::kAtom},       // kMin
    {"max", Binds::kAtom},       // kMax
    {"clamp", Binds::kAtom},     // kClamp
    {"floor", Binds::kAtom},     // kFloor
    {"sqrt", Binds::kAtom},      // kSqrt
    {"rsqrt", Binds::kAtom},     // kRsqrt
    {"exp", Binds::kAtom},       // kExp
    {"exp2", Binds::kAtom},      // kExp2
    {"log", Binds::kAtom},       // kLog
    {"log2", Binds::kAtom},      // kLog2
    {"tanh", Binds::kAtom},      // kTanh
    {"sigmoid", Binds::kAtom},   // kSigmoid
};
constexpr int kFirstSpelt = static_cast<int>(Operation::kToFloat);
static_assert(std::size(kSpellings) == kNumOperations - kFirstSpelt);

bool is_negative_constant(const Node& node) {
  if (node.operation != Operation::kConstant || node.type == Type::kBool) return false;
  return node.type == Type::kFloat ? std::signbit(node.float_value()) : node.int_value() < 0;
}

// True if an operand needs no parentheses.
bool stands_bare(Binds parent, Binds child, int place) {
  if (child == Binds::kAtom) return true;
  if (parent == Binds::kSign) return false;
  if (child == Binds::kSign) return place == 0 || parent >= Binds::kShift;
  switch (parent) {
    case Binds::kProduct:
      return child == Binds::kProduct && place == 0;
    case Binds::kSum:
      return child == Binds::kProduct || (child == Binds::kSum && place == 0);
    case Binds::kOrder:
    case Binds::kEquality:
      return child == Binds::kProduct || child == Binds::kSum;
    case Binds::kAnd:
    case Binds::kOr:
      return child <= Binds::kSum || child == Binds::kOrder || child == Binds::kEquality ||
             (child == parent && place == 0);
    case Binds::kChoice:
      return child <= Binds::kSum || child == Binds::kOrder || child == Binds::kEquality ||
             (child < Binds::kChoice && place == 0);
    default:
      return false;
  }
}

}  // namespace

NodeSpelling c_spelling(Operation operation) {
  const int place = static_cast<int>(operation) - kFirstSpelt;
  if (place < 0)
    throw Error(ErrorCode::kInternal,
                fmt::format("score operation {} has no spelling", static_cast<int>(operation)));
  return {kSpellings[place].text, kSpellings[place].binds};
}

NodeSpelling ExpressionWriter::spelling_of(const Node& n) const {
  const size_t last = n.num_operands - 1U;  // the first operand of a choice is its condition
  return spelling(n, node(n.operands[last]).type);
}

Binds ExpressionWriter::binds(int number) const {
  if (!names_[static_cast<size_t>(number)].empty()) return Binds::kAtom;
  const Node& n = node(number);
  if (is_negative_constant(n)) return Binds::kSign;
  if (n.num_operands == 0 || n.operation == Operation::kLoad) return Binds::kAtom;
  return spelling_of(n).binds;
}

std::string ExpressionWriter::operand(const Node& parent, Binds parent_binds, int place) const {
  const int number = parent.operands[static_cast<size_t>(place)];
  const std::string text = text_of(number);
  return stands_bare(parent_binds, binds(number), place) ? text : "(" + text + ")";
}

// Returns the shortest decimal text that parses to the same value.
std::string ExpressionWriter::float_constant(float value) const {
  const std::string sign = std::signbit(value) ? "-" : "";
  if (std::isinf(value)) return sign + infinity();
  std::string digits = fmt::format("{}", std::fabs(value));
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return sign + digits + std::string(float_suffix());
}

std::string ExpressionWriter::text_of(int number) const {
  const std::string& name = names_[static_cast<size_t>(number)];
  return name.empty() ? written(node(number)) : name;
}

std::string ExpressionWriter::written(const Node& n) const {
  if (n.operation == Operation::kConstant && n.type == Type::kFloat)
    return float_constant(n.float_value());
  if (n.num_operands == 0 && n.operation != Operation::kLoad) return leaf(n);
  const auto in_list = [&](int place) { return text_of(n.operands[static_cast<size_t>(place)]); };
  if (n.operation == Operation::kLoad) {
    std::vector<std::string> indices;
    for (int i = 0; i < n.num_operands; ++i) indices.push_back(in_list(i));
    return load(n, indices);
  }
  const NodeSpelling how = spelling_of(n);
  if (how.binds == Binds::kAtom) {
    std::string list;
    for (int i = 0; i < n.num_operands; ++i) list += (i == 0 ? "" : ", ") + in_list(i);
    return fmt::format("{}({})", how.text, list);
  }
  const auto part = [&](int place) { return operand(n, how.binds, place); };
  if (how.binds == Binds::kSign) return how.text + part(0);
  if (how.binds == Binds::kChoice) return fmt::format("{} ? {} : {}", part(0), part(1), part(2));
  return fmt::format("{} {} {}", part(0), how.text, part(1));
}

std::vector<bool> nodes_to_name(const Program& program, const std::vector<bool>& here,
                                const std::vector<bool>& is_named) {
  const std::vector<Node>& nodes = program.nodes();
  std::vector<int> uses(nodes.size()), depth(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i)
    for (size_t o = 0; here[i] && o < nodes[i].num_operands; ++o)
      ++uses[static_cast<size_t>(nodes[i].operands[o])];
  std::vector<bool> needs_name(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!here[i] || is_named[i]) continue;
    for (size_t o = 0; o < nodes[i].num_operands; ++o)
      depth[i] = std::max(depth[i], depth[static_cast<size_t>(nodes[i].operands[o])] + 1);
    needs_name[i] = nodes[i].num_operands > 0 && (uses[i] > 1 || depth[i] >= kMaxDepth);
    if (needs_name[i]) depth[i] = 0;
  }
  return needs_name;
}

}  // namespace attune::score
