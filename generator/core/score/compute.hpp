// SPDX-License-Identifier: Apache-2.0
// What each operation gives, in float64 and 32-bit ints: stated once, for evaluate() and for folding constants.
#pragma once

#include "generator/core/score/evaluate.hpp"

namespace attune::score {

// By the type of its node: real of a float, integer of an int, integer 0 or 1 of a bool.
union Value {
  double real;
  int32_t integer;
};

Value value_of_constant(const Node& node);
int32_t saturated_int(double value);  // towards 0; 0 for NaN

// Of a constant, name, scalar or load, which has these indices.
Value leaf_value(const Node& node, const Point& point, const Loads& loads,
                 std::span<const int64_t> indices);

// Of any operation that has operands, but not of a load. `operands` are those of the node, of the type `type` (of a kSelect: that of
// the last two).
Value compute(Operation operation, Type type, const Value* operands);

}  // namespace attune::score
