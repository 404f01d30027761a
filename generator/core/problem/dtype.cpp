// SPDX-License-Identifier: Apache-2.0
// Tables of dtype and mask names; see dtype.hpp.
#include "generator/core/problem/dtype.hpp"

#include <fmt/format.h>

#include <array>

#include "generator/core/system/error.hpp"
#include "templates/shared/nibble_rows.h"

namespace attune {
namespace {

struct DtypeRow {
  Dtype dtype;
  std::string_view name;
  int bytes;
};

constexpr std::array<DtypeRow, 8> kDtypes{{{Dtype::kFp32, "fp32", 4},
                                           {Dtype::kBf16, "bf16", 2},
                                           {Dtype::kFp16, "fp16", 2},
                                           {Dtype::kE4m3, "e4m3", 1},
                                           {Dtype::kE5m2, "e5m2", 1},
                                           {Dtype::kInt8, "int8", 1},
                                           {Dtype::kInt4, "int4", 1},
                                           {Dtype::kE2m1, "e2m1", 1}}};

struct Alias {
  std::string_view text;
  Dtype dtype;
};
constexpr std::array<Alias, 7> kAliases{{{"float32", Dtype::kFp32},
                                         {"float", Dtype::kFp32},
                                         {"bfloat16", Dtype::kBf16},
                                         {"float16", Dtype::kFp16},
                                         {"half", Dtype::kFp16},
                                         {"fp8", Dtype::kE4m3},
                                         {"fp4", Dtype::kE2m1}}};

const DtypeRow& row_of(Dtype dtype) { return kDtypes.at(static_cast<size_t>(dtype)); }

}  // namespace

int dtype_bytes(Dtype dtype) { return row_of(dtype).bytes; }
int stored_columns(Dtype dtype, int columns) {
  return is_4_bit(dtype) ? nibble_bytes(columns) : columns;
}
std::string_view dtype_name(Dtype dtype) { return row_of(dtype).name; }

Dtype parse_dtype(std::string_view text) {
  for (const DtypeRow& row : kDtypes)
    if (row.name == text) return row.dtype;
  for (const Alias& alias : kAliases)
    if (alias.text == text) return alias.dtype;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("dtype is \"{}\"; must be fp32, bf16, fp16, e4m3, e5m2, int8, int4 or e2m1",
                  text));
}

bool is_8_bit(Dtype dtype) { return is_narrow(dtype) && !is_4_bit(dtype); }
bool is_4_bit(Dtype dtype) { return dtype == Dtype::kInt4 || dtype == Dtype::kE2m1; }
bool is_narrow(Dtype dtype) { return dtype_bytes(dtype) == 1; }

namespace {

// Returns 0 if `text` is `first`, 1 if it is `second`; throws otherwise.
int parse_word(std::string_view key, std::string_view text, std::string_view first,
               std::string_view second) {
  if (text == first) return 0;
  if (text == second) return 1;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is \"{}\"; must be {} or {}", key, text, first, second));
}

}  // namespace

std::string_view accuracy_name(Accuracy accuracy) {
  switch (accuracy) {
    case Accuracy::kAccurate:
      return "accurate";
    case Accuracy::kFast:
      return "fast";
    case Accuracy::kSplit:
      return "split";
  }
  return "?";
}
Accuracy parse_accuracy(std::string_view text) {
  for (const Accuracy accuracy : {Accuracy::kAccurate, Accuracy::kFast, Accuracy::kSplit})
    if (accuracy_name(accuracy) == text) return accuracy;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("accuracy is \"{}\"; must be accurate or fast, or split for fp32", text));
}
std::string_view v_layout_name(VLayout layout) {
  return layout == VLayout::kTransposed ? "transposed" : "rows";
}
VLayout parse_v_layout(std::string_view text) {
  return static_cast<VLayout>(parse_word("v_layout", text, "rows", "transposed"));
}
std::string_view rotation_name(Rotation rotation) {
  return rotation == Rotation::kHadamard ? "hadamard" : "none";
}
Rotation parse_rotation(std::string_view text) {
  return static_cast<Rotation>(parse_word("rotation", text, "none", "hadamard"));
}

std::string_view mask_name(Mask mask) {
  switch (mask) {
    case Mask::kNone:
      return "none";
    case Mask::kCausalTopLeft:
      return "causal_top_left";
    case Mask::kCausalBottomRight:
      return "causal_bottom_right";
  }
  return "?";
}

Mask parse_mask(std::string_view text) {
  for (const Mask mask : {Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight})
    if (mask_name(mask) == text) return mask;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("mask is \"{}\"; must be none, causal_top_left or causal_bottom_right (a "
                          "causal mask names its alignment)",
                          text));
}

}  // namespace attune
