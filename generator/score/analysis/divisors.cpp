// SPDX-License-Identifier: Apache-2.0
// Divisions by constants; see divisors.hpp.
#include "generator/score/analysis/divisors.hpp"

#include <numeric>

#include "generator/score/analysis/dependence.hpp"

namespace attune::score {

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
