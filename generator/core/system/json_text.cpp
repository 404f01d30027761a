// SPDX-License-Identifier: Apache-2.0
// Turns complaints of the JSON parser into our sentences; see json_text.hpp.
#include "generator/core/system/json_text.hpp"

namespace attune {
namespace {

constexpr size_t kLongest = 240;

}  // namespace

// nlohmann writes "[json.exception.parse_error.101] parse error at line 3, column 5: ...", and for
// a number beyond a double "[json.exception.out_of_range.406] number overflow parsing '1e400'".
std::string json_fault(std::string_view complaint) {
  const size_t line = complaint.find("at line"), bracket = complaint.find("] ");
  if (line != std::string_view::npos)
    complaint.remove_prefix(line);
  else if (bracket != std::string_view::npos)
    complaint.remove_prefix(bracket + 2);
  return "not JSON, " + json_excerpt(complaint);
}

void refuse_json_depth() {
  throw Error(ErrorCode::kInvalidArgument,
              "JSON nests deeper than " + std::to_string(kMaxJsonDepth) + " levels");
}

std::string json_excerpt(std::string_view value) {
  std::string text(value.substr(0, kLongest));
  if (value.size() > kLongest) text += "...";
  return text;
}

void refuse_json(const char* key, const std::string& value, const std::string& accepted) {
  throw Error(ErrorCode::kInvalidArgument,
              std::string(key) + " is " + json_excerpt(value) + "; must be " + accepted);
}

}  // namespace attune
