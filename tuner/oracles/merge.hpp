// SPDX-License-Identifier: Apache-2.0
// What op merge must give: float64, on the host, some rows of each head.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

// Operands on the host; `first` and `second` are rows of the two states, as long as `count`. Returns lse, and o in *o.
double merged_row(const double* first, double first_lse, const double* second, double second_lse,
                  int count, double* o);
const Oracle& merge_oracle();

}  // namespace attune
