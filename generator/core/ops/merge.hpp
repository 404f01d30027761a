// SPDX-License-Identifier: Apache-2.0
// Op merge: one state of attention (o, lse) of two, which saw different keys: those of q with q_scale, and of k with k_scale.
#pragma once

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& merge_op();

}  // namespace attune
