// SPDX-License-Identifier: Apache-2.0
// The op attention_backward: gradients of attention's q, k and v, of which a problem asks any.
#pragma once

#include "generator/core/op.hpp"

namespace attune {

const OpDescription& attention_backward_op();

}  // namespace attune
