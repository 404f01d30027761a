// SPDX-License-Identifier: Apache-2.0
// The result of each operation, in float64 and 32-bit ints. Used by evaluate() and to fold
// constants.
#pragma once

#include "generator/core/score/evaluate.hpp"

namespace attune::score {

// Depends on the node's type: `real` for a float, `integer` for an int, 0 or 1 in `integer` for a
// bool.
union Value {
  double real;
  int32_t integer;
};

Value value_of_constant(const Node& node);
int32_t saturated_int(double value);  // rounds towards 0; 0 for NaN

// Returns the value of a constant, name, scalar or load; `indices` are the load's.
Value leaf_value(const Node& node, const Point& point, const Loads& loads,
                 std::span<const int64_t> indices);

// Returns the result of any operation with operands, except a load. `type` is the operands' type;
// for kSelect, the type of the last two.
Value compute(Operation operation, Type type, const Value* operands);

}  // namespace attune::score
