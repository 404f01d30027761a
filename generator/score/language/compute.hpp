// SPDX-License-Identifier: Apache-2.0
// Computes the result of each operation, in float64 and 32-bit ints. Used by evaluate() and to fold
// constants.
#pragma once

#include "generator/score/language/evaluate.hpp"

namespace attune::score {

// A node's value; the node's type selects the member. A bool is 0 or 1 in `integer`.
union Value {
  double real;
  int32_t integer;
};

Value value_of_constant(const Node& node);
int32_t saturated_int(double value);  // rounds towards 0; 0 for NaN

// Returns the value of a constant, name, scalar or load. `indices` are the indices of a load.
Value leaf_value(const Node& node, const Point& point, const Loads& loads,
                 std::span<const int64_t> indices);

// Returns the result of an operation that has operands and is not a load. `type` is the operands'
// type; for kSelect, the type of the last two.
Value compute(Operation operation, Type type, const Value* operands);

}  // namespace attune::score
