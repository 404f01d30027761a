// SPDX-License-Identifier: Apache-2.0
// The one exception type of attune. The libraries throw it; the C ABI turns it into a status and a
// text.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace attune {

// The code says whose fault the error is. Values equal the C statuses of attune.h and are frozen.
enum class ErrorCode : int {
  kInvalidArgument = 1,  // caller: an argument is outside what the function accepts
  kUnsupported = 2,      // caller: a valid request that no kernel serves
  kNotTuned = 3,         // policy `strict`: no tuned kernel for this problem
  kWouldCompile = 4,     // policy `no_jit`: answering needs a compiler
  kCompile = 5,          // environment: compiler missing or refused the source
  kDriver = 6,           // environment: driver or device missing or failing
  kStore = 7,            // environment: database unreadable, unwritable, damaged or newer
  kOutOfMemory = 8,      // environment
  kIo = 9,               // environment: a file other than the store
  kInternal = 10,        // ours
};

const char* error_code_name(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

// Returns the first lines of a compiler's log that mention an error, else the beginning of the log.
std::string first_errors(std::string_view log);

}  // namespace attune
