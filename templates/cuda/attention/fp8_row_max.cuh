// SPDX-License-Identifier: Apache-2.0
// When the running maximum of a row follows a growth, with P in e4m3. Used by fp8_consumer.cuh.
//
// A probability rounds to e4m3 with the same relative error wherever it lies in the range, but not
// at all where it is a power of two, as the largest is when the maximum is the true one. That
// matters where one probability makes up much of its row, and there only.
//   accurate  the largest begins at 2^6; the maximum follows a growth past that by a probability of
//             more than a quarter of what the thread has summed (a sixteenth of the row, about),
//             and any growth that would not fit e4m3
//   fast      it begins at 2^4; the maximum follows what would not fit
#pragma once

#include "shared/fp8_options.h"

#include "cuda/attention/lazy_softmax.cuh"

namespace attune {

constexpr float kMuchLog2 = -2.f;

// log2, to 0.09, of a number that is not negative, from its bits: the exponent and the mantissa as
// its fraction.
__device__ __forceinline__ float rough_log2(float x) {
  const float bits = __uint_as_float(__float_as_uint(x) >> 8 | 0x4b000000u);  // 2^23 + bits / 256
  return fmaf(bits, 1.f / 32768.f, -256.f - 127.f);
}

// What log2 of a probability may reach under the maximum as it is.
__device__ __forceinline__ float growth_limit(float sum) {
  if constexpr (kAccuracy == Accuracy::kFast) return kRescaleThreshold;
  return fminf(fmaxf(rough_log2(sum) + kMuchLog2, kProbabilityLog2), kRescaleThreshold);
}

// Whether any row of the warp must take its maximum anew.
__device__ __forceinline__ bool must_raise(const RowTops& tops, const RowStats& rows,
                                           float scale_log2) {
  bool must = false;
#pragma unroll
  for (int half = 0; half < 2; ++half)
    must |= fmaf(__int_as_float(tops.row[half]), scale_log2, -rows.max[half]) >
            growth_limit(rows.sum[half]);
  return __any_sync(~0u, must);
}

}  // namespace attune
