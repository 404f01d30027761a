// SPDX-License-Identifier: Apache-2.0
// Limits by wall clock. They hold in the CTest entries labelled `timing` alone, which set ATTUNE_TEST_TIMING and run with the
// machine to themselves: a busy machine must not fail the default run.
#pragma once

#include <cstdlib>

namespace attune {

inline bool time_limits_hold() { return std::getenv("ATTUNE_TEST_TIMING") != nullptr; }

}  // namespace attune

// `took` and `limit`: durations. Evaluates to nothing but `took` where limits do not hold.
#define ATTUNE_EXPECT_WITHIN(took, limit)                       \
  if (const auto taken = (took); !attune::time_limits_hold()) { \
  } else                                                        \
    EXPECT_LE(taken, limit)
