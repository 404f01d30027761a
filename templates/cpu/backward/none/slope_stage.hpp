// SPDX-License-Identifier: Apache-2.0
// Kernels whose scores have no program with a derivative: the derivative is 1.
#pragma once

#include "cpu/parts/none/features.hpp"

namespace none {

template <class Arguments, class Tile, class Keys, class Panel>
inline void find_slopes(const Arguments&, const Tile&, long long, Keys, const Panel*, Panel*) {}

}  // namespace none
