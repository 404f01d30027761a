// SPDX-License-Identifier: Apache-2.0
// Writing the problems that a program asks for; see capture.hpp.
#include "runtime/capture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "generator/core/log.hpp"

namespace attune {
namespace {

// Programs stand in a problem's text by their digests alone, so they come with it.
std::string line_of(const Problem& problem, const std::string& text) {
  nlohmann::ordered_json line{{"problem", text}};
  const auto add = [&](const char* field, const ProgramDigest& digest) {
    if (const UserProgram* program = find_user_program(digest)) line[field] = program->text;
  };
  add("score_mod", problem.score_mod);
  add("mask_mod", problem.mask_mod);
  return line.dump(-1, ' ', true) + "\n";
}

}  // namespace

void Capture::note(const Problem& problem) {
  if (file_.empty()) return;
  const std::string text = to_text(problem);
  const std::lock_guard lock(mutex_);
  if (failed_ || !seen_.insert(text).second) return;
  const std::string line = line_of(problem, text);
  const int file = open(file_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  failed_ = file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size());
  if (failed_)
    log(LogCode::kCaptureNotWritten,
        fmt::format("capture file {} cannot be written: {}", file_.string(), std::strerror(errno)));
  if (file >= 0) close(file);
}

}  // namespace attune
