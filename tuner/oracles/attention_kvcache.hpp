// SPDX-License-Identifier: Apache-2.0
// What op attention_kvcache must give: float64 on the host from the definition; of many requests and heads some.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& attention_kvcache_oracle();

}  // namespace attune
