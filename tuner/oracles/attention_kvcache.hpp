// SPDX-License-Identifier: Apache-2.0
// The oracle of op attention_kvcache: float64 on the host, from the definition. For large problems
// it checks only some requests and rows, with all heads.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& attention_kvcache_oracle();

}  // namespace attune
