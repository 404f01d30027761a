// SPDX-License-Identifier: Apache-2.0
// Writing the problems that a program asks for; see capture.hpp.
#include "runtime/capture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "generator/core/log.hpp"

namespace attune {

void Capture::note(const Problem& problem) {
  if (file_.empty()) return;
  const std::string text = to_text(problem);
  const std::lock_guard lock(mutex_);
  if (failed_ || !seen_.insert(text).second) return;
  const std::string line =
      fmt::format("{{\"problem\": \"{}\"}}\n", text);  // the text form has no quotes or backslashes
  const int file = open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  failed_ = file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size());
  if (failed_)
    log(LogLevel::kWarning,
        fmt::format("capture file {} cannot be written: {}", file_.string(), std::strerror(errno)));
  if (file >= 0) close(file);
}

}  // namespace attune
