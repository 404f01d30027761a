// SPDX-License-Identifier: Apache-2.0
// What the gradients of attention must be: float64 on the host from the definition, of some rows and keys where all are too many.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& attention_backward_oracle();

}  // namespace attune
