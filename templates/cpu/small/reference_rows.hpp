// SPDX-License-Identifier: Apache-2.0
// Parts of the references: access to elements of any dtype, and which keys a row sees. The code is
// simple on purpose. No kernel that the references check includes it.
#pragma once

#include "shared/attention_args.h"
#include "shared/attention_enums.h"

namespace attune {

// e5m2 is the upper half of an fp16. e4m3 has the lower four bits of an fp16's exponent, and a bias
// smaller by 8.
template <Dtype kDtype>
float float_of_8_bits(unsigned char bits) {
  if constexpr (kDtype == Dtype::kE5m2)
    return static_cast<float>(__builtin_bit_cast(_Float16, static_cast<unsigned short>(bits << 8)));
  const int magnitude = bits & 0x7f;
  if (magnitude == 0x7f) return __builtin_nanf("");
  const auto half = static_cast<unsigned short>((bits & 0x80) << 8 | magnitude << 7);
  return 256.0f * static_cast<float>(__builtin_bit_cast(_Float16, half));
}

template <Dtype kDtype>
float element(const void* data, long long index) {
  if constexpr (kDtype == Dtype::kE4m3 || kDtype == Dtype::kE5m2)
    return float_of_8_bits<kDtype>(static_cast<const unsigned char*>(data)[index]);
  if constexpr (kDtype == Dtype::kFp32) return static_cast<const float*>(data)[index];
  if constexpr (kDtype == Dtype::kBf16)
    return __builtin_bit_cast(float, static_cast<const unsigned short*>(data)[index] << 16);
  if constexpr (kDtype == Dtype::kFp16)
    return static_cast<float>(static_cast<const _Float16*>(data)[index]);
}

template <Dtype kDtype>
void set_element(void* data, long long index, float value) {
  if constexpr (kDtype == Dtype::kFp32) static_cast<float*>(data)[index] = value;
  if constexpr (kDtype == Dtype::kFp16)
    static_cast<_Float16*>(data)[index] = static_cast<_Float16>(value);
  if constexpr (kDtype == Dtype::kBf16) {
    const unsigned int bits = __builtin_bit_cast(unsigned int, value);
    const unsigned int rounded = bits + 0x7fffu + ((bits >> 16) & 1u);  // to nearest, ties to even
    static_cast<unsigned short*>(data)[index] =
        static_cast<unsigned short>((value != value ? bits | 0x400000u : rounded) >> 16);
  }
}

inline bool is_visible(const AttentionArgs& args, long long i, long long j) {
  const long long diagonal = kMask == Mask::kCausalTopLeft ? i : i + args.seqlen_kv - args.seqlen_q;
  if (kMask != Mask::kNone && j > diagonal) return false;
  if (kWindowLeft >= 0 && j < diagonal - kWindowLeft) return false;
  if (kWindowRight >= 0 && j > diagonal + kWindowRight) return false;
  return true;
}

}  // namespace attune
