// SPDX-License-Identifier: Apache-2.0
// Conversions between fp32 and narrower floats; see narrow_float.hpp.
#include "generator/core/problem/narrow_float.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace attune {
namespace {

// Rounds a finite magnitude to `significant` bits, or to multiples of `smallest` where those are
// coarser. rint rounds to nearest even.
float rounded(float magnitude, int significant, float smallest) {
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, m in [0.5, 1)
  const float step = std::fmax(std::ldexp(1.0F, exponent - significant), smallest);
  return std::rint(magnitude / step) * step;
}

}  // namespace

uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x40U);  // keep it a quiet NaN
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t to_fp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  if (std::isnan(value)) return static_cast<uint16_t>(sign | 0x7e00U);
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0F) return static_cast<uint16_t>(sign | 0x7c00U);
  const float near = rounded(magnitude, 11, 0x1p-24F);
  if (near < 0x1p-14F) return static_cast<uint16_t>(sign | static_cast<uint16_t>(near * 0x1p24F));
  const auto wide = std::bit_cast<uint32_t>(near);
  return static_cast<uint16_t>(sign | ((wide >> 13) - (112U << 10)));
}

float from_fp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1fU;
  const uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) return (sign != 0 ? -0x1p-24F : 0x1p-24F) * static_cast<float>(mantissa);
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;  // biases 15 and 127
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

uint8_t to_e4m3(float value) {
  const auto sign = static_cast<uint8_t>((std::bit_cast<uint32_t>(value) >> 24) & 0x80U);
  if (!std::isfinite(value)) return static_cast<uint8_t>(sign | 0x7fU);
  const float magnitude = std::fmin(std::fabs(value), kLargestE4m3);
  const float near = rounded(magnitude, 4, 0x1p-9F);
  if (near < 0x1p-6F) return static_cast<uint8_t>(sign | static_cast<uint8_t>(near * 0x1p9F));
  // Biases 127 and 7
  return static_cast<uint8_t>(sign | ((std::bit_cast<uint32_t>(near) >> 20) - (120U << 3)));
}

float from_e4m3(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80U) << 24;
  const uint32_t magnitude = bits & 0x7fU;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000U);
  if (magnitude < 8) return (sign != 0 ? -0x1p-9F : 0x1p-9F) * static_cast<float>(magnitude);
  return std::bit_cast<float>(sign | ((magnitude + (120U << 3)) << 20));
}

uint8_t to_e5m2(float value) {
  const auto sign = static_cast<uint8_t>((std::bit_cast<uint32_t>(value) >> 24) & 0x80U);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7fU);
  if (std::isinf(value)) return static_cast<uint8_t>(sign | 0x7cU);
  const float near = rounded(std::fmin(std::fabs(value), kLargestE5m2), 3, 0x1p-16F);
  return static_cast<uint8_t>(sign | (to_fp16(near) >> 8));
}

float from_e5m2(uint8_t bits) { return from_fp16(static_cast<uint16_t>(bits << 8)); }

uint8_t to_int8(float value) {
  if (std::isnan(value)) return 0;
  const float clamped = std::fmin(std::fmax(std::rint(value), -kLargestInt8 - 1), kLargestInt8);
  return static_cast<uint8_t>(static_cast<int8_t>(clamped));
}

float from_int8(uint8_t bits) { return static_cast<float>(static_cast<int8_t>(bits)); }

uint8_t to_int4(float value) {
  if (std::isnan(value)) return 0;
  return static_cast<uint8_t>(static_cast<int>(std::clamp(std::rint(value), -7.0F, 7.0F)) & 15);
}

float from_int4(uint8_t code) {
  const int low = code & 15;
  return static_cast<float>(low < 8 ? low : low - 16);
}

uint8_t to_e2m1(float value) {
  if (std::isnan(value)) return 0;
  const float near = rounded(std::fmin(std::fabs(value), 6.0F), 2, 0.5F);
  const uint8_t sign = std::signbit(value) ? 8 : 0;
  for (uint8_t code = 0; code < 8; ++code)
    if (from_e2m1(code) == near) return static_cast<uint8_t>(sign | code);
  return sign;
}

float from_e2m1(uint8_t code) {
  const int exponent = (code >> 1) & 3, mantissa = code & 1;
  const float magnitude = exponent == 0
                              ? 0.5F * static_cast<float>(mantissa)
                              : std::ldexp(1 + 0.5F * static_cast<float>(mantissa), exponent - 1);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

namespace {

uint8_t nibble_of(const char* array, int64_t index) {
  return static_cast<uint8_t>((static_cast<uint8_t>(array[index / 2]) >> (index % 2 * 4)) & 15);
}
void set_nibble(char* array, int64_t index, uint8_t code) {
  const auto kept = static_cast<uint8_t>(array[index / 2]) & (index % 2 == 0 ? 0xf0 : 0x0f);
  array[index / 2] = static_cast<char>(kept | code << (index % 2 * 4));
}

}  // namespace

void store_element(Dtype dtype, void* array, int64_t index, float value) {
  char* at = static_cast<char*>(array) + index * dtype_bytes(dtype);
  const auto put = [at](auto bits) { std::memcpy(at, &bits, sizeof bits); };
  switch (dtype) {
    case Dtype::kFp32:
      return put(value);
    case Dtype::kBf16:
      return put(to_bf16(value));
    case Dtype::kFp16:
      return put(to_fp16(value));
    case Dtype::kE4m3:
      return put(to_e4m3(value));
    case Dtype::kE5m2:
      return put(to_e5m2(value));
    case Dtype::kInt8:
      return put(to_int8(value));
    case Dtype::kInt4:
      return set_nibble(static_cast<char*>(array), index, to_int4(value));
    case Dtype::kE2m1:
      return set_nibble(static_cast<char*>(array), index, to_e2m1(value));
  }
}

float load_element(Dtype dtype, const void* array, int64_t index) {
  const char* at = static_cast<const char*>(array) + index * dtype_bytes(dtype);
  const auto get = [at](auto bits) {
    std::memcpy(&bits, at, sizeof bits);
    return bits;
  };
  switch (dtype) {
    case Dtype::kFp32:
      return get(0.0F);
    case Dtype::kBf16:
      return from_bf16(get(uint16_t{0}));
    case Dtype::kFp16:
      return from_fp16(get(uint16_t{0}));
    case Dtype::kE4m3:
      return from_e4m3(get(uint8_t{0}));
    case Dtype::kE5m2:
      return from_e5m2(get(uint8_t{0}));
    case Dtype::kInt8:
      return from_int8(get(uint8_t{0}));
    case Dtype::kInt4:
      return from_int4(nibble_of(static_cast<const char*>(array), index));
    case Dtype::kE2m1:
      return from_e2m1(nibble_of(static_cast<const char*>(array), index));
  }
  return 0;
}

}  // namespace attune
