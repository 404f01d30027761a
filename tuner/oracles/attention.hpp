// SPDX-License-Identifier: Apache-2.0
// The oracle of op prefill: the reference template on the same device, with fp32 output. 8-bit kernels
// are also held against a V with a mean, whose sums have one sign. verify.hpp says what is allowed.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& attention_oracle();

}  // namespace attune
