// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/stmatrix.cuh where a device part is compiled for the host.
#pragma once

#include "cuda/ptx/ldmatrix.cuh"

namespace attune {

// Lane l holds, of matrix i, elements (l / 4, 2 (l % 4)) and (l / 4, 2 (l % 4) + 1).
inline void stmatrix_x4(unsigned shared_address, const unsigned (&r)[4]) {
  const unsigned lane = static_cast<unsigned>(host_thread) % 32;
  host_rows[lane] = shared_address;
  host_warp.arrive_and_wait();
  for (unsigned matrix = 0; matrix < 4; ++matrix)
    std::memcpy(&shared_memory.at(host_rows[8 * matrix + lane / 4] + 4 * (lane % 4)), &r[matrix],
                sizeof r[matrix]);
  host_warp.arrive_and_wait();
}

// Lane l holds, of matrix i, elements (2 (l % 4), l / 4) and (2 (l % 4) + 1, l / 4).
inline void stmatrix_x4_transposed(unsigned shared_address, const unsigned (&r)[4]) {
  const unsigned lane = static_cast<unsigned>(host_thread) % 32;
  host_rows[lane] = shared_address;
  host_warp.arrive_and_wait();
  for (unsigned matrix = 0; matrix < 4; ++matrix)
    for (unsigned i = 0; i < 2; ++i) {
      const auto half = static_cast<unsigned short>(r[matrix] >> 16 * i);
      const unsigned row = host_rows[8 * matrix + 2 * (lane % 4) + i];
      std::memcpy(&shared_memory.at(row + 2 * (lane / 4)), &half, sizeof half);
    }
  host_warp.arrive_and_wait();
}

}  // namespace attune
