// SPDX-License-Identifier: Apache-2.0
// ChildProcess: a program that is connected to us by a socket, which is its standard input and
// output. It can be killed at any time and never outlives its owner. A frame is one line of JSON
// text, followed by raw bytes.
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
  double timeout_s = -1;         // negative: no limit
  std::function<bool()> stop{};  // called ten times a second; true ends the wait with kStopped
};

// One end of the socket. Does not own it.
class FrameSocket {
 public:
  explicit FrameSocket(int fd) : fd_(fd) {}
  enum class Status { kOk, kClosed, kTimeout, kStopped };
  // Sends a frame. This may wait too: if the other process does not read, only the socket's buffer
  // accepts bytes.
  Status send(const Frame& frame, const WaitLimit& limit = {}) const;
  Status receive(Frame* frame, const WaitLimit& limit = {});

 private:
  int fd_;
  std::string buffer_;
};

class ChildProcess {
 public:
  // Throws kDriver if the program cannot be started.
  explicit ChildProcess(const std::vector<std::string>& command);
  ~ChildProcess();  // kills it
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  FrameSocket& socket() { return socket_; }
  pid_t pid() const { return pid_; }
  // Ends the child and returns how it ended: "killed by signal 11 (Segmentation fault)", "exited
  // with status 3".
  std::string end();

 private:
  struct Started {
    pid_t pid;
    int fd;
  };
  static Started start(const std::vector<std::string>& command);
  std::optional<std::string> reaped();  // how it ended; nullopt: it still runs
  explicit ChildProcess(Started started)
      : pid_(started.pid), fd_(started.fd), socket_(started.fd) {}

  pid_t pid_;
  int fd_;
  FrameSocket socket_;
};

}  // namespace attune
