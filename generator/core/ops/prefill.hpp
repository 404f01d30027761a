// SPDX-License-Identifier: Apache-2.0
// Op prefill: o = softmax(scale q k^T + mask) v, and optionally the log-sum-exp of each row.
#pragma once

#include "generator/core/problem/op.hpp"

namespace attune {

const OpDescription& prefill_op();

}  // namespace attune
