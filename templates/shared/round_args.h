// SPDX-License-Identifier: Apache-2.0
// What kernels are told that are launched in rounds, so many heads of K each, because what one of
// them leaves for the next would take too much memory for all heads. Heads are counted over all
// batch entries.
#pragma once

namespace attune {

struct RoundArgs {
  int first_head;
  int heads;
  int stride;  // in what one kernel leaves for another; what it counts is the family's
};

}  // namespace attune
