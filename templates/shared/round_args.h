// SPDX-License-Identifier: Apache-2.0
// Launch arguments of kernels that are launched in rounds, each for some heads of K. The data that
// one kernel leaves for the next would take too much memory for all heads at once. Heads are
// counted over all batch entries. For gradients over lists of keys the rounds are of rows of Q.
#pragma once

namespace attune {

struct RoundArgs {
  int first_head;
  int heads;
  int stride;  // of the data that one kernel leaves for another; each family defines its unit
};

}  // namespace attune
