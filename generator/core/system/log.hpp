// SPDX-License-Identifier: Apache-2.0
// The library never prints. It calls a sink, which by default does nothing. A message goes to the
// innermost living ThreadLog of its thread, or to the process's sink if there is none. The C
// interface installs a context's log function with a ThreadLog during each call. The program attune
// sets the process's sink.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/system/log_codes.hpp"

namespace attune {

using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the sink of the process and returns the former one. Thread-safe.
LogSink set_log_sink(LogSink sink);
// Logs at the level of `code`; the sink's text begins with "AT101: ".
void log(LogCode code, std::string_view message);

// Receives all messages of the thread that constructed it, until it is destroyed. Must be a local
// variable of that thread.
class ThreadLog {
 public:
  // `sink` is not owned. With nullptr or an empty sink, messages pass to the next outer sink.
  explicit ThreadLog(const LogSink* sink);
  ~ThreadLog();
  ThreadLog(const ThreadLog&) = delete;
  ThreadLog& operator=(const ThreadLog&) = delete;

 private:
  friend void pass_on(LogLevel level, std::string_view message);
  const LogSink* const sink_;
  ThreadLog* const outer_;
};

// Keeps each distinct warning and error that this thread logs during the object's lifetime. Passes
// every message on.
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
