// SPDX-License-Identifier: Apache-2.0
// The oracle of op merge: float64 on the host, for some rows of each batch, with all heads.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

// Merges one row from host memory. `first` and `second` are rows of the two states with `count`
// columns. Returns lse, and o in *o.
double merged_row(const double* first, double first_lse, const double* second, double second_lse,
                  int count, double* o);
}  // namespace attune
