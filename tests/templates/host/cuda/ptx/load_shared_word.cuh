// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/load_shared_word.cuh where a device part is compiled for the
// host.
#pragma once

#include "cuda/ptx/shared_memory.cuh"

namespace attune {

inline unsigned load_shared_word(unsigned shared_address) {
  unsigned value;
  std::memcpy(&value, &shared_memory.at(shared_address), sizeof value);
  return value;
}

}  // namespace attune
