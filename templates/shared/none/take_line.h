// SPDX-License-Identifier: Apache-2.0
// Targets that do not take adjacent elements of a capture at once (capture_range.h).
#pragma once

namespace none {

enum : bool { kTakesLines = false };

template <auto kType, class Gathered>
bool take_line(const void*, long long, int, Gathered&);

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
