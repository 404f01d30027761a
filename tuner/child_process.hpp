// SPDX-License-Identifier: Apache-2.0
// ChildProcess: a program on the other end of a socket, which is its standard input and output. It
// can be killed at any time and never outlives its owner. Frames are one line of JSON text, then as
// many raw bytes as the sender added.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace attune {

struct Frame {
  std::string line;  // without its line break
  std::string payload;
};

struct WaitLimit {
  double timeout_s = -1;         // below 0: for ever
  std::function<bool()> stop{};  // asked ten times a second; true ends the wait with kStopped
};

// One end of the socket. Not owned.
class FrameSocket {
 public:
  explicit FrameSocket(int fd) : fd_(fd) {}
  enum class Status { kOk, kClosed, kTimeout, kStopped };
  // Sending may wait too: a process that does not read takes no more than the socket's buffer
  // holds.
  Status send(const Frame& frame, const WaitLimit& limit = {}) const;
  Status receive(Frame* frame, const WaitLimit& limit = {});

 private:
  int fd_;
  std::string buffer_;
};

class ChildProcess {
 public:
  // Throws kDriver when the program cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command);
  ~ChildProcess();  // kills it
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  FrameSocket& socket() { return socket_; }
  pid_t pid() const { return pid_; }
  // Ends it and says how it went: "killed by signal 11 (Segmentation fault)", "exited with status
  // 3".
  std::string end();

 private:
  struct Started {
    pid_t pid;
    int fd;
  };
  static Started start(const std::vector<std::string>& command);
  std::optional<std::string> reaped();  // how it ended; nullopt: it runs
  explicit ChildProcess(Started started)
      : pid_(started.pid), fd_(started.fd), socket_(started.fd) {}

  pid_t pid_;
  int fd_;
  FrameSocket socket_;
};

}  // namespace attune
