// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/special_registers.cuh where a device part is compiled for the
// host: each host thread says which device thread it is.
#pragma once

namespace attune {

inline thread_local int host_thread = 0;

inline int reread_thread_index() { return host_thread; }
inline int reread(int value) { return value; }
template <class T>
const T* reread(const T* pointer) {
  return pointer;
}

// Bytes of a (0 to 3) and b (4 to 7), picked by the digits of `selector`.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long both = static_cast<unsigned long long>(b) << 32 | a;
  unsigned picked = 0;
  for (unsigned i = 0; i < 4; ++i)
    picked |= static_cast<unsigned>(both >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  return picked;
}

}  // namespace attune
