// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/ldmatrix.cuh where a device part is compiled for the host: 32
// host threads are a warp, which meets in every matrix instruction.
#pragma once

#include <array>
#include <barrier>
#include <cstring>

#include "cuda/ptx/shared_memory.cuh"
#include "cuda/ptx/special_registers.cuh"

namespace attune {

inline std::barrier host_warp(32);
inline std::array<unsigned, 32> host_rows;  // the address that each lane gives

// Lane l gets, of matrix i, elements (2 (l % 4), l / 4) and (2 (l % 4) + 1, l / 4).
inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned shared_address) {
  const unsigned lane = static_cast<unsigned>(host_thread) % 32;
  host_rows[lane] = shared_address;
  host_warp.arrive_and_wait();
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    r[matrix] = 0;
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned row = host_rows[8 * matrix + 2 * (lane % 4) + i];
      unsigned short element;
      std::memcpy(&element, &shared_memory.at(row + 2 * (lane / 4)), sizeof element);
      r[matrix] |= static_cast<unsigned>(element) << 16 * i;
    }
  }
  host_warp.arrive_and_wait();
}

}  // namespace attune
