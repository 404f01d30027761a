// SPDX-License-Identifier: Apache-2.0
// What training asks of the attention that a workload has: the forward, with dropout where there is some, and its gradients. Used by
// the option --training of the program.
#pragma once

#include "tuner/workload.hpp"

namespace attune {

struct Training {
  float dropout = 0;  // of problems that have gradients, and of these, unless operands have 8 bits
  bool deterministic = false;  // gradients of the same bits in every run
};

// Puts behind each problem that has gradients those of them (gradient_problems in generator/core/ops/attention_backward.hpp). Throws
// kInvalidArgument where no problem has gradients, for a dropout that no problem takes, and for one that validate() refuses.
void add_training(const Training& training, Workload* workload);

}  // namespace attune
