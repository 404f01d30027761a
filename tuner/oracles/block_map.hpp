// SPDX-License-Identifier: Apache-2.0
// The oracle of op block_map: each byte tells what the masks show of its granule, computed element
// by element on the host. Bytes must be equal. For large maps it checks granules spread evenly, and
// granules near the diagonal.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& block_map_oracle();

}  // namespace attune
