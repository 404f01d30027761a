// SPDX-License-Identifier: Apache-2.0
// The constants of features that a backward_reference kernel lacks. Its own constants hide these.
#pragma once

namespace none {

// Enumerators, since objects would take memory of the kernel.
enum : bool { kAccumulate = false };  // gradients are added to the outputs
enum { kSinks, kSinksType };          // heads have no sinks, so nothing reads these

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
