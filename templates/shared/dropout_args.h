// SPDX-License-Identifier: Apache-2.0
// What kernels with dropout are told at launch, on every target; dropout.h has what they make of it.
#pragma once

namespace attune {

struct DropoutArgs {
  // Added to the numbers below where they are not null, read on the device.
  const unsigned long long* seed_address;
  const unsigned long long* offset_address;
  unsigned long long seed;
  unsigned long long offset;
  unsigned long long* state;  // seed and offset as they were used, written by op prefill; or null
  unsigned threshold;         // of 256: a byte below it keeps its place
  float scale;                // 256 / threshold: what is kept is multiplied by it
  // Of references, which compute a part of a problem alone: the head, of all batch entries, and the row at which it begins.
  unsigned head0 = 0;
  unsigned row0 = 0;
};

}  // namespace attune
