// SPDX-License-Identifier: Apache-2.0
// Random snippets of the score language with operands for them: what `attune check --fuzz` and the tests of parser, printers and kernels
// draw from. The same seed gives the same program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/core/score/program.hpp"

namespace attune::score {

struct RandomProgram {
  Kind kind = Kind::kScore;
  Declarations declarations;  // also some that the text does not use
  std::string text;
};

// kAny: everything that the language has. kSteady: nothing where a little error of a float becomes a large one (comparisons of floats,
// floor, conversions to int, steep functions), so that whole kernels can be judged by float64.
enum class Calculus { kAny, kSteady };

// Expressions are up to `depth` deep, with locals, conditions and loads of any type and rank.
RandomProgram random_program(uint64_t seed, Kind kind = Kind::kScore, int depth = 6,
                             Calculus calculus = Calculus::kAny);

// Tensors and scalars for a parsed program, in host memory: extents of 1 to 5, so that clamps act; strides with gaps and zeros. Floats
// are multiples of 1/16 up to 4, which every type holds.
class RandomOperands {
 public:
  RandomOperands(const Program& program, uint64_t seed);
  RandomOperands(RandomOperands&&) = default;  // args() points into it
  RandomOperands& operator=(RandomOperands&&) = default;
  const ScoreArgs& args() const { return args_; }
  // Of each capture, for those that copy it elsewhere.
  const std::vector<std::vector<uint8_t>>& bytes() const { return bytes_; }

 private:
  ScoreArgs args_{};
  std::vector<std::vector<uint8_t>> bytes_;
};

}  // namespace attune::score
