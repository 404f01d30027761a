// SPDX-License-Identifier: Apache-2.0
// Moves multiplications from elements to less frequent values; see rewrites.hpp.
#include "generator/score/analysis/rewrites.hpp"

#include <cmath>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "generator/score/analysis/dependence.hpp"
#include "generator/score/analysis/positions.hpp"
#include "generator/score/language/builder.hpp"

namespace attune::score {
namespace {

constexpr int kMostNodes = 4 * kMaxNodes;

class Stepper {
 public:
  explicit Stepper(const Program& program) : program_(program) {}

  SteppedProgram run() {
    const int root = builder_.import(program_, [&](int there, std::span<const int> here) {
      return rewritten(program_.nodes()[static_cast<size_t>(there)], here);
    });
    inverse_ = make(Operation::kDivide, builder_.constant(1.0F), unit());
    const std::optional<int> result = in_units(root);
    return {builder_.finish(result.value_or(root), kMostNodes), result.has_value()};
  }

 private:
  const Node& node(int number) const { return builder_.node(number); }
  int make(Operation operation, int a, int b) {
    return builder_.make(operation, Type::kFloat, {a, b});
  }
  int unit() { return builder_.name(Name::kScoreUnit); }

  Dependences depends(int number) {
    const auto at = static_cast<size_t>(number);
    if (at >= depends_.size()) depends_.resize(at + 1, kUnknown);
    if (depends_[at] != kUnknown) return depends_[at];
    const Node n = node(number);
    Dependences d = own_dependence(n);
    for (size_t i = 0; i < n.num_operands; ++i) d |= depends(n.operands[i]);
    return depends_[at] = d;
  }
  bool is_element(int number) { return level_of(depends(number)) == Level::kElement; }

  // Returns the other factor if a node is a product of the score and a factor.
  std::optional<int> factor(int number) {
    const Node& n = node(number);
    if (n.operation != Operation::kMultiply) return std::nullopt;
    const Node& first = node(n.operands[0]);
    const bool is_score =
        first.operation == Operation::kName && static_cast<Name>(first.index) == Name::kScore;
    return is_score && !is_element(n.operands[1]) ? std::optional<int>(n.operands[1])
                                                  : std::nullopt;
  }
  int score_times(int by) { return make(Operation::kMultiply, builder_.name(Name::kScore), by); }

  std::optional<int> rewritten(const Node& n, std::span<const int> here) {
    if (n.operation == Operation::kName && static_cast<Name>(n.index) == Name::kScore)
      return score_times(unit());
    if (n.operation == Operation::kToFloat) return float_of(here[0]);
    if (n.type != Type::kFloat) return std::nullopt;
    if (n.operation == Operation::kNegate)
      if (const auto by = factor(here[0]))
        return score_times(builder_.make(Operation::kNegate, Type::kFloat, {*by}));
    if (n.operation != Operation::kMultiply) return std::nullopt;
    for (const size_t i : {size_t{0}, size_t{1}})
      if (const auto by = factor(here[i]); by && !is_element(here[1 - i]))
        return score_times(make(Operation::kMultiply, *by, here[1 - i]));
    return std::nullopt;
  }

  // If the node is a monotonic int function (abs, min, ..) of a position, returns which operand has
  // the position, counted from 0. Returns -1 for other nodes.
  int ordered_operand(int number, int depth = 0) {
    const Nodes nodes{[&](int i) -> const Node& { return node(i); },
                      [&](int i) { return depends(i); }};
    const Node& n = node(number);
    const bool keeps_order = n.operation == Operation::kAbs || n.operation == Operation::kMin ||
                             n.operation == Operation::kMax || n.operation == Operation::kClamp;
    constexpr int kMostDepth = 4;
    if (n.type != Type::kInt || !keeps_order || depth == kMostDepth) return -1;
    const int last = n.operation == Operation::kClamp ? 1 : n.num_operands;
    for (int i = 0; i < last; ++i) {
      const int operand = n.operands[static_cast<size_t>(i)];
      if (is_position(nodes, operand) || ordered_operand(operand, depth + 1) >= 0) return i;
    }
    return -1;
  }

  // Returns the node converted to float, with the conversion moved inside.
  std::optional<int> float_of(int number) {
    const int ordered = ordered_operand(number);
    if (ordered < 0) return std::nullopt;
    const Node n = node(number);
    int o[3] = {};
    for (int i = 0; i < n.num_operands; ++i) {
      const int operand = n.operands[static_cast<size_t>(i)];
      const auto inner = i == ordered ? float_of(operand) : std::nullopt;
      o[i] = inner ? *inner : builder_.make(Operation::kToFloat, Type::kFloat, {operand});
    }
    if (n.num_operands == 1) return builder_.make(n.operation, Type::kFloat, {o[0]});
    if (n.num_operands == 2) return builder_.make(n.operation, Type::kFloat, {o[0], o[1]});
    return builder_.make(n.operation, Type::kFloat, {o[0], o[1], o[2]});
  }

  int divided(int number) {
    const Node& n = node(number);
    const bool is_infinite = n.operation == Operation::kConstant && std::isinf(n.float_value());
    return is_infinite ? number : make(Operation::kMultiply, number, inverse_);
  }

  // Returns a node divided by the unit, if that adds no cost per element.
  std::optional<int> in_units(int number) {
    const auto known = in_units_.find(number);
    if (known != in_units_.end()) return known->second;
    const std::optional<int> found = find_in_units(number);
    in_units_[number] = found;
    return found;
  }

  std::optional<int> find_in_units(int number) {
    const Node n = node(number);
    if (!is_element(number)) return divided(number);
    if (const auto by = factor(number)) {
      if (*by == unit()) return builder_.name(Name::kScore);
      return score_times(make(Operation::kMultiply, *by, inverse_));
    }
    switch (n.operation) {
      case Operation::kAdd:
      case Operation::kSubtract:
        return sum_in_units(n);
      case Operation::kNegate:
        if (const auto a = in_units(n.operands[0])) return builder_.make(n.operation, n.type, {*a});
        return std::nullopt;
      case Operation::kMultiply:
        for (const size_t i : {size_t{0}, size_t{1}})
          if (!is_element(n.operands[i]))
            return make(n.operation, n.operands[1 - i], divided(n.operands[i]));
        return std::nullopt;
      case Operation::kMin:
      case Operation::kMax: {
        const auto a = in_units(n.operands[0]), b = in_units(n.operands[1]);
        return a && b ? std::optional<int>(make(n.operation, *a, *b)) : std::nullopt;
      }
      case Operation::kSelect: {
        const auto a = in_units(n.operands[1]), b = in_units(n.operands[2]);
        return a && b ? std::optional<int>(builder_.select(n.operands[0], *a, *b)) : std::nullopt;
      }
      default:
        return std::nullopt;
    }
  }

  // A product that is added costs no more than the sum.
  std::optional<int> sum_in_units(const Node& n) {
    const auto a = in_units(n.operands[0]), b = in_units(n.operands[1]);
    if (!a && !b) return std::nullopt;
    return make(n.operation, a ? *a : divided(n.operands[0]), b ? *b : divided(n.operands[1]));
  }

  static constexpr Dependences kUnknown = 0xff;
  const Program& program_;
  Builder builder_{"the printed program"};
  std::vector<Dependences> depends_;
  std::unordered_map<int, std::optional<int>> in_units_;
  int inverse_ = 0;
};

}  // namespace

SteppedProgram stepped(const Program& program) { return Stepper(program).run(); }

}  // namespace attune::score
