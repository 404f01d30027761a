// SPDX-License-Identifier: Apache-2.0
// A program's result at one point, in float64: what kernels are compared with.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "generator/core/score/program.hpp"

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

// The element of a capture (an index into captures()) at the indices that the program computed, whatever they are: the callee clamps
// them to the extents, as kernels do (element_of does). Of an integer's value the low 32 bits count. It must not call evaluate().
using Load = std::function<double(int capture, std::span<const int64_t> indices)>;

struct Loads {
  Load load;                    // may be empty where the program has no captures
  std::vector<double> scalars;  // one for each of scalars(); bools as 0 and 1
};

// A score, or 0 and 1 of a mask. Floats are float64 throughout; constants are the fp32 that kernels see. Thread-safe; takes some 10 ns
// a node. Throws kInvalidArgument where `loads` has too few scalars or no callback.
double evaluate(const Program& program, const Point& point, const Loads& loads);

// One element of a capture that lies in host memory, with clamped indices. An int64 gives its low 32 bits.
double element_of(CaptureType type, const ScoreCapture& capture, std::span<const int64_t> indices);

// Loads of what `args` shows, for captures in host memory. `args` must outlive it.
Loads loads_of(const Program& program, const ScoreArgs& args);

}  // namespace attune::score
