// SPDX-License-Identifier: Apache-2.0
// Reads programs and the fields of attune_operands for score features. Used by
// c_problem_fields.hpp and c_plan.cpp.
#pragma once

#include <fmt/format.h>

#include "runtime/c_api/c_support.hpp"
#include "runtime/engine/plan.hpp"

namespace attune::c_api {

// Returns a field as an enumerator. Refuses values below `first` and above `last`; `accepted` names
// the valid enumerators in the message.
template <class Value>
Value checked(const char* field, int32_t value, int32_t first, int32_t last, const char* accepted) {
  if (value < first || value > last)
    refuse(fmt::format("problem->{} is {}; must be {}", field, value, accepted));
  return static_cast<Value>(value);
}

// Returns the digest of a program; an empty one for null.
ProgramDigest digest_of(const attune_program* program);
// Returns the program with this digest; null if the digest is empty.
const attune_program* c_program(const ProgramDigest& digest, score::Kind kind, const char* field);
// Throws if one name of a plan means two different captures or scalars.
void check_names_of_plan(const Plan& plan);
// Returns the captures and scalars that a plan's score features read, for Operands::scores. `map`:
// the map, for plans with block_map. `has_others`: true = captures and scalars that the plan does
// not read are ignored; false = they are refused.
ScoreOperands score_operands_of(const attune_score_operands* given, const attune_block_map* map,
                                const Plan& plan, bool has_others = false);
// Converts a call's map to a capture (c_block_map.cpp).
CaptureView map_view(const attune_block_map& map);
// Refuses a map that is missing, not needed, or too small for the call (c_block_map.cpp).
void check_map(const attune_block_map* map, const Problem& asked,
               const attune_score_operands* scores);

}  // namespace attune::c_api
