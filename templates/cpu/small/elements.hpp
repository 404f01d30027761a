// SPDX-License-Identifier: Apache-2.0
// Elements of 16 and 32 bits, as fp32, for append_kv and merge.
#pragma once

#include "shared/attention_enums.h"

namespace attune {

template <Dtype kDtype>
inline float element(const void* data, long long index) {
  if constexpr (kDtype == Dtype::kFp32) return static_cast<const float*>(data)[index];
  if constexpr (kDtype == Dtype::kBf16)
    return __builtin_bit_cast(float, static_cast<const unsigned short*>(data)[index] << 16);
  return static_cast<float>(static_cast<const _Float16*>(data)[index]);
}

template <Dtype kDtype>
inline void set_element(void* data, long long index, float value) {
  if constexpr (kDtype == Dtype::kFp32) static_cast<float*>(data)[index] = value;
  if constexpr (kDtype == Dtype::kFp16)
    static_cast<_Float16*>(data)[index] = static_cast<_Float16>(value);
  if constexpr (kDtype == Dtype::kBf16) {
    const unsigned bits = __builtin_bit_cast(unsigned, value);
    const unsigned rounded = bits + 0x7fffu + (bits >> 16 & 1u);  // to nearest, ties to even
    static_cast<unsigned short*>(data)[index] =
        static_cast<unsigned short>((value != value ? bits | 0x400000u : rounded) >> 16);
  }
}

}  // namespace attune
