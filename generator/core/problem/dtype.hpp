// SPDX-License-Identifier: Apache-2.0
// Element types of attention operands: names, sizes and parsing.
#pragma once

#include <string>
#include <string_view>

#include "templates/shared/attention_enums.h"

namespace attune {

// Returns the bytes of an element of memory, which has two codes of a 4-bit type.
int dtype_bytes(Dtype dtype);
// Returns the elements of memory that hold this many columns.
int stored_columns(Dtype dtype, int columns);
std::string_view dtype_name(Dtype dtype);  // "bf16"
// Parses the names of dtype_name, and float, float32, bfloat16, float16, half and fp8 (e4m3). For
// any other word, throws kInvalidArgument with the valid names.
Dtype parse_dtype(std::string_view text);

bool is_8_bit(Dtype dtype);   // e4m3, e5m2 or int8
bool is_4_bit(Dtype dtype);   // int4 or e2m1
bool is_narrow(Dtype dtype);  // has 8 or 4 bits

std::string_view accuracy_name(Accuracy accuracy);  // "accurate", "fast", "split"
Accuracy parse_accuracy(std::string_view text);
std::string_view v_layout_name(VLayout layout);  // "rows", "transposed"
VLayout parse_v_layout(std::string_view text);
std::string_view rotation_name(Rotation rotation);  // "none", "hadamard"
Rotation parse_rotation(std::string_view text);

std::string_view mask_name(Mask mask);   // "causal_bottom_right"
Mask parse_mask(std::string_view text);  // none, causal_top_left, causal_bottom_right

}  // namespace attune
