// SPDX-License-Identifier: Apache-2.0
// V whose columns are not divided: one slice has all of them.
#pragma once

namespace none {

enum : int { kVSlices = 1, kLastVColumn = 0 };

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
