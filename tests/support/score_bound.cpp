// SPDX-License-Identifier: Apache-2.0
// Computes error bounds by evaluation at the corners of the operands' ranges; see score_bound.hpp.
// Each operation is monotonic in each operand where it matters, or nearly so over such a small
// range.
#include "tests/support/score_bound.hpp"

#include <algorithm>
#include <cmath>

#include "generator/score/language/evaluate.hpp"

namespace attune::score {
namespace {

constexpr double kRounding = 1e-6;
constexpr double kLargest = 1e37;  // no result comes near overflow
constexpr double kFlushed = 1e-36;

struct Fuzzy {
  Value value{};
  double error = 0;
  bool is_certain = true;
};

bool gives_float(const Node& node) { return node.type == Type::kFloat; }

double extra_error(const Node& node, double result, double operand, double tanh_error) {
  switch (node.operation) {
    case Operation::kTanh:
      return tanh_error * std::fabs(result);
    case Operation::kLog:
    case Operation::kLog2:
      return kRounding;
    case Operation::kExp:
    case Operation::kSigmoid:
      return kRounding * std::fabs(operand * result);
    default:
      return 0;
  }
}

// Returns the result of a node. `o` holds its operands, `type` is their type.
Fuzzy combined(const Node& node, Type type, const Fuzzy* o, double tanh_error) {
  Fuzzy result;
  Value centre[3] = {};
  for (int i = 0; i < node.num_operands; ++i) {
    result.is_certain = result.is_certain && o[i].is_certain;
    centre[i] = o[i].value;
  }
  result.value = compute(node.operation, type, centre);
  for (int corner = 0; corner < (1 << node.num_operands); ++corner) {
    Value at[3] = {centre[0], centre[1], centre[2]};
    for (int i = 0; i < node.num_operands && type == Type::kFloat; ++i)
      at[i].real += (corner >> i & 1) != 0 ? o[i].error : -o[i].error;
    const Value there = compute(node.operation, type, at);
    if (gives_float(node))
      result.error = std::max(result.error, std::fabs(there.real - result.value.real));
    else
      result.is_certain = result.is_certain && there.integer == result.value.integer;
    if (node.operation == Operation::kFloor && there.real != result.value.real)
      result.is_certain = false;
  }
  if (!gives_float(node)) return result;
  const double size = std::fabs(result.value.real);
  result.error += kRounding * size + kFlushed + extra_error(node, size, centre[0].real, tanh_error);
  if (node.operation == Operation::kFloor || node.operation == Operation::kNegate ||
      node.operation == Operation::kAbs)
    result.error = o[0].error;
  result.is_certain = result.is_certain && size < kLargest && std::isfinite(result.error);
  return result;
}

Fuzzy chosen(const Fuzzy* o) {
  Fuzzy result = o[o[0].value.integer != 0 ? 1 : 2];
  result.is_certain = result.is_certain && o[0].is_certain;
  return result;
}

}  // namespace

Bound bound_of(const Program& program, const Point& point, const Loads& loads, double tanh_error) {
  const std::vector<Node>& nodes = program.nodes();
  std::vector<Fuzzy> all(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = nodes[i];
    if (node.num_operands == 0 || node.operation == Operation::kLoad) {
      int64_t indices[kMaxCaptureRank] = {};
      for (size_t o = 0; o < node.num_operands; ++o)
        indices[o] = all[static_cast<size_t>(node.operands[o])].value.integer;
      all[i].value = leaf_value(node, point, loads, {indices, node.num_operands});
      if (node.operation == Operation::kConstant && gives_float(node))
        all[i].error = kRounding * std::fabs(all[i].value.real);
      for (size_t o = 0; o < node.num_operands; ++o)
        all[i].is_certain =
            all[i].is_certain && all[static_cast<size_t>(node.operands[o])].is_certain;
      continue;
    }
    Fuzzy operands[3];
    for (size_t o = 0; o < node.num_operands; ++o)
      operands[o] = all[static_cast<size_t>(node.operands[o])];
    const Type type = nodes[static_cast<size_t>(node.operands[0])].type;
    all[i] = node.operation == Operation::kSelect ? chosen(operands)
                                                  : combined(node, type, operands, tanh_error);
  }
  const Fuzzy& root = all.back();
  return {program.kind() == Kind::kMask ? root.value.integer : root.value.real, root.error,
          root.is_certain};
}

}  // namespace attune::score
