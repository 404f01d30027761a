// SPDX-License-Identifier: Apache-2.0
// Conversions of 16- and 8-bit numbers on the host, for kernel inputs and results in the tuner and
// in tests. Conversions round to nearest even, and floats keep NaN. In 8-bit types, larger finite
// values become the largest one. Infinity stays infinity; in e4m3, which has none, it becomes NaN.
#pragma once

#include <cstdint>

#include "generator/core/problem/dtype.hpp"

namespace attune {

inline constexpr float kLargestE4m3 = 448.0F;
inline constexpr float kLargestE5m2 = 57344.0F;
inline constexpr float kLargestInt8 = 127.0F;  // the lowest is -128

uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);
uint16_t to_fp16(float value);
float from_fp16(uint16_t bits);
uint8_t to_e4m3(float value);  // no infinity; NaN is 0x7f and 0xff
float from_e4m3(uint8_t bits);
uint8_t to_e5m2(float value);  // the upper half of an fp16
float from_e5m2(uint8_t bits);
uint8_t to_int8(float value);  // two's complement; NaN is 0
float from_int8(uint8_t bits);

// 4 bits of a byte. Values beyond the largest code become it; NaN is 0.
uint8_t to_int4(float value);  // two's complement, -7 to 7
float from_int4(uint8_t code);
uint8_t to_e2m1(float value);  // sign, two bits of exponent, one of mantissa
float from_e2m1(uint8_t code);

// Access the element at `index` of an array. A byte has two elements of 4 bits, the first in its
// low bits.
void store_element(Dtype dtype, void* array, int64_t index, float value);
float load_element(Dtype dtype, const void* array, int64_t index);

}  // namespace attune
