// SPDX-License-Identifier: Apache-2.0
// Limits of processors and numbers fitted to measurements, for rules and costs of several families.
#pragma once

#include <algorithm>

#include "generator/core/problem/arch.hpp"

namespace attune {

// MB of streamed operands of heads that are processed together, where it is no knob. They stay in
// the L2 of most devices.
inline constexpr int kL2SectionMb = 32;
// Products and exponentials overlap in part: clocks = (products^p + exponentials^p)^(1/p). Fitted
// to times of an H200.
inline constexpr double kOverlapPower = 1.56;

// Returns the bytes of shared memory that the driver reserves in each block: none before sm_80.
inline int reserved_shared_bytes(const Arch& arch) {
  return arch.compute_capability >= 80 ? 1024 : 0;
}

// Returns the registers of a thread if a multiprocessor holds `threads`. They are allocated in
// steps of 8 per thread.
inline int register_cap(const Arch& arch, int threads) {
  return std::min(arch.registers_per_sm / threads / 8 * 8, arch.max_registers_per_thread);
}

// Returns the number of vector registers of a CPU: AVX-512 and Arm have 32, older x86 has 16.
inline int vector_registers(const Arch& arch) {
  return arch.vector_bytes == 64 || arch.has_feature("+neon") ? 32 : 16;
}

}  // namespace attune
