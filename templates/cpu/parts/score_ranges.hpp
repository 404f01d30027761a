// SPDX-License-Identifier: Apache-2.0
// Ranges of captures on a CPU.
#pragma once

#include "cpu/parts/score_functions.hpp"
#include "cpu/parts/take_line.hpp"  // where kVectorBytes

#include "shared/capture_range.h"

namespace attune {

template <CaptureType kType, class... Index>
inline auto load_range(const ScoreCapture& capture, Index... indices) {
  return load_range_of_keys<kType>(capture, indices...);
}

}  // namespace attune
