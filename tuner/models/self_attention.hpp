// SPDX-License-Identifier: Apache-2.0
// Reads the operands of one layer's attention from a config: heads, head dims and the scale. Used
// by model_towers.cpp.
#pragma once

#include "generator/core/problem/problem.hpp"
#include "tuner/models/model_fields.hpp"

namespace attune {

extern const Names kHeadNames;    // names of the number of query heads
extern const Names kHiddenNames;  // names of the width of the model

// Returns a problem with heads, head dims and scale. Fields with these names give the number of
// query heads and the width. Throws kInvalidArgument for fields that are missing or contradict.
Problem self_attention(const ModelFields& fields, Names head_names = kHeadNames,
                       Names hidden_names = kHiddenNames);

// Sets the scale that the config states, if it is not 1 / sqrt(head_dim_qk).
void set_scale(const ModelFields& fields, Problem* problem);

}  // namespace attune
