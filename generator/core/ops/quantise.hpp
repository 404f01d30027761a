// SPDX-License-Identifier: Apache-2.0
// Op quantise: o = q in 8 bits, with a scale factor per block of rows.
#pragma once

#include "generator/core/problem/op.hpp"

namespace attune {

const OpDescription& quantise_op();

}  // namespace attune
