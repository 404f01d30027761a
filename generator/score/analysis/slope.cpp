// SPDX-License-Identifier: Apache-2.0
// See rewrites.hpp.
#include "generator/score/analysis/rewrites.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "generator/score/language/builder.hpp"

namespace attune::score {
namespace {

constexpr float kLn2 = 0.69314718055994531F;

// The derivative of a node, or nullopt for zero.
using Slope = std::optional<int>;

class Differentiator {
 public:
  // `moved` is the node by which the program is differentiated.
  Differentiator(const Program& program, int moved) : program_(program), moved_(moved) {}

  Program run() {
    std::vector<int> here;  // the number of each node of the program
    builder_.import(program_, nullptr, &here);
    const auto number = [&](int node) { return here[static_cast<size_t>(node)]; };
    for (const Node& node : program_.nodes()) {
      int operands[4] = {};
      for (size_t i = 0; i < node.num_operands; ++i) operands[i] = number(node.operands[i]);
      slopes_.push_back(slope_of(node, operands, here[slopes_.size()]));
    }
    return builder_.finish(slopes_.back().value_or(constant(0)));
  }

 private:
  int constant(float value) { return builder_.constant(value); }
  int make(Operation operation, int a, int b) {
    return builder_.make(operation, Type::kFloat, {a, b});
  }
  int times(int a, int b) {
    if (a == constant(1)) return b;
    return b == constant(1) ? a : make(Operation::kMultiply, a, b);
  }
  int negative(int a) { return builder_.make(Operation::kNegate, Type::kFloat, {a}); }
  int less(int a, int b) { return builder_.make(Operation::kLess, Type::kBool, {a, b}); }

  Slope scaled(Slope a, int factor) { return a ? Slope(times(*a, factor)) : a; }
  Slope sum(Slope a, Slope b) {
    if (!a || !b) return a ? a : b;
    return make(Operation::kAdd, *a, *b);
  }
  Slope minus(Slope a) { return a ? Slope(negative(*a)) : a; }
  Slope either(int condition, Slope a, Slope b) {
    if (!a && !b) return a;
    return builder_.select(condition, a.value_or(constant(0)), b.value_or(constant(0)));
  }

  bool is_hidden(int number) const {
    return builder_.is_constant(number) &&
           builder_.node(number).float_value() == -std::numeric_limits<float>::infinity();
  }

  Slope operand(const Node& node, size_t i) const {
    return i < node.num_operands ? slopes_[static_cast<size_t>(node.operands[i])] : Slope();
  }

  // `here` are the operands' numbers in the builder, and `result` is the node's number there.
  Slope slope_of(const Node& node, const int (&here)[4], int result) {
    if (static_cast<int>(slopes_.size()) == moved_) return constant(1);
    if (node.type != Type::kFloat) return {};
    const Slope a = operand(node, 0), b = operand(node, 1), c = operand(node, 2);
    if (!a && !b && !c) return {};
    switch (node.operation) {
      case Operation::kNegate:
        return minus(a);
      case Operation::kAdd:
        return sum(a, b);
      case Operation::kSubtract:
        return sum(a, minus(b));
      case Operation::kMultiply:
        return sum(scaled(a, here[1]), scaled(b, here[0]));
      case Operation::kDivide: {
        const Slope numerator = sum(a, minus(scaled(b, result)));
        return make(Operation::kDivide, *numerator, here[1]);
      }
      case Operation::kSelect:
        if (is_hidden(here[1])) return c;
        return is_hidden(here[2]) ? b : either(here[0], b, c);
      case Operation::kAbs:
        return either(less(constant(0), here[0]), a,
                      either(less(here[0], constant(0)), minus(a), {}));
      case Operation::kMin:
        return either(less(here[1], here[0]), b, a);
      case Operation::kMax:
        return either(less(here[0], here[1]), b, a);
      case Operation::kClamp:
        return either(less(here[2], make(Operation::kMax, here[0], here[1])), c,
                      either(less(here[0], here[1]), b, a));
      default:
        return function_slope(node.operation, a, here[0], result);
    }
  }

  // For functions of one float: `x` is the argument, `y` the result.
  Slope function_slope(Operation operation, Slope a, int x, int y) {
    switch (operation) {
      case Operation::kSqrt:
        return make(Operation::kDivide, *scaled(a, constant(0.5F)), y);
      case Operation::kRsqrt:
        return scaled(a, times(constant(-0.5F), times(y, times(y, y))));
      case Operation::kExp:
        return scaled(a, y);
      case Operation::kExp2:
        return scaled(a, times(constant(kLn2), y));
      case Operation::kLog:
        return make(Operation::kDivide, *a, x);
      case Operation::kLog2:
        return make(Operation::kDivide, *a, times(constant(kLn2), x));
      case Operation::kTanh:
        return scaled(a, make(Operation::kSubtract, constant(1), times(y, y)));
      case Operation::kSigmoid:
        return scaled(a, times(y, make(Operation::kSubtract, constant(1), y)));
      default:  // kFloor
        return {};
    }
  }

  const Program& program_;
  const int moved_;
  Builder builder_{"the slope of the program"};
  std::vector<Slope> slopes_;  // of each node of the program
};

}  // namespace

Program slope(const Program& program) {
  const std::vector<Node>& nodes = program.nodes();
  const auto is_score = [](const Node& node) {
    return node.operation == Operation::kName && static_cast<Name>(node.index) == Name::kScore;
  };
  const auto found = std::find_if(nodes.begin(), nodes.end(), is_score);
  return Differentiator(program, static_cast<int>(found - nodes.begin())).run();
}

Program slope_of_load(const Program& program, int node) {
  return Differentiator(program, node).run();
}

std::vector<int> float_loads(const Program& program) {
  std::vector<int> loads;
  for (int i = 0; i <= program.root(); ++i) {
    const Node& node = program.nodes()[static_cast<size_t>(i)];
    if (node.operation == Operation::kLoad && node.type == Type::kFloat) loads.push_back(i);
  }
  return loads;
}

bool is_one(const Program& slope) {
  const Node& root = slope.nodes().back();
  return root.operation == Operation::kConstant && root.float_value() == 1;
}

}  // namespace attune::score
