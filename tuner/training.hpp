// SPDX-License-Identifier: Apache-2.0
// What training asks of the attention that a workload has: the forward, with dropout where there is some, and its gradients. Used by
// the option --training of the program.
#pragma once

#include "tuner/workload.hpp"

namespace attune {

// Puts behind each problem of op prefill that of its gradients of q, k and v, and those of a bias, a table of distances and sinks that
// it has, which models learn. `dropout`: of the forward, too. Gradients of a forward with 8-bit operands have the 16 bits of its o, and
// no dropout. Throws kInvalidArgument where no problem is one of op prefill, and for a dropout that validate() refuses.
void add_training(float dropout, Workload* workload);

}  // namespace attune
