// SPDX-License-Identifier: Apache-2.0
// The only way to read and write JSON: manifests, imported lines, captures, configs. nlohmann's
// parser takes any depth, but copying and printing a value recurses, so parsing refuses deep
// nesting. nlohmann's printer throws for bytes that are not UTF-8; ours replaces them. libattune.so
// reads its JSON into a JsonValue (json_value.hpp).
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "generator/core/system/error.hpp"

namespace attune {

inline constexpr int kMaxJsonDepth = 64;

// Returns "not JSON, at line 3, column 5: ..." from the parser's message. Cuts long messages.
std::string json_fault(std::string_view complaint);
[[noreturn]] void refuse_json_depth();
// Returns the first characters of a value, followed by "..." if the value is longer.
std::string json_excerpt(std::string_view value);

// Parses JSON. `Json` is nlohmann::json or ordered_json; the caller includes it. Throws
// kInvalidArgument for text that is not JSON (with the line), that nests deeper than kMaxJsonDepth,
// or that holds a number beyond a double.
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

// Returns the text of a value, on one line unless `indent` is 0 or more. Bytes that are not UTF-8
// (in a device's name, say) become U+FFFD, so writing text from outside never fails.
template <class Json>
std::string to_json_text(const Json& json, int indent = -1,
                         JsonLetters letters = JsonLetters::kUtf8) {
  return json.dump(indent, ' ', letters == JsonLetters::kAscii, Json::error_handler_t::replace);
}

// Returns a member of an object. Throws kInvalidArgument, with the key, if `json` is not an object
// or has no such member.
template <class Json>
const Json& json_member(const Json& json, const char* key) {
  if (!json.is_object())
    throw Error(
        ErrorCode::kInvalidArgument,
        json_excerpt(json.dump()) + " is given; must be an object with member \"" + key + "\"");
  const auto found = json.find(key);
  if (found == json.end()) throw Error(ErrorCode::kInvalidArgument, std::string("has no ") + key);
  return *found;
}

// Throws "KEY is VALUE; must be ACCEPTED"; a long value is cut.
[[noreturn]] void refuse_json(const char* key, const std::string& value,
                              const std::string& accepted);

template <class Json>
std::string json_string(const Json& json, const char* key) {
  const Json& value = json_member(json, key);
  if (!value.is_string()) refuse_json(key, value.dump(), "a text");
  return value.template get<std::string>();
}

template <class Json>
double json_number(const Json& json, const char* key) {
  const Json& value = json_member(json, key);
  if (!value.is_number()) refuse_json(key, value.dump(), "a number");
  return value.template get<double>();
}

template <class Json>
bool json_flag(const Json& json, const char* key) {
  const Json& value = json_member(json, key);
  if (!value.is_boolean()) refuse_json(key, value.dump(), "true or false");
  return value.template get<bool>();
}

template <class Json>
const Json& json_list(const Json& json, const char* key) {
  const Json& value = json_member(json, key);
  if (!value.is_array()) refuse_json(key, value.dump(), "a list");
  return value;
}

// Returns the integer of a member. The library's own conversion cuts fractions off and wraps large
// numbers. Throws kInvalidArgument with the key, the value and the valid range.
template <class Integer = int, class Json>
Integer json_integer(const Json& json, const char* key, int64_t lowest = -1) {
  const Json& value = json_member(json, key);
  constexpr auto kHighest = static_cast<uint64_t>(std::numeric_limits<Integer>::max());
  const bool fits = value.is_number_unsigned()  // not negative
                        ? value.template get<uint64_t>() <= kHighest
                        : value.is_number_integer() && value.template get<int64_t>() >= lowest;
  if (!fits)
    refuse_json(key, value.dump(),
                "an integer from " + std::to_string(lowest) + " to " + std::to_string(kHighest));
  return static_cast<Integer>(value.template get<int64_t>());
}

}  // namespace attune
