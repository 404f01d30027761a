// SPDX-License-Identifier: Apache-2.0
// Walks over small sums; see positions.hpp.
#include "generator/score/analysis/positions.hpp"

#include <cstdlib>
#include <numeric>
#include <vector>

#include "generator/score/analysis/dependence.hpp"

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

// Walks over the terms of a sum; see positions.hpp.

namespace {

// Returns per node: true if its value is the same along each diagonal of a head.
std::vector<bool> diagonal_nodes(const Program& program) {
  const std::vector<Dependences> depends = dependences_of(program);
  const Nodes nodes{[&](int i) -> const Node& { return program.nodes()[static_cast<size_t>(i)]; },
                    [&](int i) { return depends[static_cast<size_t>(i)]; }};
  std::vector<bool> diagonal;
  for (int i = 0; i <= program.root(); ++i) {
    const Node& n = nodes.node(i);
    const Dependences d = nodes.depends(i);
    const bool moves = (d & (kOnQ | kOnKv)) != 0;
    const auto along_q = step_along(nodes, i, Name::kQIdx);
    const auto along_kv = step_along(nodes, i, Name::kKvIdx);
    const bool is_difference = along_q && along_kv && *along_q + *along_kv == 0;
    bool of_diagonals = n.num_operands > 0;
    for (size_t o = 0; o < n.num_operands; ++o)
      of_diagonals = of_diagonals && diagonal[static_cast<size_t>(n.operands[o])];
    diagonal.push_back((d & kOnScore) == 0 && (!moves || is_difference || of_diagonals));
  }
  return diagonal;
}

constexpr int kNoSum = 1 << 20;  // a term that is neither the score nor constant on diagonals

// Returns how often a sum adds the score, minus how often it subtracts it.
int scores_in(const Node& n, bool is_diagonal, const std::vector<int>& known) {
  const auto of = [&](size_t i) { return known[static_cast<size_t>(n.operands[i])]; };
  if (is_diagonal) return 0;
  switch (n.operation) {
    case Operation::kName:
      return static_cast<Name>(n.index) == Name::kScore ? 1 : kNoSum;
    case Operation::kNegate:
      return of(0) >= kNoSum ? kNoSum : -of(0);
    case Operation::kAdd:
    case Operation::kSubtract: {
      if (of(0) >= kNoSum || of(1) >= kNoSum) return kNoSum;
      const int sum = n.operation == Operation::kAdd ? of(0) + of(1) : of(0) - of(1);
      return std::abs(sum) > 1 ? kNoSum : sum;
    }
    default:
      return kNoSum;
  }
}

}  // namespace

bool is_score_and_diagonals(const Program& program) {
  const std::vector<bool> diagonal = diagonal_nodes(program);
  std::vector<int> scores;
  for (size_t i = 0; i < program.nodes().size(); ++i)
    scores.push_back(scores_in(program.nodes()[i], diagonal[i], scores));
  return scores.back() == 1;
}

// Divisions by constants; see positions.hpp.

int64_t divisor_of(const Program& program, int node) {
  const auto at = [&](int i) -> const Node& { return program.nodes()[static_cast<size_t>(i)]; };
  const Node& n = at(node);
  if (n.type != Type::kInt || n.num_operands != 2) return 0;
  const Node& by = at(n.operands[1]);
  if (by.operation != Operation::kConstant) return 0;
  constexpr int kMostBits = 30;
  const int64_t value = by.int_value();
  if (n.operation == Operation::kShiftRight)
    return value > 0 && value <= kMostBits ? int64_t{1} << value : 0;
  const bool divides = n.operation == Operation::kDivide || n.operation == Operation::kFloorDivide;
  return divides && value > 1 ? value : 0;
}

Blocks blocks_of(const Program& program) {
  const std::vector<Dependences> depends = dependences_of(program);
  Blocks blocks;
  for (int i = 0; i <= program.root(); ++i) {
    const int64_t divisor = divisor_of(program, i);
    if (divisor == 0) continue;
    const Dependences d = depends[static_cast<size_t>(i)] & (kOnQ | kOnKv);
    if (d == kOnQ) blocks.rows = std::gcd(blocks.rows, divisor);
    if (d == kOnKv) blocks.keys = std::gcd(blocks.keys, divisor);
  }
  return blocks;
}

}  // namespace attune::score
