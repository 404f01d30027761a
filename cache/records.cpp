// SPDX-License-Identifier: Apache-2.0
// Names and texts of the store's records; see records.hpp.
#include "cache/records.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

namespace attune {

const char* trial_status_name(TrialStatus status) {
  switch (status) {
    case TrialStatus::kOk:
      return "ok";
    case TrialStatus::kCompileFailed:
      return "compile_failed";
    case TrialStatus::kOutOfResources:
      return "out_of_resources";
    case TrialStatus::kLaunchFailed:
      return "launch_failed";
    case TrialStatus::kWrongResult:
      return "wrong_result";
    case TrialStatus::kTimedOut:
      return "timed_out";
  }
  return "?";
}

const char* effort_name(Effort effort) {
  switch (effort) {
    case Effort::kQuick:
      return "quick";
    case Effort::kNormal:
      return "normal";
    case Effort::kExhaustive:
      return "exhaustive";
  }
  return "?";
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now - seconds).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), millis);
}

}  // namespace attune
