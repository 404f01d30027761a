// SPDX-License-Identifier: Apache-2.0
// The library never prints: it calls a sink, which by default does nothing. Messages of a thread go
// to its innermost living ThreadLog, or without one to the process's sink. The C interface puts a
// context's function into a ThreadLog for the duration of a call; the program sets the process's
// sink.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/log_codes.hpp"

namespace attune {

using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the sink of the process and returns the former one. Thread-safe.
LogSink set_log_sink(LogSink sink);
// Logs at the level of `code`; the sink's text begins with "AT101: ".
void log(LogCode code, std::string_view message);

// Gets all messages of the thread that made it while it lives. It lives on that thread's stack.
class ThreadLog {
 public:
  // `sink` is not owned. With nullptr or an empty sink, messages go on as without this object.
  explicit ThreadLog(const LogSink* sink);
  ~ThreadLog();
  ThreadLog(const ThreadLog&) = delete;
  ThreadLog& operator=(const ThreadLog&) = delete;

 private:
  friend void pass_on(LogLevel level, std::string_view message);
  const LogSink* const sink_;
  ThreadLog* const outer_;
};

// Keeps the warnings and errors that this thread logs while it lives, each text once, and passes
// everything on.
class WarningCollector {
 public:
  WarningCollector();
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  void keep(LogLevel level, std::string_view message);

  std::vector<std::string> texts_;
  const LogSink sink_;
  const ThreadLog log_;
};

}  // namespace attune
