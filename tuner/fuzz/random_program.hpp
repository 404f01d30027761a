// SPDX-License-Identifier: Apache-2.0
// Random snippets of the score language, with operands. `attune check --fuzz` and the tests of
// parser, printers and kernels draw from here. The same seed gives the same program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/score/language/program.hpp"

namespace attune::score {

struct RandomProgram {
  Kind kind = Kind::kScore;
  Declarations declarations;  // some may be unused in the text
  std::string text;
};

// kAny: the whole language. kSteady: without operations that turn a small error of a float into a
// large error (comparisons of floats, floor, conversions to int, steep functions), so that float64
// can judge whole kernels.
enum class Calculus { kAny, kSteady };

// Returns a program. Expressions are up to `depth` deep, with locals, conditions and loads of any
// type and rank.
RandomProgram random_program(uint64_t seed, Kind kind = Kind::kScore, int depth = 6,
                             Calculus calculus = Calculus::kAny);

// Tensors and scalars for a parsed program, in host memory. Extents are 1 to 5, so that clamps act;
// strides have gaps and zeros. Floats are multiples of 1/16 up to 4, which every type holds.
class RandomOperands {
 public:
  RandomOperands(const Program& program, uint64_t seed);
  RandomOperands(RandomOperands&&) = default;  // args() points into it
  RandomOperands& operator=(RandomOperands&&) = default;
  const ScoreArgs& args() const { return args_; }
  // Returns the bytes of each capture, for callers that copy them elsewhere.
  const std::vector<std::vector<uint8_t>>& bytes() const { return bytes_; }

 private:
  ScoreArgs args_{};
  std::vector<std::vector<uint8_t>> bytes_;
};

}  // namespace attune::score
