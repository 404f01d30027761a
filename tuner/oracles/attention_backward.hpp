// SPDX-License-Identifier: Apache-2.0
// The oracle of the gradients of attention: float64 on the host, from the definition. For large
// problems it checks only some rows and keys.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& attention_backward_oracle();

}  // namespace attune
