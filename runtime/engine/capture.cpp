// SPDX-License-Identifier: Apache-2.0
// Writes the problems that a program asks for; see capture.hpp.
#include "runtime/engine/capture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "generator/core/system/json_text.hpp"
#include "generator/core/system/log.hpp"
#include "generator/core/system/open_file.hpp"

namespace attune {
namespace {

constexpr std::chrono::seconds kBetweenCounts{30};

// Returns the line of a problem; `more` are further members. The problem's text names programs only
// by their digests, so the line has the programs' texts too. The JSON is written by hand: an object
// of nlohmann allocates in its destructor, which terminates the process if memory is exhausted.
std::string line_of(const Problem& problem, const std::string& text, const std::string& more = "") {
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
  return line + more + "}\n";
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

// The captures of this process, for its end: Python seldom destroys its contexts.
struct Living {
  std::mutex mutex;
  std::set<Capture*> captures;
};

Living& living() {
  static auto* const all = new Living;  // outlives the handler
  return *all;
}

void write_all_counts() {
  const std::lock_guard lock(living().mutex);
  for (Capture* capture : living().captures) capture->write_counts();
}

}  // namespace

Capture::Capture(std::filesystem::path file) : file_(std::move(file)), owner_(::getpid()) {
  if (file_.empty()) return;
  static const int registered = std::atexit(write_all_counts);
  static_cast<void>(registered);
  const std::lock_guard lock(living().mutex);
  living().captures.insert(this);
}

Capture::~Capture() {
  if (file_.empty()) return;
  {
    const std::lock_guard lock(living().mutex);
    living().captures.erase(this);
  }
  write_counts();
}

void Capture::note(const Problem& problem) {
  if (file_.empty()) return;
  const std::string text = to_text(problem);
  const std::lock_guard lock(mutex_);
  if (owner_ != ::getpid()) write_counts_locked();  // drops the calls of the parent
  if (failed_ || !seen_.insert(text).second) return;
  write(line_of(problem, text));
  if (std::chrono::steady_clock::now() - last_written_ > kBetweenCounts) write_counts_locked();
}

std::shared_ptr<CallCounts> Capture::counts_of(const Problem& problem) {
  if (file_.empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  Counted& counted = counted_[to_text(problem)];
  if (!counted.counts) counted = {problem, std::make_shared<CallCounts>()};
  return counted.counts;
}

void Capture::write_counts() {
  const std::lock_guard lock(mutex_);
  write_counts_locked();
}

void Capture::write_counts_locked() {
  last_written_ = std::chrono::steady_clock::now();
  const bool is_child = owner_ != ::getpid();
  for (auto& [text, counted] : counted_) {
    const int64_t calls = counted.counts->calls.load(), recorded = counted.counts->recorded.load();
    const int64_t new_calls = calls - counted.written_calls;
    const int64_t new_recorded = recorded - counted.written_recorded;
    if (new_calls + new_recorded > 0 && !is_child && !failed_)
      write(line_of(counted.problem, text,
                    fmt::format(",\"calls\":{},\"recorded\":{}", new_calls, new_recorded)));
    counted.written_calls = calls;
    counted.written_recorded = recorded;
  }
  owner_ = ::getpid();
}

void Capture::write(const std::string& line) {
  const std::string why = append(file_, line);
  failed_ = !why.empty();
  if (failed_)
    log(LogCode::kCaptureNotWritten,
        fmt::format("capture file {} cannot be written: {}", file_.string(), why));
}

}  // namespace attune
