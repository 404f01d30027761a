// SPDX-License-Identifier: Apache-2.0
// Names of the error codes; see error.hpp.
#include "generator/core/system/error.hpp"

#include <algorithm>

namespace attune {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kNotTuned:
      return "not tuned";
    case ErrorCode::kWouldCompile:
      return "would compile";
    case ErrorCode::kCompile:
      return "compile";
    case ErrorCode::kDriver:
      return "driver";
    case ErrorCode::kStore:
      return "store";
    case ErrorCode::kOutOfMemory:
      return "out of memory";
    case ErrorCode::kIo:
      return "file";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

std::string first_errors(std::string_view log) {
  constexpr int kMost = 3;
  constexpr size_t kBeginning = 300;
  std::string errors;
  int count = 0;
  for (size_t start = 0; start < log.size() && count < kMost;) {
    const size_t end = std::min(log.find('\n', start), log.size());
    const std::string_view line = log.substr(start, end - start);
    if (line.find("error") != std::string_view::npos)
      errors.append(count++ == 0 ? "" : "; ").append(line);
    start = end + 1;
  }
  return errors.empty() ? std::string(log.substr(0, kBeginning)) : errors;
}

}  // namespace attune
