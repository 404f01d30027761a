// SPDX-License-Identifier: Apache-2.0
// The process's log sink; see log.hpp.
#include "generator/core/log.hpp"

#include <mutex>
#include <utility>

namespace attune {
namespace {

// The one mutable global of the library: a sink must be reachable from everywhere and is set at the border.
struct SinkHolder {
  std::mutex mutex;
  LogSink sink;
};

SinkHolder& holder() {
  static SinkHolder instance;
  return instance;
}

}  // namespace

LogSink set_log_sink(LogSink sink) {
  const std::lock_guard<std::mutex> lock(holder().mutex);
  return std::exchange(holder().sink, std::move(sink));
}

void log(LogLevel level, std::string_view message) {
  LogSink sink;
  {
    const std::lock_guard<std::mutex> lock(holder().mutex);
    sink = holder().sink;
  }
  if (sink) sink(level, message);
}

}  // namespace attune
