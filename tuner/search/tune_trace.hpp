// SPDX-License-Identifier: Apache-2.0
// TuneTrace: records the steps of a tune and their times, as a file for Perfetto or
// chrome://tracing (complete events of the trace event format). Each part of the tuner opens a
// TraceSpan; without a trace, that only tests a pointer.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace attune {

// Thread-safe.
class TuneTrace {
 public:
  using Clock = std::chrono::steady_clock;
  using Arguments = std::vector<std::pair<std::string, std::string>>;

  // `kind` chooses the colour in a viewer: "compile", "check", "time", "final", "shape".
  void add(std::string kind, std::string name, Clock::time_point begin, Clock::time_point end,
           Arguments arguments);
  // Returns one JSON object with events in the order of their beginning. Threads are numbered in
  // order of appearance.
  std::string json() const;

 private:
  struct Event {
    std::string kind, name;
    Clock::time_point begin, end;
    int thread;
    Arguments arguments;
  };

  const Clock::time_point began_ = Clock::now();
  mutable std::mutex mutex_;
  std::map<std::thread::id, int> threads_;
  std::vector<Event> events_;
};

// An event on this thread, from the construction of this object to the end of its scope.
class TraceSpan {
 public:
  TraceSpan(TuneTrace* trace, const char* kind) : trace_(trace), kind_(kind) {
    if (trace_ != nullptr) begin_ = TuneTrace::Clock::now();
  }
  ~TraceSpan() {
    if (trace_ != nullptr)
      trace_->add(kind_, std::move(name_), begin_, TuneTrace::Clock::now(), std::move(arguments_));
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  bool is_on() const { return trace_ != nullptr; }
  void name(std::string name) { name_ = std::move(name); }
  void argument(std::string key, std::string value) {
    arguments_.emplace_back(std::move(key), std::move(value));
  }

 private:
  TuneTrace* const trace_;
  const char* const kind_;
  TuneTrace::Clock::time_point begin_{};
  std::string name_;
  TuneTrace::Arguments arguments_;
};

}  // namespace attune
