// SPDX-License-Identifier: Apache-2.0
// Levels of messages.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace attune {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// The names in ATTUNE_LOG and in the program's lines, by value.
inline constexpr std::array<std::string_view, 4> kLogLevelNames{"debug", "info", "warning",
                                                                "error"};
constexpr std::string_view log_level_name(LogLevel level) {
  return kLogLevelNames[static_cast<std::size_t>(level)];
}

}  // namespace attune
