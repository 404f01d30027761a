// SPDX-License-Identifier: Apache-2.0
// What op append_kv must leave in the cache and in o: float64, on the host, all rows of all heads, and nothing anywhere else.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& append_kv_oracle();

}  // namespace attune
