// SPDX-License-Identifier: Apache-2.0
// The constants of features that a kernel lacks. The constants of a rendered kernel (renderer.cpp)
// hide these.
#pragma once

namespace none {

constexpr bool kScored = false;       // a score program changes the scores
constexpr bool kMaskProgram = false;  // a mask program hides keys
constexpr bool kGranules = false;     // the caller's map lists the visible blocks
constexpr bool kSloped = false;       // gradients: the score program has a derivative
constexpr bool kUserScores = false;   // gradients: the score program is the caller's
constexpr bool kAccumulate = false;   // gradients are added to the outputs

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
