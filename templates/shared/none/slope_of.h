// SPDX-License-Identifier: Apache-2.0
// Kernels without a score program: the derivative of a score is 1.
#pragma once

#include "shared/host_device.h"

namespace none {

template <class Args>
ATTUNE_HOST_DEVICE inline float slope_of(const Args&, float, int, int, int, int, int) {
  return 1.0f;
}

}  // namespace none

namespace attune {
using namespace none;
}  // namespace attune
