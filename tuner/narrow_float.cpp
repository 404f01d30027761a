// SPDX-License-Identifier: Apache-2.0
// Conversions between fp32 and 16-bit floats; see narrow_float.hpp.
#include "tuner/narrow_float.hpp"

#include <bit>
#include <cmath>
#include <cstring>

#include "generator/core/error.hpp"

namespace attune {

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
  // Multiples of the smallest step: 2^-24 below 2^-14, else 11 significant bits. rint rounds to
  // nearest even.
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = m * 2^exponent, m in [0.5, 1)
  const int step = magnitude < 6.103515625e-05F ? -24 : exponent - 11;
  const float rounded = std::ldexp(std::rint(std::ldexp(magnitude, -step)), step);
  if (rounded < 6.103515625e-05F)
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::ldexp(rounded, 24)));
  const auto wide = std::bit_cast<uint32_t>(rounded);
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

void store_element(Dtype dtype, void* array, int64_t index, float value) {
  char* base = static_cast<char*>(array) + index * dtype_bytes(dtype);
  if (dtype == Dtype::kFp32) {
    std::memcpy(base, &value, sizeof value);
  } else if (dtype == Dtype::kBf16 || dtype == Dtype::kFp16) {
    const uint16_t bits = dtype == Dtype::kBf16 ? to_bf16(value) : to_fp16(value);
    std::memcpy(base, &bits, sizeof bits);
  } else {
    throw Error(ErrorCode::kUnsupported, "8-bit floats have no host conversion");
  }
}

float load_element(Dtype dtype, const void* array, int64_t index) {
  const char* base = static_cast<const char*>(array) + index * dtype_bytes(dtype);
  float value = 0;
  uint16_t bits = 0;
  switch (dtype) {
    case Dtype::kFp32:
      std::memcpy(&value, base, sizeof value);
      return value;
    case Dtype::kBf16:
      std::memcpy(&bits, base, sizeof bits);
      return from_bf16(bits);
    case Dtype::kFp16:
      std::memcpy(&bits, base, sizeof bits);
      return from_fp16(bits);
    default:
      throw Error(ErrorCode::kUnsupported, "8-bit floats have no host conversion");
  }
}

}  // namespace attune
