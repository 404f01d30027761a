// SPDX-License-Identifier: Apache-2.0
// Levels of log messages.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace attune {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

// The level names in ATTUNE_LOG and in lines that the program prints, indexed by level.
inline constexpr std::array<std::string_view, 4> kLogLevelNames{"debug", "info", "warning",
                                                                "error"};
constexpr std::string_view log_level_name(LogLevel level) {
  return kLogLevelNames[static_cast<std::size_t>(level)];
}

}  // namespace attune
