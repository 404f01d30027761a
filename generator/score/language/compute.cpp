// SPDX-License-Identifier: Apache-2.0
// Computes operations; see evaluate.hpp. Must agree with the generated functions of
// templates/cuda/parts/score_functions.cuh and templates/cpu/parts/score_functions.hpp.
#include "generator/score/language/evaluate.hpp"

#include <cmath>
#include <limits>

#include "generator/core/system/error.hpp"

namespace attune::score {
namespace {

constexpr int32_t kLowest = std::numeric_limits<int32_t>::min();
constexpr int32_t kLargest = std::numeric_limits<int32_t>::max();

int32_t wrapped(uint32_t bits) { return static_cast<int32_t>(bits); }
uint32_t bits_of(int32_t value) { return static_cast<uint32_t>(value); }

int32_t quotient(int32_t a, int32_t b) {
  if (b == 0) return 0;
  return b == -1 ? wrapped(0U - bits_of(a)) : a / b;
}

int32_t remainder(int32_t a, int32_t b) { return b == 0 || b == -1 ? 0 : a % b; }

int32_t floor_quotient(int32_t a, int32_t b) {
  const int32_t rest = remainder(a, b);
  return quotient(a, b) - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0);
}

int32_t floor_modulo(int32_t a, int32_t b) {
  const int32_t rest = remainder(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

template <class T>
T smaller(T a, T b) {
  return b < a ? b : a;
}
template <class T>
T larger(T a, T b) {
  return a < b ? b : a;
}

[[noreturn]] void unknown(Operation operation) {
  throw Error(ErrorCode::kInternal,
              "unknown score operation " + std::to_string(static_cast<int>(operation)));
}

int32_t compute_int(Operation operation, int32_t a, int32_t b, int32_t c) {
  switch (operation) {
    case Operation::kNegate:
      return wrapped(0U - bits_of(a));
    case Operation::kAdd:
      return wrapped(bits_of(a) + bits_of(b));
    case Operation::kSubtract:
      return wrapped(bits_of(a) - bits_of(b));
    case Operation::kMultiply:
      return wrapped(bits_of(a) * bits_of(b));
    case Operation::kDivide:
      return quotient(a, b);
    case Operation::kRemainder:
      return remainder(a, b);
    case Operation::kFloorDivide:
      return floor_quotient(a, b);
    case Operation::kFloorModulo:
      return floor_modulo(a, b);
    case Operation::kBitAnd:
      return a & b;
    case Operation::kBitOr:
      return a | b;
    case Operation::kBitXor:
      return a ^ b;
    case Operation::kBitNot:
      return ~a;
    case Operation::kShiftLeft:
      return wrapped(bits_of(a) << (b & 31));
    case Operation::kShiftRight:
      return a >> (b & 31);
    case Operation::kLess:
      return a < b ? 1 : 0;
    case Operation::kLessEqual:
      return a <= b ? 1 : 0;
    case Operation::kEqual:
      return a == b ? 1 : 0;
    case Operation::kNotEqual:
      return a != b ? 1 : 0;
    case Operation::kNot:
      return a ^ 1;
    case Operation::kAnd:
      return a & b;
    case Operation::kOr:
      return a | b;
    case Operation::kAbs:
      return a < 0 ? wrapped(0U - bits_of(a)) : a;
    case Operation::kMin:
      return smaller(a, b);
    case Operation::kMax:
      return larger(a, b);
    case Operation::kClamp:
      return smaller(larger(a, b), c);
    case Operation::kToInt:
      return a;  // for a bool
    default:
      unknown(operation);
  }
}

int32_t compute_comparison(Operation operation, double a, double b) {
  switch (operation) {
    case Operation::kLess:
      return a < b ? 1 : 0;
    case Operation::kLessEqual:
      return a <= b ? 1 : 0;
    case Operation::kEqual:
      return a == b ? 1 : 0;
    case Operation::kNotEqual:
      return a != b ? 1 : 0;
    case Operation::kToInt:
      return saturated_int(a);
    default:
      unknown(operation);
  }
}

double compute_float(Operation operation, double a, double b, double c) {
  switch (operation) {
    case Operation::kNegate:
      return -a;
    case Operation::kAdd:
      return a + b;
    case Operation::kSubtract:
      return a - b;
    case Operation::kMultiply:
      return a * b;
    case Operation::kDivide:
      return a / b;
    case Operation::kAbs:
      return std::fabs(a);
    case Operation::kMin:
      return smaller(a, b);
    case Operation::kMax:
      return larger(a, b);
    case Operation::kClamp:
      return smaller(larger(a, b), c);
    case Operation::kFloor:
      return std::floor(a);
    case Operation::kSqrt:
      return std::sqrt(a);
    case Operation::kRsqrt:
      return 1 / std::sqrt(a);
    case Operation::kExp:
      return std::exp(a);
    case Operation::kExp2:
      return std::exp2(a);
    case Operation::kLog:
      return std::log(a);
    case Operation::kLog2:
      return std::log2(a);
    case Operation::kTanh:
      return std::tanh(a);
    case Operation::kSigmoid:
      return 1 / (1 + std::exp(-a));
    default:
      unknown(operation);
  }
}

bool gives_integer(Operation operation) {
  return (operation >= Operation::kLess && operation <= Operation::kNotEqual) ||
         operation == Operation::kToInt;
}

}  // namespace

Value value_of_constant(const Node& node) {
  Value value{};
  if (node.type == Type::kFloat)
    value.real = static_cast<double>(node.float_value());
  else
    value.integer = node.int_value();
  return value;
}

int32_t saturated_int(double value) {
  if (std::isnan(value)) return 0;
  if (value >= static_cast<double>(kLargest)) return kLargest;
  if (value <= static_cast<double>(kLowest)) return kLowest;
  return static_cast<int32_t>(value);
}

Value compute(Operation operation, Type type, const Value* operands) {
  Value value{};
  if (operation == Operation::kSelect) return operands[operands[0].integer != 0 ? 1 : 2];
  if (operation == Operation::kToFloat)
    value.real = static_cast<double>(operands[0].integer);
  else if (type != Type::kFloat)
    value.integer =
        compute_int(operation, operands[0].integer, operands[1].integer, operands[2].integer);
  else if (gives_integer(operation))
    value.integer = compute_comparison(operation, operands[0].real, operands[1].real);
  else
    value.real = compute_float(operation, operands[0].real, operands[1].real, operands[2].real);
  return value;
}

}  // namespace attune::score
