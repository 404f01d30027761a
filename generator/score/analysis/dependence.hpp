// SPDX-License-Identifier: Apache-2.0
// Finds the names on which the nodes of a program depend. This decides where a kernel computes
// them. Used by the generated source and by cost models.
#pragma once

#include <cstdint>
#include <vector>

#include "generator/score/language/program.hpp"

namespace attune::score {

// A set of kOn... bits.
using Dependences = uint8_t;
inline constexpr Dependences kOnBatch = 1;
inline constexpr Dependences kOnHead = 2;  // head or kv_head
inline constexpr Dependences kOnQ = 4;
inline constexpr Dependences kOnKv = 8;
inline constexpr Dependences kOnScore = 16;

// The level at which a kernel computes a node. kConstant: literals, scalars and lengths only.
enum class Level : uint8_t {
  kConstant = 0,
  kHead = 1,     // batch, head
  kRow = 2,      // and q_idx
  kColumn = 3,   // batch, head and kv_idx
  kElement = 4,  // q_idx and kv_idx, or score
};

Level level_of(Dependences dependences);
// Returns the dependences of a leaf's value; 0 for all other nodes.
Dependences own_dependence(const Node& node);
// Returns the dependences of each node.
std::vector<Dependences> dependences_of(const Program& program);
Level level_of(const Program& program,
               int node);  // walks the whole program

// True if the program reads seqlen_q or seqlen_kv.
bool reads_lengths(const Program& program);

// True if a result may be -infinity or NaN while score and scalars are finite and nothing
// overflows. Sources are an infinite constant, a float capture, a square root or logarithm, and a
// quotient whose divisor may be zero.
bool may_hide(const Program& program);

}  // namespace attune::score
