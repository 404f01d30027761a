// SPDX-License-Identifier: Apache-2.0
// The messages that the library logs, by number: "AT101: store ... is damaged". Programs match
// numbers, so a number never changes its meaning and is never reused (tests/capi/log_codes.txt);
// texts may change. Each number has a level.
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

enum class LogCode : int {
  kStoreDamaged = 101,
  kStoreLayerPassedOver = 102,
  kStoreOfParent = 103,
  kStoreNotRolledBack = 104,
  kStoreRowPassedOver = 105,
  kNamedStoreRefused = 106,
  kBundleImageDamaged = 201,
  kBundleForOtherArch = 202,
  kBundleProgramRefused = 203,
  kImageRefused = 204,
  kImageNotKept = 205,
  kKernelPassedOver = 301,
  kNotTuned = 302,
  kTunedElsewhere = 303,
  kNvrtcPassedOver = 401,
  kTuneNotStoredYet = 501,
  kTuneNotLocked = 502,
  kTuneOnMiss = 503,
  kTuneStartedAgain = 504,
  kFuzzCase = 505,
  kCaptureNotWritten = 601,
  kFewerThreads = 602,
  kEnvironmentNotUnderstood = 603,
};

struct LogCodeEntry {
  LogCode code;
  LogLevel level;
  std::string_view meaning;
};

inline constexpr std::array kLogCodes{
    LogCodeEntry{LogCode::kStoreDamaged, LogLevel::kWarning,
                 "a store is damaged: it was renamed, and a new one is started"},
    LogCodeEntry{LogCode::kStoreLayerPassedOver, LogLevel::kWarning,
                 "one of several stores is not read"},
    LogCodeEntry{LogCode::kStoreOfParent, LogLevel::kDebug,
                 "a connection of the parent process is left alone"},
    LogCodeEntry{LogCode::kStoreNotRolledBack, LogLevel::kError,
                 "a change of a store could not be undone"},
    LogCodeEntry{LogCode::kStoreRowPassedOver, LogLevel::kWarning, "a row of a store is not used"},
    LogCodeEntry{
        LogCode::kNamedStoreRefused, LogLevel::kWarning,
        "a store that the user named is not used; once per process, to stderr if no log is set"},
    LogCodeEntry{LogCode::kBundleImageDamaged, LogLevel::kWarning,
                 "an image of a bundle is damaged, and not used"},
    LogCodeEntry{LogCode::kBundleForOtherArch, LogLevel::kWarning,
                 "a bundle has no kernels for this device"},
    LogCodeEntry{LogCode::kBundleProgramRefused, LogLevel::kWarning,
                 "a score program of a bundle does not match its digest"},
    LogCodeEntry{LogCode::kImageRefused, LogLevel::kWarning, "a stored image is not used"},
    LogCodeEntry{LogCode::kImageNotKept, LogLevel::kWarning,
                 "a compiled kernel runs, but is not stored"},
    LogCodeEntry{LogCode::kKernelPassedOver, LogLevel::kWarning,
                 "the best kernel cannot run; the next best is used"},
    LogCodeEntry{LogCode::kNotTuned, LogLevel::kWarning,
                 "a problem runs with the config of another shape or a default; once per bucket of "
                 "lengths"},
    LogCodeEntry{LogCode::kTunedElsewhere, LogLevel::kInfo,
                 "a problem runs with the config tuned for its bucket of lengths; once per bucket"},
    LogCodeEntry{LogCode::kNvrtcPassedOver, LogLevel::kWarning,
                 "a compiler library was found and is not used"},
    LogCodeEntry{LogCode::kTuneNotStoredYet, LogLevel::kWarning,
                 "a tune continues, but its store could not be written"},
    LogCodeEntry{LogCode::kTuneNotLocked, LogLevel::kWarning,
                 "a device cannot be locked against other tunes"},
    LogCodeEntry{LogCode::kTuneOnMiss, LogLevel::kWarning, "an error while tuning on a miss"},
    LogCodeEntry{LogCode::kTuneStartedAgain, LogLevel::kWarning,
                 "the measuring process ended and is restarted"},
    LogCodeEntry{LogCode::kFuzzCase, LogLevel::kInfo, "the case that a fuzzer tries"},
    LogCodeEntry{LogCode::kCaptureNotWritten, LogLevel::kWarning,
                 "the file of captured problems cannot be written"},
    LogCodeEntry{LogCode::kFewerThreads, LogLevel::kWarning,
                 "the system started fewer threads than requested"},
    LogCodeEntry{LogCode::kEnvironmentNotUnderstood, LogLevel::kWarning,
                 "an environment variable of the program has an invalid value"},
};

}  // namespace attune
