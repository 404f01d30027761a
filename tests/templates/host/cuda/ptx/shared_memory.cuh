// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/shared_memory.cuh where a device part is compiled for the host:
// shared memory is an array.
#pragma once

#include <cstring>
#include <vector>

namespace attune {

inline std::vector<unsigned char> shared_memory;

struct Vector16 {
  unsigned word[4];
};

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void store_shared_16(unsigned address, const Vector16& value) {
  std::memcpy(&shared_memory.at(address + sizeof value - 1) - (sizeof value - 1), &value,
              sizeof value);
}

inline Vector16 load_shared_16(unsigned address) {
  Vector16 value;
  std::memcpy(&value, &shared_memory.at(address + sizeof value - 1) - (sizeof value - 1),
              sizeof value);
  return value;
}

inline void store_shared_word(unsigned shared_address, int value) {
  std::memcpy(&shared_memory.at(shared_address), &value, sizeof value);
}

inline unsigned load_shared_word(unsigned shared_address) {
  unsigned value;
  std::memcpy(&value, &shared_memory.at(shared_address), sizeof value);
  return value;
}

}  // namespace attune
