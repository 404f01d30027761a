// SPDX-License-Identifier: Apache-2.0
// Returns the dot product of two rows, with a separate sum per lane. A compiler keeps these sums in
// registers; it would unroll a single sum.
#pragma once

namespace attune {

template <int kColumns>
inline float dot_of_parts(const float* a, const float* b) {
  constexpr int kParts = 16, kWhole = kColumns / kParts * kParts;
  typedef float Parts __attribute__((vector_size(4 * kParts), aligned(4)));
  Parts sums = {};
  for (int c = 0; c < kWhole; c += kParts)
    sums += *reinterpret_cast<const Parts*>(a + c) * *reinterpret_cast<const Parts*>(b + c);
  float sum = 0;
  for (int i = 0; i < kParts; ++i) sum += sums[i];
  for (int c = kWhole; c < kColumns; ++c) sum += a[c] * b[c];
  return sum;
}

}  // namespace attune
