// SPDX-License-Identifier: Apache-2.0
// Rows of the store as plain structs. cache/FORMAT.md has the columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/identity.hpp"
#include "generator/compile/compiler.hpp"
#include "generator/core/problem/config.hpp"
#include "generator/core/problem/kernel_spec.hpp"

namespace attune {

enum class TrialStatus : int {  // frozen: stored
  kOk = 0,
  kCompileFailed = 1,
  kOutOfResources = 2,
  kLaunchFailed = 3,
  kWrongResult = 4,
  kTimedOut = 5,
};
const char* trial_status_name(TrialStatus status);  // "ok", "compile_failed", ...

enum class Effort : int { kQuick = 1, kNormal = 2, kExhaustive = 3 };  // frozen: stored
const char* effort_name(Effort effort);  // "quick", "normal", "exhaustive"

// The problem, device and way of measuring of a trial or winner.
struct TuningKey {
  KernelSpec spec;
  Shape shape;
  DeviceIdentity device;
  MeasurePolicy policy;
};

struct Timing {
  double median_us = 0;
  double lo_us = 0;  // 95 % interval of the median
  double hi_us = 0;
  double min_us = 0;
  int samples = 0;
  int sm_clock_mhz = 0;  // 0 = not read
};

struct TrialRecord {
  ToolchainIdentity toolchain;
  std::string arch;  // target of the code: "sm_90a"
  Config config;
  bool is_default = false;
  TrialStatus status = TrialStatus::kOk;
  std::string reason;    // why it failed; empty when ok
  Timing timing;         // when ok
  double error_max = 0;  // against the oracle, relative to the allowed error: at most 1
  double error_mean = 0;
  ImageInfo info;
  int shared_bytes = -1;  // static + dynamic; -1 = not known
  Effort effort = Effort::kNormal;
  Conditions conditions;  // of the measurement; the store fills them from the key
  std::string created;    // ISO 8601 UTC; the store fills it if empty
};

// A trial and its key.
struct StoredTrial {
  TuningKey key;
  TrialRecord trial;
};

// The choice for one TuningKey, derived from stored trials by `choose_winner` (winner_rule.hpp).
struct WinnerRecord {
  KernelSpec spec;
  Shape shape;
  DeviceIdentity device;  // device and policy are filled by the store; put_winner uses its key
  MeasurePolicy policy;
  ToolchainIdentity toolchain;
  std::string arch;
  Config config;
  Timing timing;
  Timing default_timing;  // the default config in the same tune
  Config default_config;
  bool default_is_winner = false;
  Effort effort = Effort::kNormal;
  int candidates = 0;     // ok trials considered
  bool complete = true;   // the search ended; otherwise the same tune continues it
  std::string why;        // "fastest by 6.1 %", "tie with default, default kept", ...
  Conditions conditions;  // of the measurement; the store fills them from the key
  std::string created;
  bool pinned = false;
};

struct ImageKey {
  KernelSpec spec;
  std::string arch;
  // An image is found by its source. template_digest is not compared: it only tells with which
  // winners the image was made. If a look-up leaves the compiler empty, it finds images of this
  // source by any compiler.
  ToolchainIdentity toolchain;
  Config config;
  // The digest of the compiled source; see renderer.hpp. If a look-up leaves it empty, it finds
  // images of this template_digest instead.
  std::string source_digest;
};

struct StoredImage {
  ImageKey key;
  KernelImage image;
  std::string created;
};

// A caller's program (generator/score/language/user_program.hpp) that a spec names.
struct StoredProgram {
  ProgramDigest digest;
  score::Kind kind = score::Kind::kScore;
  std::string text;  // as given; read_user_program parses it again

  bool operator==(const StoredProgram&) const = default;
};
// Returns the programs that a spec names, as far as this process knows them.
std::vector<StoredProgram> programs_of(const SpecFields& spec);
// Registers the program in this process. Throws kInvalidArgument if the text cannot be parsed or
// has another digest.
void adopt(const StoredProgram& program);

// Returns the time now, or some days ago, as ISO 8601 UTC with milliseconds,
// "2026-05-01T12:00:00.000Z". Such texts sort by time.
std::string utc_now(int days_ago = 0);

}  // namespace attune
