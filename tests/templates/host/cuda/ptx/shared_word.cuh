// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/shared_word.cuh where a device part is compiled for the host.
#pragma once

#include "cuda/ptx/shared_memory.cuh"

namespace attune {

inline void store_shared_word(unsigned shared_address, int value) {
  std::memcpy(&shared_memory.at(shared_address), &value, sizeof value);
}

}  // namespace attune
