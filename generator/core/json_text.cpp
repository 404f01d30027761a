// SPDX-License-Identifier: Apache-2.0
// Complaints of the JSON parser as our sentences; see json_text.hpp.
#include "generator/core/json_text.hpp"

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
  std::string text = "not JSON, " + std::string(complaint.substr(0, kLongest));
  if (complaint.size() > kLongest) text += "...";
  return text;
}

}  // namespace attune
