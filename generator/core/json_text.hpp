// SPDX-License-Identifier: Apache-2.0
// The one way in which JSON from outside is read: manifests, imported lines, captures, configs.
// nlohmann's parser takes any depth, but copying and printing a value recurses. So parsing refuses
// what nests deeply.
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

// `Json` is nlohmann::json or ordered_json; the caller includes it. Throws kInvalidArgument for
// what is not JSON (with its line), nests deeper than kMaxJsonDepth, or holds a number beyond a
// double.
template <class Json>
Json parse_json(std::string_view text) {
  const auto refuse_depth = [](int depth, typename Json::parse_event_t, Json&) {
    if (depth > kMaxJsonDepth)
      throw Error(ErrorCode::kInvalidArgument,
                  "JSON nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    return true;
  };
  try {
    return Json::parse(text, refuse_depth);
  } catch (const typename Json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, json_fault(error.what()));
  }
}

// The integer of a member. A conversion of its own: the library's cuts fractions off and wraps what
// is too large. Throws kInvalidArgument with the key, what came and what is accepted.
template <class Integer = int, class Json>
Integer json_integer(const Json& json, const char* key, int64_t lowest = -1) {
  const Json& value = json.at(key);
  constexpr auto kHighest = static_cast<uint64_t>(std::numeric_limits<Integer>::max());
  const bool fits = value.is_number_unsigned()  // what is not negative
                        ? value.template get<uint64_t>() <= kHighest
                        : value.is_number_integer() && value.template get<int64_t>() >= lowest;
  if (!fits)
    throw Error(ErrorCode::kInvalidArgument,
                std::string(key) + " is " + value.dump() + "; accepted are integers from " +
                    std::to_string(lowest) + " to " + std::to_string(kHighest));
  return static_cast<Integer>(value.template get<int64_t>());
}

}  // namespace attune
