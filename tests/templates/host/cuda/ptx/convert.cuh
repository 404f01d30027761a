// SPDX-License-Identifier: Apache-2.0
// Stands in for templates/cuda/ptx/convert.cuh where a device part is compiled for the host.
#pragma once

#include "generator/core/problem/narrow_float.hpp"

namespace attune {

template <Dtype kDtype>
unsigned pack(float low, float high) {
  unsigned short words[2];
  store_element(kDtype, words, 0, low);
  store_element(kDtype, words, 1, high);
  return words[0] | static_cast<unsigned>(words[1]) << 16;
}

inline float fp16_to_float(unsigned short bits) { return load_element(Dtype::kFp16, &bits, 0); }

inline float bf16_to_float(unsigned short bits) { return load_element(Dtype::kBf16, &bits, 0); }
inline unsigned short float_to_bf16(float value) {
  unsigned short bits;
  store_element(Dtype::kBf16, &bits, 0, value);
  return bits;
}

inline unsigned fma_fp16(unsigned a, unsigned b, unsigned c) {
  const auto value = [](unsigned bits, int half) {
    return fp16_to_float(static_cast<unsigned short>(bits >> 16 * half));
  };
  return pack<Dtype::kFp16>(value(a, 0) * value(b, 0) + value(c, 0),
                            value(a, 1) * value(b, 1) + value(c, 1));
}

}  // namespace attune
