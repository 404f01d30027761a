// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/streamed_loads.cuh where a device part is compiled for the host.
#pragma once

#include "cuda/ptx/shared_memory.cuh"

namespace attune {

inline Vector16 load_streamed_16(const void* from) {
  Vector16 value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

}  // namespace attune
