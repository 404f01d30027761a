// SPDX-License-Identifier: Apache-2.0
// Helpers of the reference kernels: loads and stores of any dtype, and the keys that a row sees.
// Simple on purpose, and not shared with the kernels that the references check.
#pragma once

#include "cuda/ptx/convert.cuh"
#include "shared/attention_args.h"

namespace attune {

constexpr int kQkPerLane = (kHeadDimQk + 31) / 32;  // lane l has elements l, l + 32, ...
constexpr int kVPerLane = (kHeadDimV + 31) / 32;

// Converts an 8-bit float. e5m2 is the upper half of an fp16. The bits of an e4m3, shifted into an
// fp16, give 1 / 256 of its value: the exponent's bias is 7 instead of 15.
template <Dtype kDtype>
__device__ float float_of_8_bits(unsigned char bits) {
  if constexpr (kDtype == Dtype::kE5m2)
    return fp16_to_float(static_cast<unsigned short>(static_cast<unsigned>(bits) << 8));
  const unsigned magnitude = bits & 0x7Fu;
  if (magnitude == 0x7Fu) return __int_as_float(0x7FC00000);
  const unsigned half = ((bits & 0x80u) << 8) | (magnitude << 7);
  return 256.0f * fp16_to_float(static_cast<unsigned short>(half));
}

template <Dtype kDtype>
__device__ float load(const void* data, long long index) {
  if constexpr (kDtype == Dtype::kFp32) {
    return static_cast<const float*>(data)[index];
  } else if constexpr (kDtype == Dtype::kE4m3 || kDtype == Dtype::kE5m2) {
    return float_of_8_bits<kDtype>(static_cast<const unsigned char*>(data)[index]);
  } else {
    const unsigned short bits = static_cast<const unsigned short*>(data)[index];
    return kDtype == Dtype::kBf16 ? bf16_to_float(bits) : fp16_to_float(bits);
  }
}

template <Dtype kDtype>
__device__ void store(void* data, long long index, float value) {
  if constexpr (kDtype == Dtype::kFp32) {
    static_cast<float*>(data)[index] = value;
  } else {
    static_cast<unsigned short*>(data)[index] =
        kDtype == Dtype::kBf16 ? float_to_bf16(value) : float_to_fp16(value);
  }
}

__device__ bool visible(const AttentionArgs& args, int row, int column) {
  const long long diagonal = static_cast<long long>(row) +
                             (kMask == Mask::kCausalTopLeft ? 0 : args.seqlen_kv - args.seqlen_q);
  if (kMask != Mask::kNone && column > diagonal) return false;
  if (kWindowLeft >= 0 && column < diagonal - kWindowLeft) return false;
  if (kWindowRight >= 0 && column > diagonal + kWindowRight) return false;
  return true;
}

}  // namespace attune
