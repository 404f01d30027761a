// SPDX-License-Identifier: Apache-2.0
// Launch arguments of kernels with dropout, on every target; dropout.h uses them.
#pragma once

namespace attune {

struct DropoutArgs {
  // If not null, kernels read the numbers at these addresses and add them to seed and offset.
  const unsigned long long* seed_address;
  const unsigned long long* offset_address;
  unsigned long long seed;
  unsigned long long offset;
  unsigned long long* state;  // seed and offset as they were used, written by op prefill; or null
  unsigned threshold;         // of 256: a place is kept if its eight random bits are below it
  float scale;                // 256 / threshold, the factor of kept weights
  unsigned limit[8];          // bit i of threshold - 1, in all bits
  // The place of this launch in the problem of which it is a part: its first head, counted over all
  // batch entries, and its first row. Kernels of matrix products need a multiple of 16 rows.
  unsigned head0 = 0;
  unsigned row0 = 0;

  // Sets the probability of a place to be kept: `kept` / 256, with `kept` from 1 to 256.
  constexpr void keep(unsigned kept) {
    threshold = kept;
    scale = 256.0f / static_cast<float>(kept);
    for (int i = 0; i < 8; ++i) limit[i] = 0u - ((kept - 1) >> i & 1u);
  }
};

}  // namespace attune
