// SPDX-License-Identifier: Apache-2.0
// Types of operators and functions; see typed_operations.hpp.
#include "generator/score/language/typed_operations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace attune::score {
namespace {

struct Function {
  std::string_view name;
  Operation operation;
  int num_arguments;
  Type takes;  // kBool: ints or floats
};

constexpr Function kFunctions[] = {{"abs", Operation::kAbs, 1, Type::kBool},
                                   {"min", Operation::kMin, 2, Type::kBool},
                                   {"max", Operation::kMax, 2, Type::kBool},
                                   {"clamp", Operation::kClamp, 3, Type::kBool},
                                   {"select", Operation::kSelect, 3, Type::kBool},
                                   {"floordiv", Operation::kFloorDivide, 2, Type::kInt},
                                   {"floormod", Operation::kFloorModulo, 2, Type::kInt},
                                   {"floor", Operation::kFloor, 1, Type::kFloat},
                                   {"sqrt", Operation::kSqrt, 1, Type::kFloat},
                                   {"rsqrt", Operation::kRsqrt, 1, Type::kFloat},
                                   {"exp", Operation::kExp, 1, Type::kFloat},
                                   {"exp2", Operation::kExp2, 1, Type::kFloat},
                                   {"log", Operation::kLog, 1, Type::kFloat},
                                   {"log2", Operation::kLog2, 1, Type::kFloat},
                                   {"tanh", Operation::kTanh, 1, Type::kFloat},
                                   {"sigmoid", Operation::kSigmoid, 1, Type::kFloat}};

const Function* find_function(std::string_view word) {
  for (const Function& function : kFunctions)
    if (function.name == word) return &function;
  return nullptr;
}

struct Spelling {
  std::string_view sign;
  Operation operation;
};

constexpr Spelling kArithmetic[] = {{"+", Operation::kAdd},
                                    {"-", Operation::kSubtract},
                                    {"*", Operation::kMultiply},
                                    {"/", Operation::kDivide},
                                    {"%", Operation::kRemainder}};
constexpr Spelling kBitwise[] = {{"&", Operation::kBitAnd},
                                 {"|", Operation::kBitOr},
                                 {"^", Operation::kBitXor},
                                 {"<<", Operation::kShiftLeft},
                                 {">>", Operation::kShiftRight}};

template <size_t kCount>
const Operation* find(const Spelling (&spellings)[kCount], std::string_view sign) {
  for (const Spelling& spelling : spellings)
    if (spelling.sign == sign) return &spelling.operation;
  return nullptr;
}

bool fits(int64_t value) {
  return value >= std::numeric_limits<int32_t>::min() &&
         value <= std::numeric_limits<int32_t>::max();
}

}  // namespace

bool is_function(std::string_view word) { return find_function(word) != nullptr; }

std::string function_list() {
  std::string list;
  for (const Function& function : kFunctions) list += std::string(function.name) + ", ";
  return list + "float, int";
}

int TypedOperations::converted(const Expression& e, Type to, std::string_view what) const {
  if (to == Type::kFloat && type(e) == Type::kInt)
    return builder_.make(Operation::kToFloat, Type::kFloat, {e.node});
  require(e, to, what);
  return e.node;
}

void TypedOperations::require(const Expression& e, Type wanted, std::string_view what) const {
  if (type(e) == wanted) return;
  const char* advice = wanted == Type::kBool  ? "; compare it, as in x != 0"
                       : wanted == Type::kInt ? "; convert it with int(..)"
                                              : "; convert it with float(..)";
  snippet_.fail(e.offset,
                fmt::format("{} must be {} {}, not {}{}", what, wanted == Type::kInt ? "an" : "a",
                            type_name(wanted), type_name(type(e)), advice));
}

Expression TypedOperations::cast(Type to, const Expression& a, size_t offset) const {
  if (type(a) == to) return {a.node, offset};
  if (to == Type::kBool) require(a, to, "the operand of (bool)");
  if (to == Type::kInt && type(a) == Type::kFloat && builder_.is_constant(a.node)) {
    const double value = static_cast<double>(builder_.node(a.node).float_value());
    if (!(value > -2147483649.0 && value < 2147483648.0))
      snippet_.fail(offset, fmt::format("{} does not fit in an int of 32 bits", value));
  }
  const Operation operation = to == Type::kFloat ? Operation::kToFloat : Operation::kToInt;
  return {builder_.make(operation, to, {a.node}), offset};
}

// Converts all numbers to float, unless all are ints.
void TypedOperations::balance(std::span<Expression> numbers) const {
  const bool all_ints = std::all_of(numbers.begin(), numbers.end(),
                                    [&](const Expression& e) { return type(e) == Type::kInt; });
  if (all_ints) return;
  for (Expression& e : numbers) e.node = converted(e, Type::kFloat, "a number here");
}

Expression TypedOperations::sign(const Token& sign, const Expression& a) const {
  const std::string what = fmt::format("the operand of '{}'", sign.text);
  if (sign.text == "!") {
    require(a, Type::kBool, what);
    return {builder_.negate_condition(a.node), sign.offset};
  }
  if (sign.text == "~") {
    require(a, Type::kInt, what);
    return {builder_.make(Operation::kBitNot, Type::kInt, {a.node}), sign.offset};
  }
  if (type(a) == Type::kBool)
    snippet_.fail(sign.offset,
                  what + " must be an int or a float, not bool; convert it with int(..)");
  if (sign.text == "+") return {a.node, sign.offset};
  refuse_overflow(Operation::kNegate, {&a, 1}, sign.offset);
  return {builder_.make(Operation::kNegate, type(a), {a.node}), sign.offset};
}

Expression TypedOperations::binary(const Token& sign, const Expression& a,
                                   const Expression& b) const {
  if (sign.text == "&&" || sign.text == "||") return logical(sign, a, b);
  if (find(kBitwise, sign.text) != nullptr) return bitwise(sign, a, b);
  return find(kArithmetic, sign.text) != nullptr ? arithmetic(sign, a, b) : comparison(sign, a, b);
}

Expression TypedOperations::logical(const Token& sign, const Expression& a,
                                    const Expression& b) const {
  const std::string what = fmt::format("an operand of '{}'", sign.text);
  require(a, Type::kBool, what);
  require(b, Type::kBool, what);
  const Operation operation =
      sign.text == "&&" || sign.text == "&" ? Operation::kAnd : Operation::kOr;
  return {builder_.make(operation, Type::kBool, {a.node, b.node}), a.offset};
}

// & | ^ of two bools mean && || !=.
Expression TypedOperations::bitwise(const Token& sign, const Expression& a,
                                    const Expression& b) const {
  const Operation operation = *find(kBitwise, sign.text);
  if (type(a) == Type::kBool && type(b) == Type::kBool) {
    if (operation == Operation::kBitXor)
      return {builder_.make(Operation::kNotEqual, Type::kBool, {a.node, b.node}), a.offset};
    if (operation == Operation::kBitAnd || operation == Operation::kBitOr)
      return logical(sign, a, b);
  }
  if (type(a) != Type::kInt || type(b) != Type::kInt)
    snippet_.fail(sign.offset, fmt::format("'{}' takes two ints{}, not {} and {}", sign.text,
                                           sign.text.size() == 1 ? " or two bools" : "",
                                           type_name(type(a)), type_name(type(b))));
  return {builder_.make(operation, Type::kInt, {a.node, b.node}), a.offset};
}

// a > b becomes b < a.
Expression TypedOperations::comparison(const Token& sign, Expression a, Expression b) const {
  const size_t offset = a.offset;
  const bool is_equality = sign.text == "==" || sign.text == "!=";
  const bool bools = type(a) == Type::kBool && type(b) == Type::kBool;
  if (!(bools && is_equality)) {
    if (type(a) == Type::kBool || type(b) == Type::kBool)
      snippet_.fail(sign.offset, fmt::format("'{}' takes two numbers{}, not {} and {}", sign.text,
                                             is_equality ? " or two bools" : "", type_name(type(a)),
                                             type_name(type(b))));
    Expression both[] = {a, b};
    balance(both);
    a = both[0];
    b = both[1];
  }
  if (sign.text.front() == '>') std::swap(a, b);
  const Operation operation = sign.text == "=="       ? Operation::kEqual
                              : sign.text == "!="     ? Operation::kNotEqual
                              : sign.text.size() == 1 ? Operation::kLess
                                                      : Operation::kLessEqual;
  return {builder_.make(operation, Type::kBool, {a.node, b.node}), offset};
}

Expression TypedOperations::arithmetic(const Token& sign, Expression a, Expression b) const {
  const Operation operation = *find(kArithmetic, sign.text);
  if (type(a) == Type::kBool || type(b) == Type::kBool)
    snippet_.fail(
        sign.offset,
        fmt::format("'{}' takes ints and floats, not {} and {}; convert a bool with int(..)",
                    sign.text, type_name(type(a)), type_name(type(b))));
  Expression both[] = {a, b};
  balance(both);
  if (operation == Operation::kRemainder && type(both[0]) != Type::kInt)
    snippet_.fail(sign.offset, fmt::format("'%' takes two ints, not {} and {}", type_name(type(a)),
                                           type_name(type(b))));
  refuse_overflow(operation, both, sign.offset);
  return {builder_.make(operation, type(both[0]), {both[0].node, both[1].node}), a.offset};
}

Expression TypedOperations::conditional(const Expression& condition, Expression a,
                                        Expression b) const {
  require(condition, Type::kBool, "a condition");
  if (type(a) != type(b)) {
    Expression both[] = {a, b};
    if (type(a) == Type::kBool || type(b) == Type::kBool)
      snippet_.fail(b.offset,
                    fmt::format("both values of a choice must have one type, not {} and {}",
                                type_name(type(a)), type_name(type(b))));
    balance(both);
    a = both[0];
    b = both[1];
  }
  return {builder_.select(condition.node, a.node, b.node), condition.offset};
}

Expression TypedOperations::call(const Token& word,
                                 const std::vector<Expression>& arguments) const {
  const Function* function = find_function(word.text);
  const size_t wanted = static_cast<size_t>(function->num_arguments);
  if (arguments.size() != wanted)
    snippet_.fail(word.offset, fmt::format("{} takes {} argument{}, not {}", word.text, wanted,
                                           wanted == 1 ? "" : "s", arguments.size()));
  if (function->operation == Operation::kSelect) {
    const Expression chosen = conditional(arguments[0], arguments[1], arguments[2]);
    return {chosen.node, word.offset};
  }
  std::vector<Expression> numbers = arguments;
  const std::string what = fmt::format("an argument of {}", word.text);
  for (Expression& e : numbers) {
    if (function->takes != Type::kBool)
      e.node = converted(e, function->takes, what);
    else if (type(e) == Type::kBool)
      snippet_.fail(e.offset,
                    what + " must be an int or a float, not bool; convert it with int(..)");
  }
  return {call_of_numbers(word, function->operation, std::move(numbers)), word.offset};
}

int TypedOperations::call_of_numbers(const Token& word, Operation operation,
                                     std::vector<Expression> numbers) const {
  balance(numbers);
  refuse_overflow(operation, numbers, word.offset);
  const Type result = type(numbers[0]);
  if (numbers.size() == 1) return builder_.make(operation, result, {numbers[0].node});
  if (numbers.size() == 2)
    return builder_.make(operation, result, {numbers[0].node, numbers[1].node});
  return builder_.make(operation, result, {numbers[0].node, numbers[1].node, numbers[2].node});
}

// Checks constants only: at launch, operations wrap.
void TypedOperations::refuse_overflow(Operation operation, std::span<const Expression> operands,
                                      size_t offset) const {
  int64_t values[3] = {};
  for (size_t i = 0; i < operands.size(); ++i) {
    const Node& node = builder_.node(operands[i].node);
    if (node.operation != Operation::kConstant || node.type != Type::kInt) return;
    values[i] = node.int_value();
  }
  const auto [a, b, c] = values;
  int64_t result = 0;
  switch (operation) {
    case Operation::kNegate:
      result = -a;
      break;
    case Operation::kAbs:
      result = a < 0 ? -a : a;
      break;
    case Operation::kAdd:
      result = a + b;
      break;
    case Operation::kSubtract:
      result = a - b;
      break;
    case Operation::kMultiply:
      result = a * b;
      break;
    case Operation::kDivide:
    case Operation::kFloorDivide:
      result = b == -1 ? -a : 0;
      break;
    default:
      break;
  }
  if (!fits(result))
    snippet_.fail(offset, fmt::format("{} does not fit in an int of 32 bits", result));
}

}  // namespace attune::score
