// SPDX-License-Identifier: Apache-2.0
// Writes the problems that a program asks for; see capture.hpp.
#include "runtime/engine/capture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "generator/core/system/files.hpp"
#include "generator/core/system/json_text.hpp"
#include "generator/core/system/log.hpp"

namespace attune {
namespace {

constexpr int64_t kSecondsBetweenCounts = 10;
constexpr int64_t kCallsBetweenLooks = 256;  // of one problem

int64_t steady_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

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

// Returns the path with the process's id for "%p".
std::string path_of_process(std::string path) {
  if (const size_t at = path.find("%p"); at != std::string::npos)
    path.replace(at, 2, std::to_string(::getpid()));
  return path;
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

void count_call(CallCounts* counts, bool is_recorded) {
  static std::atomic<int64_t> due{steady_seconds() + kSecondsBetweenCounts};
  const int64_t before = (is_recorded ? counts->recorded : counts->calls).fetch_add(1);
  if (before % kCallsBetweenLooks != 0) return;
  int64_t expected = due.load();
  const int64_t now = steady_seconds();
  if (now >= expected && due.compare_exchange_strong(expected, now + kSecondsBetweenCounts))
    write_all_counts();
}

Capture::Capture(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty()) return;
  static const int registered =
      std::atexit(write_all_counts) +
      ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  static_cast<void>(registered);
  const std::lock_guard lock(living().mutex);
  living().captures.insert(this);
}

void Capture::before_fork() {
  living().mutex.lock();
  for (Capture* capture : living().captures) capture->mutex_.lock();
}

void Capture::after_fork_in_parent() {
  for (Capture* capture : living().captures) capture->mutex_.unlock();
  living().mutex.unlock();
}

// The parent writes the calls before the fork.
void Capture::after_fork_in_child() {
  for (Capture* capture : living().captures)
    for (auto& [unused, counted] : capture->counted_) {
      counted.written_calls = counted.counts->calls;
      counted.written_recorded = counted.counts->recorded;
    }
  after_fork_in_parent();
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
  if (failed_ || !seen_.insert(text).second) return;
  write(line_of(problem, text));
}

std::shared_ptr<CallCounts> Capture::counts_of(const Problem& problem, Rung rung) {
  if (file_.empty()) return nullptr;
  const std::lock_guard lock(mutex_);
  Counted& counted = counted_[{to_text(problem), rung}];
  if (!counted.counts) counted = {problem, rung, std::make_shared<CallCounts>()};
  return counted.counts;
}

void Capture::write_counts() {
  const std::lock_guard lock(mutex_);
  for (auto& [key, counted] : counted_) {
    const int64_t calls = counted.counts->calls.load(), recorded = counted.counts->recorded.load();
    const int64_t new_calls = calls - counted.written_calls;
    const int64_t new_recorded = recorded - counted.written_recorded;
    if (new_calls + new_recorded > 0 && !failed_)
      write(line_of(counted.problem, key.first,
                    fmt::format(",\"calls\":{},\"recorded\":{},\"rung\":\"{}\"", new_calls,
                                new_recorded, rung_name(counted.rung))));
    counted.written_calls = calls;
    counted.written_recorded = recorded;
  }
}

void Capture::write(const std::string& line) {
  const std::string why = append(path_of_process(file_.string()), line);
  failed_ = !why.empty();
  if (failed_)
    log(LogCode::kCaptureNotWritten,
        fmt::format("capture file {} cannot be written: {}", file_.string(), why));
}

}  // namespace attune
