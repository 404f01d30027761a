// SPDX-License-Identifier: Apache-2.0
// How much a message matters.
#pragma once

namespace attune {

enum class LogLevel : int { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };

}  // namespace attune
