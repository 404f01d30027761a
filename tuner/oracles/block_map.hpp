// SPDX-License-Identifier: Apache-2.0
// The oracle of op block_map. Each byte states how much of its granule the masks show. The oracle
// computes it element by element on the host, and bytes must be equal. For large maps it checks
// granules spread evenly, and granules near the diagonal.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& block_map_oracle();

}  // namespace attune
