// SPDX-License-Identifier: Apache-2.0
// Runs kernels with AMX instructions on x86-64 CPUs that lack them. A CPU without AMX refuses each
// such instruction with SIGILL; the handler carries it out in software and continues behind it.
// Tests use it to check results, not speed.
#pragma once

#include "generator/core/problem/arch.hpp"

namespace attune::testing {

// Returns `arch` with the features of AMX with bf16.
Arch with_tiles(Arch arch);

// While an object exists, AMX instructions of bf16 work in every thread of this process. Does
// nothing if `arch` has them. At most one object at a time.
class TileEmulator {
 public:
  explicit TileEmulator(const Arch& arch);
  ~TileEmulator();
  TileEmulator(const TileEmulator&) = delete;
  TileEmulator& operator=(const TileEmulator&) = delete;
  // True while instructions are emulated.
  static bool is_on();
  // Returns the number of products (TDPBF16PS) that were emulated so far.
  static long long products();

 private:
  const bool installed_;
};

}  // namespace attune::testing
