// SPDX-License-Identifier: Apache-2.0
// The oracle of op block_map: each byte is what the masks show of its granule, element by element on the host. Bytes must be equal.
// Of large maps it looks at granules spread evenly, and at those around the diagonal.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& block_map_oracle();

}  // namespace attune
