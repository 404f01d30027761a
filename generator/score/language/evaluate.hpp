// SPDX-License-Identifier: Apache-2.0
// Evaluates a program at one point, in float64. Tests compare kernels with the result.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "generator/score/language/program.hpp"

namespace attune::score {

struct Point {
  double score = 0;
  int32_t batch = 0;
  int32_t head = 0;
  int32_t kv_head = 0;
  int32_t q_idx = 0;
  int32_t kv_idx = 0;
  int32_t seqlen_q = 0;
  int32_t seqlen_kv = 0;
  int32_t head_dim = 0;
};

// Returns the element of a capture (an index into captures()) at the computed indices. The function
// must clamp them to the extents, as kernels and element_of do. Only the low 32 bits of an integer
// are used. It must not call evaluate().
using Load = std::function<double(int capture, std::span<const int64_t> indices)>;

struct Loads {
  Load load;                    // may be empty if the program has no captures
  std::vector<double> scalars;  // one per scalars() entry; bools as 0 and 1
};

// Returns a score, or 0 or 1 for a mask program. Floats are float64 throughout; constants have the
// fp32 values of kernels. Thread-safe. Throws kInvalidArgument if `loads` has too few scalars or no
// callback.
double evaluate(const Program& program, const Point& point, const Loads& loads);

// Returns one element of a capture in host memory, with clamped indices. Of an int64, returns the
// low 32 bits.
double element_of(CaptureType type, const ScoreCapture& capture, std::span<const int64_t> indices);

// Returns Loads that read the captures and scalars of `args`, in host memory. `args` must outlive
// them.
Loads loads_of(const Program& program, const ScoreArgs& args);

// Computes the result of each operation, in float64 and 32-bit ints. Used by evaluate() and to fold
// constants.

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
