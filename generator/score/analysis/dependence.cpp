// SPDX-License-Identifier: Apache-2.0
// Dependences and levels of nodes, and nodes that may be infinite; see dependence.hpp.
#include "generator/score/analysis/dependence.hpp"

#include <algorithm>
#include <cmath>

namespace attune::score {
namespace {

bool is_nonzero_constant(const Node& node) {
  return node.operation == Operation::kConstant && node.float_value() != 0;
}

}  // namespace

Dependences own_dependence(const Node& node) {
  if (node.operation != Operation::kName) return 0;
  switch (static_cast<Name>(node.index)) {
    case Name::kScore:
      return kOnScore;
    case Name::kBatch:
      return kOnBatch;
    case Name::kHead:
    case Name::kKvHead:
    case Name::kScoreUnit:
      return kOnHead;
    case Name::kQIdx:
      return kOnQ;
    case Name::kKvIdx:
      return kOnKv;
    default:
      return 0;
  }
}

Level level_of(Dependences d) {
  const bool on_q = (d & kOnQ) != 0, on_kv = (d & kOnKv) != 0;
  if ((d & kOnScore) != 0 || (on_q && on_kv)) return Level::kElement;
  if (on_q) return Level::kRow;
  if (on_kv) return Level::kColumn;
  return d != 0 ? Level::kHead : Level::kConstant;
}

std::vector<Dependences> dependences_of(const Program& program) {
  std::vector<Dependences> all;
  all.reserve(program.nodes().size());
  for (const Node& node : program.nodes()) {
    Dependences d = own_dependence(node);
    for (size_t i = 0; i < node.num_operands; ++i) d |= all[static_cast<size_t>(node.operands[i])];
    all.push_back(d);
  }
  return all;
}

Level level_of(const Program& program, int node) {
  return level_of(dependences_of(program)[static_cast<size_t>(node)]);
}

bool reads_lengths(const Program& program) {
  return std::any_of(program.nodes().begin(), program.nodes().end(), [](const Node& node) {
    return node.operation == Operation::kName && (static_cast<Name>(node.index) == Name::kSeqlenQ ||
                                                  static_cast<Name>(node.index) == Name::kSeqlenKv);
  });
}

bool may_hide(const Program& program) {
  std::vector<bool> infinite;  // per node: it may be infinite or NaN
  for (const Node& node : program.nodes()) {
    bool may_be = false;
    for (size_t i = 0; i < node.num_operands; ++i)
      may_be = may_be || infinite[static_cast<size_t>(node.operands[i])];
    const auto operand = [&](size_t i) -> const Node& {
      return program.nodes()[static_cast<size_t>(node.operands[i])];
    };
    switch (node.operation) {
      case Operation::kConstant:
        may_be = node.type == Type::kFloat && std::isinf(node.float_value());
        break;
      case Operation::kDivide:
        may_be = may_be || !is_nonzero_constant(operand(1));
        break;
      case Operation::kSqrt:
      case Operation::kRsqrt:
      case Operation::kLog:
      case Operation::kLog2:
      case Operation::kLoad:
        may_be = true;
        break;
      default:
        break;
    }
    infinite.push_back(may_be && node.type == Type::kFloat);
  }
  return infinite.back();
}

}  // namespace attune::score
