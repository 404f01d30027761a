// SPDX-License-Identifier: Apache-2.0
// 16-bit floats on the host: making inputs and reading results of kernels. Round to nearest even,
// NaN stays NaN.
#pragma once

#include <cstdint>

#include "generator/core/dtype.hpp"

namespace attune {

uint16_t to_bf16(float value);
float from_bf16(uint16_t bits);
uint16_t to_fp16(float value);
float from_fp16(uint16_t bits);

// One element of fp32, bf16 or fp16 at `index` of an array.
void store_element(Dtype dtype, void* array, int64_t index, float value);
float load_element(Dtype dtype, const void* array, int64_t index);

}  // namespace attune
