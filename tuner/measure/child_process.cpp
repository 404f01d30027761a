// SPDX-License-Identifier: Apache-2.0
// Starts a child, talks to it and ends it; see child_process.hpp.
#include "tuner/measure/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"

extern char** environ;

namespace attune {
namespace {

constexpr double kReapSeconds = 5;  // a killed process may have to wait for its driver
constexpr double kStepSeconds = 0.1, kLongStepSeconds = 60;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

using Status = FrameSocket::Status;

// The time left until a limit.
class Wait {
 public:
  explicit Wait(const WaitLimit& limit)
      : stop_(limit.stop), deadline_(limit.timeout_s < 0 ? INFINITY : now_s() + limit.timeout_s) {}

  // Waits until poll reports one of `events` on fd, or that the other side is gone.
  Status until(int fd, short events) const {
    for (;;) {
      if (stop_ && stop_()) return Status::kStopped;
      const double left_s = std::max(0.0, deadline_ - now_s());
      const double step_s = std::min(left_s, stop_ ? kStepSeconds : kLongStepSeconds);
      pollfd waiting{fd, events, 0};
      const int ready = ::poll(&waiting, 1, static_cast<int>(std::ceil(1e3 * step_s)));
      if (ready > 0) return Status::kOk;
      if (ready < 0 && errno != EINTR) return Status::kClosed;
      if (left_s <= 0) return Status::kTimeout;
    }
  }

 private:
  const std::function<bool()>& stop_;
  const double deadline_;
};

Status send_all(int fd, std::string_view bytes, const Wait& wait) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (sent < 0 && errno == EAGAIN) {
      if (const Status status = wait.until(fd, POLLOUT); status != Status::kOk) return status;
    } else if (sent == 0 || errno != EINTR) {
      return Status::kClosed;
    }
  }
  return Status::kOk;
}

std::string ending(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

[[noreturn]] void fail(const std::string& what, int error) {
  throw Error(ErrorCode::kDriver, fmt::format("{}: {}", what, std::strerror(error)));
}

// Gives both ends numbers above 2. Otherwise dup2 onto stdin or stdout could find the descriptor
// there already, and would not duplicate it.
void make_socket(FileDescriptor* ours, FileDescriptor* theirs) {
  int low[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, low) != 0)
    fail("cannot make a socket pair", errno);
  const FileDescriptor first(low[0]), second(low[1]);
  ours->reset(::fcntl(low[0], F_DUPFD_CLOEXEC, 3));
  if (*ours) theirs->reset(::fcntl(low[1], F_DUPFD_CLOEXEC, 3));
  if (!*theirs) fail("cannot make a socket pair", errno);
}

}  // namespace

// Sends a frame as "<payload bytes> <line>\n<payload>".
FrameSocket::Status FrameSocket::send(const Frame& frame, const WaitLimit& limit) const {
  const Wait wait(limit);
  const Status line = send_all(fd_, fmt::format("{} {}\n", frame.payload.size(), frame.line), wait);
  return line == Status::kOk ? send_all(fd_, frame.payload, wait) : line;
}

FrameSocket::Status FrameSocket::receive(Frame* frame, const WaitLimit& limit) {
  const Wait wait(limit);
  for (;;) {
    const size_t line_end = buffer_.find('\n');
    const size_t space = buffer_.find(' ');
    if (line_end != std::string::npos) {
      size_t payload = 0;
      const auto parsed = std::from_chars(buffer_.data(), buffer_.data() + line_end, payload);
      if (parsed.ec != std::errc() || space > line_end)
        return Status::kClosed;  // not the protocol: treated as closed
      if (buffer_.size() >= line_end + 1 + payload) {
        frame->line = buffer_.substr(space + 1, line_end - space - 1);
        frame->payload = buffer_.substr(line_end + 1, payload);
        buffer_.erase(0, line_end + 1 + payload);
        return Status::kOk;
      }
    }
    if (const Status status = wait.until(fd_, POLLIN); status != Status::kOk) return status;
    char chunk[65536];
    const ssize_t got = ::recv(fd_, chunk, sizeof chunk, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Status::kClosed;
    buffer_.append(chunk, static_cast<size_t>(got));
  }
}

ChildProcess::ChildProcess(const std::vector<std::string>& command)
    : ChildProcess(start(command)) {}

ChildProcess::Started ChildProcess::start(const std::vector<std::string>& command) {
  FileDescriptor ours, theirs;
  make_socket(&ours, &theirs);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // Ctrl-C reaches the parent alone
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) fail("cannot start " + command.front(), error);
  return {pid, ours.release()};
}

ChildProcess::~ChildProcess() {
  end();
  ::close(fd_);
}

// Returns how the child ended, or nullopt while it runs. The status is unknown if the system no
// longer has it: another thread has waited for the child, or SIGCHLD is ignored (programs inherit
// this setting).
std::optional<std::string> ChildProcess::reaped() {
  int status = 0;
  const pid_t found = ::waitpid(pid_, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno != ECHILD)) return std::nullopt;
  pid_ = -1;
  return found < 0 ? "ended, with unknown status" : ending(status);
}

std::string ChildProcess::end() {
  if (pid_ < 0) return "ended before";
  // A child that closed its end is about to exit. Its own status is more useful than that of a
  // kill.
  for (int i = 0; i < 20; ++i) {
    if (const auto how = reaped()) return *how;
    pollfd peer{fd_, POLLIN, 0};
    ::poll(&peer, 1, 0);
    if ((peer.revents & POLLHUP) == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ::kill(pid_, SIGKILL);
  for (const double deadline = now_s() + kReapSeconds; now_s() < deadline;) {
    if (const auto how = reaped()) return *how;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  pid_ = -1;
  return "killed, but its driver still holds it";
}

}  // namespace attune
