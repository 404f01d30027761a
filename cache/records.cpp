// SPDX-License-Identifier: Apache-2.0
// Names and texts of the store's records; see records.hpp.
#include "cache/records.hpp"

#include <fmt/format.h>

#include <chrono>
#include <ctime>

#include "generator/core/system/error.hpp"

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

std::vector<StoredProgram> programs_of(const SpecFields& spec) {
  std::vector<StoredProgram> programs;
  for (const ProgramDigest& digest : {spec.scores.score_mod, spec.scores.mask_mod})
    if (const UserProgram* known = digest ? find_user_program(digest) : nullptr)
      programs.push_back({digest, known->program.kind(), known->source});
  return programs;
}

void adopt(const StoredProgram& program) {
  const UserProgram& made = read_user_program(program.text, program.kind, "program");
  if (made.digest != program.digest)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("program {} does not match its digest: its text has digest {}",
                            to_text(program.digest), to_text(made.digest)));
}

std::string utc_now(int days_ago) {
  const auto now = std::chrono::system_clock::now() - std::chrono::hours(24) * days_ago;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now - seconds).count();
  const std::time_t since_1970 = std::chrono::system_clock::to_time_t(seconds);
  std::tm utc{};
  gmtime_r(&since_1970, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, millis);
}

}  // namespace attune
