// SPDX-License-Identifier: Apache-2.0
// The constants of features that a kernel lacks. The constants of a rendered kernel (renderer.cpp)
// hide these.
#pragma once

namespace none {

// Enumerators, because each constexpr variable would take an entry of the kernel's constant memory.
enum : bool {
  kScored = false,       // a score program changes the scores
  kMaskProgram = false,  // a mask program hides keys
  kGranules = false,     // the caller's map lists the visible blocks
  kSloped = false,       // gradients: the score program has a derivative
  kUserScores = false,   // gradients: the score program is the caller's
  kAccumulate = false,   // gradients are added to the outputs
};
enum { kSinks, kSinksType };  // index and type of the capture of sinks; read only where it exists

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
