// SPDX-License-Identifier: Apache-2.0
// The factor with which dropout multiplies P of one row and key: 0, or 1 / (1 - dropout). Seed and
// offset are the defaults of a call that gives neither. Used by oracles.
#pragma once

#include "generator/core/problem/dropout.hpp"
#include "templates/shared/dropout.h"

namespace attune {

inline double kept_of(const Problem& problem, int64_t batch, int64_t head, int64_t row,
                      int64_t key) {
  if (problem.dropout == 0) return 1;
  const auto of_all = static_cast<unsigned>(batch * problem.num_heads_q + head);
  return static_cast<double>(dropout_factor(dropout_args(problem, nullptr), of_all,
                                            static_cast<int>(row), static_cast<int>(key)));
}

}  // namespace attune
