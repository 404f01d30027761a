// SPDX-License-Identifier: Apache-2.0
// The one way in which JSON is read and written: manifests, imported lines, captures, configs.
// nlohmann's parser takes any depth, but copying and printing a value recurses. So parsing refuses
// what nests deeply. nlohmann's printer throws for bytes that are not UTF-8; ours replaces them.
// What libattune.so reads is read into a JsonValue (json_value.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "generator/core/error.hpp"

namespace attune {

inline constexpr int kMaxJsonDepth = 64;

// "not JSON, at line 3, column 5: ..." from a parser's complaint; long tokens in it are cut.
std::string json_fault(std::string_view complaint);
[[noreturn]] void refuse_json_depth();
// The beginning of a long value, with "...".
std::string json_excerpt(std::string_view value);

// `Json` is nlohmann::json or ordered_json; the caller includes it. Throws kInvalidArgument for
// what is not JSON (with its line), nests deeper than kMaxJsonDepth, or holds a number beyond a
// double.
template <class Json>
Json parse_json(std::string_view text) {
  const auto refuse_depth = [](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kMaxJsonDepth) refuse_json_depth();
    return true;
  };
  try {
    return Json::parse(text, refuse_depth);
  } catch (const typename Json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, json_fault(error.what()));
  }
}

enum class JsonLetters { kUtf8, kAscii };

// Returns the text of a value, on one line unless `indent` is 0 or more. Bytes that are not UTF-8 (in
// a device's name, say) become U+FFFD: writing what came from outside never fails.
template <class Json>
std::string to_json_text(const Json& json, int indent = -1,
                         JsonLetters letters = JsonLetters::kUtf8) {
  return json.dump(indent, ' ', letters == JsonLetters::kAscii, Json::error_handler_t::replace);
}

// A member of what is to be an object. Throws kInvalidArgument, with the key, where it is none or has no such member.
template <class Json>
const Json& json_member(const Json& json, const char* key) {
  if (!json.is_object())
    throw Error(ErrorCode::kInvalidArgument,
                json_excerpt(json.dump()) + " stands where an object with " + key + " is accepted");
  const auto found = json.find(key);
  if (found == json.end()) throw Error(ErrorCode::kInvalidArgument, std::string("has no ") + key);
  return *found;
}

// "KEY is VALUE; must be ACCEPTED"; a long value is cut.
[[noreturn]] void refuse_json(const char* key, const std::string& value,
                              const std::string& accepted);

template <class Json>
std::string json_string(const Json& json, const char* key) {
  const Json& value = json_member(json, key);
  if (!value.is_string()) refuse_json(key, value.dump(), "texts");
  return value.template get<std::string>();
}

template <class Json>
double json_number(const Json& json, const char* key) {
  const Json& value = json_member(json, key);
  if (!value.is_number()) refuse_json(key, value.dump(), "numbers");
  return value.template get<double>();
}

template <class Json>
bool json_flag(const Json& json, const char* key) {
  const Json& value = json_member(json, key);
  if (!value.is_boolean()) refuse_json(key, value.dump(), "true and false");
  return value.template get<bool>();
}

template <class Json>
const Json& json_list(const Json& json, const char* key) {
  const Json& value = json_member(json, key);
  if (!value.is_array()) refuse_json(key, value.dump(), "lists");
  return value;
}

// The integer of a member. A conversion of its own: the library's cuts fractions off and wraps what
// is too large. Throws kInvalidArgument with the key, what came and what is accepted.
template <class Integer = int, class Json>
Integer json_integer(const Json& json, const char* key, int64_t lowest = -1) {
  const Json& value = json_member(json, key);
  constexpr auto kHighest = static_cast<uint64_t>(std::numeric_limits<Integer>::max());
  const bool fits = value.is_number_unsigned()  // what is not negative
                        ? value.template get<uint64_t>() <= kHighest
                        : value.is_number_integer() && value.template get<int64_t>() >= lowest;
  if (!fits)
    refuse_json(key, value.dump(),
                "integers from " + std::to_string(lowest) + " to " + std::to_string(kHighest));
  return static_cast<Integer>(value.template get<int64_t>());
}

}  // namespace attune
