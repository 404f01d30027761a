// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/max_nan.cuh where a device part is compiled for the host.
#pragma once

namespace attune {

inline float max_nan(float a, float b) { return a >= b || a != a ? a : b; }

}  // namespace attune
