// SPDX-License-Identifier: Apache-2.0
// The oracle of op prefill: the reference template on the same device, with fp32 output. 8-bit
// kernels are also checked with a V of mean 1, so that long sums over keys have terms of one sign.
// For the allowed errors see verify.hpp.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& attention_oracle();

}  // namespace attune
