// SPDX-License-Identifier: Apache-2.0
// The library never prints: it calls a sink. Default: silence. attune.h and the CLI install theirs.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace attune {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

using LogSink = std::function<void(LogLevel, std::string_view)>;

// Thread-safe; replaces the sink of the process. Returns the former one.
LogSink set_log_sink(LogSink sink);
void log(LogLevel level, std::string_view message);

}  // namespace attune
