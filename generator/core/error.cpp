// SPDX-License-Identifier: Apache-2.0
// Names of the error codes; see error.hpp.
#include "generator/core/error.hpp"

namespace attune {

const char* error_code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kNotTuned: return "not tuned";
    case ErrorCode::kWouldCompile: return "would compile";
    case ErrorCode::kCompile: return "compile";
    case ErrorCode::kDriver: return "driver";
    case ErrorCode::kStore: return "store";
    case ErrorCode::kOutOfMemory: return "out of memory";
    case ErrorCode::kIo: return "file";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

}  // namespace attune
