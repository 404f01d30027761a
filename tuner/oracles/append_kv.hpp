// SPDX-License-Identifier: Apache-2.0
// The oracle of op append_kv: the expected cache and o, in float64 on the host, for all rows of all
// heads. Also checks that the kernel writes nothing else.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& append_kv_oracle();

}  // namespace attune
