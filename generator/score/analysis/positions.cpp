// SPDX-License-Identifier: Apache-2.0
// Walks over small sums; see positions.hpp.
#include "generator/score/analysis/positions.hpp"

#include <cstdlib>

namespace attune::score {
namespace {

constexpr int kMostVisits = 16;  // nodes of one sum
constexpr int kLargestConstant = 1 << 28;

bool is_sum(const Node& node) {
  return node.operation == Operation::kAdd || node.operation == Operation::kSubtract ||
         node.operation == Operation::kNegate;
}

std::optional<int> step_of(const Nodes& nodes, int number, Name name, int* visits) {
  const Node& n = nodes.node(number);
  const Dependences asked = name == Name::kQIdx ? kOnQ : kOnKv;
  if ((nodes.depends(number) & asked) == 0) return 0;
  if (n.operation == Operation::kName) return 1;
  if (!is_sum(n) || ++*visits > kMostVisits) return std::nullopt;
  const auto first = step_of(nodes, n.operands[0], name, visits);
  if (!first || n.operation == Operation::kNegate)
    return first ? std::optional<int>(-*first) : std::nullopt;
  const auto second = step_of(nodes, n.operands[1], name, visits);
  if (!second) return std::nullopt;
  return n.operation == Operation::kAdd ? *first + *second : *first - *second;
}

// True for a sum of positions, lengths and a constant, each at most once. Records in `names`, as
// bits, which of them the sum has.
bool is_small_sum(const Nodes& nodes, int number, int* visits, unsigned* names) {
  const Node& n = nodes.node(number);
  if (++*visits > kMostVisits) return false;
  if (n.operation == Operation::kConstant)
    return n.int_value() <= kLargestConstant && n.int_value() >= -kLargestConstant &&
           (*names & 1) == 0 && (*names |= 1) != 0;
  if (n.operation == Operation::kName) {
    const unsigned bit = 2U << n.index;
    const bool is_new = (*names & bit) == 0;
    *names |= bit;
    const Name name = static_cast<Name>(n.index);
    return is_new && (name == Name::kQIdx || name == Name::kKvIdx || name == Name::kSeqlenQ ||
                      name == Name::kSeqlenKv);
  }
  if (!is_sum(n)) return false;
  return is_small_sum(nodes, n.operands[0], visits, names) &&
         (n.num_operands == 1 || is_small_sum(nodes, n.operands[1], visits, names));
}

}  // namespace

std::optional<int> step_along(const Nodes& nodes, int number, Name name) {
  if (nodes.node(number).type != Type::kInt) return std::nullopt;
  int visits = 0;
  return step_of(nodes, number, name, &visits);
}

bool is_position(const Nodes& nodes, int number) {
  int visits = 0;
  unsigned names = 0;
  const auto step = step_along(nodes, number, Name::kKvIdx);
  return step && std::abs(*step) == 1 && is_small_sum(nodes, number, &visits, &names);
}

}  // namespace attune::score
