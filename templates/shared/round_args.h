// SPDX-License-Identifier: Apache-2.0
// Launch arguments of kernels that are launched in rounds of some heads of K each. Data that one
// kernel leaves for the next would take too much memory for all heads at once. Heads are counted
// over all batch entries.
#pragma once

namespace attune {

struct RoundArgs {
  int first_head;
  int heads;
  int stride;  // in what one kernel leaves for another; what it counts is the family's
};

}  // namespace attune
