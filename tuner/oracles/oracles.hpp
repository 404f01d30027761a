// SPDX-License-Identifier: Apache-2.0
// The oracles: each is in the file of its op's name in this folder. Used by oracle.cpp, which finds
// the oracle of an op.
#pragma once

#include <memory>

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& append_kv_oracle();
const Oracle& attention_oracle();
const Oracle& attention_backward_oracle();
const Oracle& attention_kvcache_oracle();
const Oracle& block_map_oracle();
const Oracle& index_scores_oracle();
const Oracle& merge_oracle();
const Oracle& quantise_oracle();
const Oracle& top_k_oracle();

// The oracle of op merge: float64 on the host, for some rows of each batch, with all heads.

// Merges one row from host memory. `first` and `second` are rows of the two states with `count`
// columns. Returns lse, and o in *o.
double merged_row(const double* first, double first_lse, const double* second, double second_lse,
                  int count, double* o);

// The oracle of the gradient of a bias, of slopes or of sinks (problems with score_gradient): see
// templates/shared/score_gradient.h.

std::unique_ptr<Expectation> expect_score_gradient(const OracleBench& bench);

}  // namespace attune
