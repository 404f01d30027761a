// SPDX-License-Identifier: Apache-2.0
// Score features and programs in the C interface: the fields of attune_problem and attune_operands that speak of them. Used by
// c_problem.cpp and c_plan.cpp.
#pragma once

#include <fmt/format.h>

#include "runtime/c_support.hpp"
#include "runtime/plan.hpp"

namespace attune::c_api {

// A field that must be one of an enumeration's values, which are `first` to `last`.
template <class Value>
Value checked(const char* field, int32_t value, int32_t first, int32_t last, const char* accepted) {
  if (value < first || value > last)
    refuse(fmt::format("problem->{} is {}; must be {}", field, value, accepted));
  return static_cast<Value>(value);
}

// A field that is 0 or 1.
bool flag(const char* field, int32_t value);

void read_scores(const attune_problem& c, Problem* p);
// Fields of ops with a cache (c_append.cpp).
void read_append(const attune_problem& c, Problem* p);
// Null for no program.
const attune_program* c_program(const ProgramDigest& digest, score::Kind kind, const char* field);
// Throws where one name of a plan stands for two things.
void check_names_of_plan(const Plan& plan);
// Those of a plan's score features. Operands has a pointer to it. `map`: of plans with block_map. `has_others`: captures and scalars
// that the plan does not read are passed over, else refused.
ScoreOperands score_operands_of(const attune_score_operands* given, const attune_block_map* map,
                                const Plan& plan, bool has_others = false);
// A call's map as the plan reads it, and what is refused of one: that it is missing, given in vain, or does not fit (c_block_map.cpp).
CaptureView map_view(const attune_block_map& map);
void check_map(const attune_block_map* map, const Problem& asked,
               const attune_score_operands* scores);

}  // namespace attune::c_api
