// SPDX-License-Identifier: Apache-2.0
// Writing the problems that a program asks for; see capture.hpp.
#include "runtime/engine/capture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "generator/core/system/json_text.hpp"
#include "generator/core/system/log.hpp"
#include "generator/core/system/open_file.hpp"

namespace attune {
namespace {

// Returns the line of a problem. The problem's text names programs only by their digests, so the
// line has the programs' texts too. The JSON is written by hand: an object of nlohmann allocates in
// its destructor, which terminates the process if memory is exhausted.
std::string line_of(const Problem& problem, const std::string& text) {
  const auto quoted = [](const std::string& value) {
    return to_json_text(nlohmann::json(value), -1, JsonLetters::kAscii);
  };
  std::string line = "{\"problem\":" + quoted(text);
  const auto add = [&](const char* field, const ProgramDigest& digest) {
    if (const UserProgram* program = find_user_program(digest))
      line += fmt::format(",\"{}\":{}", field, quoted(program->text));
  };
  add("score_mod", problem.scores.score_mod);
  add("mask_mod", problem.scores.mask_mod);
  return line + "}\n";
}

// Appends a line to a file. Returns "", or the reason if the whole line was not written.
std::string append(const std::filesystem::path& path, std::string_view line) {
  std::string why;
  const FileDescriptor file = open_regular(path, O_WRONLY | O_APPEND | O_CREAT, &why, 0644);
  if (!file) return why;
  while (!line.empty()) {  // again after a partial write, so that errno has the reason
    const ssize_t written = ::write(file.get(), line.data(), line.size());
    if (written < 0 && errno != EINTR) return std::strerror(errno);
    if (written > 0) line.remove_prefix(static_cast<size_t>(written));
  }
  return why;
}

}  // namespace

void Capture::note(const Problem& problem) {
  if (file_.empty()) return;
  const std::string text = to_text(problem);
  const std::lock_guard lock(mutex_);
  if (failed_ || !seen_.insert(text).second) return;
  const std::string why = append(file_, line_of(problem, text));
  failed_ = !why.empty();
  if (failed_)
    log(LogCode::kCaptureNotWritten,
        fmt::format("capture file {} cannot be written: {}", file_.string(), why));
}

}  // namespace attune
