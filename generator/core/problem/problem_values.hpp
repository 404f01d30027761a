// SPDX-License-Identifier: Apache-2.0
// Prints and parses the values of a Problem's fields, with a pair of functions per type. Used by
// problem_fields.cpp.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>

#include "generator/core/problem/problem.hpp"
#include "generator/core/system/error.hpp"

namespace attune::problem_values {

[[noreturn]] inline void refuse(std::string_view key, std::string_view value,
                                std::string_view accepted) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is \"{}\"; must be {}", key, value, accepted));
}

using Text = std::string_view;

template <class Number>
Number parse_number(std::string_view key, std::string_view value, std::string_view accepted) {
  Number number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) refuse(key, value, accepted);
  return number;
}

inline std::string text_of(float value) { return fmt::format("{}", value); }
inline std::string text_of(bool value) { return value ? "1" : "0"; }
inline std::string text_of(int value) { return std::to_string(value); }
inline std::string text_of(int64_t value) { return std::to_string(value); }
inline std::string text_of(Op value) { return std::string(op_name(value)); }
inline std::string text_of(Dtype value) { return std::string(dtype_name(value)); }
inline std::string text_of(Mask value) { return std::string(mask_name(value)); }
inline std::string text_of(Accuracy value) { return std::string(accuracy_name(value)); }
inline std::string text_of(VLayout value) { return std::string(v_layout_name(value)); }
inline std::string text_of(ScoreTensor value) { return std::string(score_tensor_name(value)); }
inline std::string text_of(BlockMapUse value) { return std::string(block_map_use_name(value)); }
inline std::string text_of(KvFactors value) { return std::string(kv_factors_name(value)); }
inline std::string text_of(KeyIndices value) { return std::string(key_indices_name(value)); }
inline std::string text_of(Gradients value) { return gradients_text(value); }
inline std::string text_of(ScoreGradient value) { return std::string(score_gradient_name(value)); }
inline std::string text_of(Repeats value) { return repeats_text(value); }
inline std::string text_of(ProgramDigest value) { return to_text(value); }
inline std::string text_of(Rotation value) { return std::string(rotation_name(value)); }

inline void read(Text key, Text text, int64_t* value) {
  *value = parse_number<int64_t>(key, text, "an integer");
}
inline void read(Text key, Text text, int* value) {
  *value = parse_number<int>(key, text, "a 32-bit integer");
}
inline void read(Text key, Text text, float* value) {
  *value = parse_number<float>(key, text, "a number");
}
inline void read(Text key, Text text, bool* value) {
  if (text != "0" && text != "1") refuse(key, text, "0 or 1");
  *value = text == "1";
}
inline void read(Text, Text text, Op* value) { *value = parse_op(text); }
inline void read(Text, Text text, Dtype* value) { *value = parse_dtype(text); }
inline void read(Text, Text text, Mask* value) { *value = parse_mask(text); }
inline void read(Text, Text text, Accuracy* value) { *value = parse_accuracy(text); }
inline void read(Text, Text text, VLayout* value) { *value = parse_v_layout(text); }
inline void read(Text, Text text, Rotation* value) { *value = parse_rotation(text); }

// Reads a digest, or @FILE, the file with the program's text.
inline void read(Text key, Text text, ProgramDigest* value) {
  const score::Kind kind = key == "mask_mod" ? score::Kind::kMask : score::Kind::kScore;
  *value = text.starts_with('@') ? load_user_program(std::string(text.substr(1)), kind).digest
                                 : parse_program_digest(text);
}
inline void read(Text, Text text, ScoreTensor* value) { *value = parse_score_tensor(text); }
inline void read(Text, Text text, BlockMapUse* value) { *value = parse_block_map_use(text); }
inline void read(Text, Text text, KvFactors* value) { *value = parse_kv_factors(text); }
inline void read(Text, Text text, KeyIndices* value) { *value = parse_key_indices(text); }
inline void read(Text, Text text, Gradients* value) { *value = parse_gradients(text); }
inline void read(Text, Text text, ScoreGradient* value) { *value = parse_score_gradient(text); }
inline void read(Text, Text text, Repeats* value) { *value = parse_repeats(text); }

// Returns the valid values for the help: "N", or an enumeration's words from 0 to `last`.
template <class Value>
std::string accepted_of(Value last) {
  std::string words;
  if constexpr (std::is_enum_v<Value>)
    for (int i = 0; i <= static_cast<int>(last); ++i)
      words += (i == 0 ? "" : ", ") + text_of(static_cast<Value>(i));
  return words.empty() ? "N" : words;
}

}  // namespace attune::problem_values
