// SPDX-License-Identifier: Apache-2.0
// The sinks of messages; see log.hpp.
#include "generator/core/system/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>

#include "generator/core/system/foreign_text.hpp"

namespace attune {
namespace {

// The one mutable global of the library. All code must reach the sink, which the outer layers set.
struct SinkHolder {
  std::mutex mutex;
  LogSink sink;
};

SinkHolder& holder() {
  static SinkHolder instance;
  return instance;
}

thread_local ThreadLog* innermost = nullptr;

struct PutBack {
  ThreadLog* const thread_log;
  ~PutBack() { innermost = thread_log; }
};

}  // namespace

LogSink set_log_sink(LogSink sink) {
  const std::lock_guard<std::mutex> lock(holder().mutex);
  return std::exchange(holder().sink, std::move(sink));
}

void pass_on(LogLevel level, std::string_view message) {
  ThreadLog* const thread_log = innermost;
  if (thread_log) {
    const PutBack at_end{thread_log};
    innermost = thread_log->outer_;  // messages of the sink itself go to the outer one
    if (thread_log->sink_ && *thread_log->sink_) return (*thread_log->sink_)(level, message);
    return pass_on(level, message);
  }
  LogSink sink;
  {
    const std::lock_guard<std::mutex> lock(holder().mutex);
    sink = holder().sink;
  }
  if (sink) sink(level, message);
}

void log(LogCode code, std::string_view message) {
  const auto* const entry = std::find_if(kLogCodes.begin(), kLogCodes.end(),
                                         [&](const LogCodeEntry& one) { return one.code == code; });
  std::string text = fmt::format("AT{}: {}", static_cast<int>(code), message);
  make_printable(text.data(), text.size());
  pass_on(entry->level, text);
}

ThreadLog::ThreadLog(const LogSink* sink) : sink_(sink), outer_(std::exchange(innermost, this)) {}
ThreadLog::~ThreadLog() { innermost = outer_; }

WarningCollector::WarningCollector()
    : sink_([this](LogLevel level, std::string_view message) { keep(level, message); }),
      log_(&sink_) {}

void WarningCollector::keep(LogLevel level, std::string_view message) {
  if (level >= LogLevel::kWarning &&
      std::find(texts_.begin(), texts_.end(), message) == texts_.end())
    texts_.emplace_back(message);
  pass_on(level, message);
}

}  // namespace attune
