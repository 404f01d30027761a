// SPDX-License-Identifier: Apache-2.0
// Walks over the terms of a sum; see diagonal.hpp.
#include "generator/score/analysis/diagonal.hpp"

#include <cstdlib>
#include <vector>

#include "generator/score/analysis/dependence.hpp"
#include "generator/score/analysis/positions.hpp"

namespace attune::score {
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

}  // namespace attune::score
