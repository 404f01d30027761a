// SPDX-License-Identifier: Apache-2.0
// See any_dtype.hpp.
#include "generator/families/any_dtype.hpp"

#include <fmt/format.h>

namespace attune {

std::optional<std::string> any_dtype_refusal(const KernelSpec& spec) {
  if (spec.dtype_q == Dtype::kE5m2) return "dtype_q is e5m2; with 8-bit operands it must be e4m3";
  if (is_8_bit(spec.dtype_q) != is_8_bit(spec.dtype_kv))
    return fmt::format("dtype_q is {} and dtype_kv is {}; both must have 8 bits, or neither",
                       dtype_name(spec.dtype_q), dtype_name(spec.dtype_kv));
  if (is_8_bit(spec.dtype_o))
    return fmt::format("dtype_o is {}; must be fp32, bf16 or fp16", dtype_name(spec.dtype_o));
  return std::nullopt;
}

std::vector<Constant> constants_without_8_bits(const KernelSpec& spec) {
  if (is_8_bit(spec)) return {};
  return {{"VLayout", "kVLayout", "VLayout::kRows"},
          {"int", "kScaleBlockQ", "0"},
          {"int", "kScaleBlockKv", "0"}};
}

}  // namespace attune
