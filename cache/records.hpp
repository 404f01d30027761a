// SPDX-License-Identifier: Apache-2.0
// Rows of the store as plain values. cache/FORMAT.md has the columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/identity.hpp"
#include "generator/compiler.hpp"
#include "generator/core/config.hpp"
#include "generator/core/kernel_spec.hpp"

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

// Where a trial, winner or image belongs.
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
  std::string arch;  // what the code was made for: "sm_90a"
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
  Conditions conditions;  // when it was measured; filled by the store from the key
  std::string created;    // ISO 8601 UTC; filled by the store when empty
};

// A trial together with where it belongs.
struct StoredTrial {
  TuningKey key;
  TrialRecord trial;
};

// The choice for one TuningKey, derived from stored trials by `choose_winner` (winner_rule.hpp).
struct WinnerRecord {
  KernelSpec spec;
  Shape shape;
  DeviceIdentity
      device;  // with policy: filled by the store when it reads; put_winner takes them from its key
  MeasurePolicy policy;
  ToolchainIdentity toolchain;
  std::string arch;
  Config config;
  Timing timing;
  Timing default_timing;  // of the default config in the same tune
  Config default_config;
  bool default_is_winner = false;
  Effort effort = Effort::kNormal;
  int candidates = 0;     // ok trials considered
  bool complete = true;   // the search came to its end; else the same tune goes on with it
  std::string why;        // "fastest by 6.1 %", "tie with default, default kept", ...
  Conditions conditions;  // when it was measured; filled by the store from the key
  std::string created;
  bool pinned = false;
};

struct ImageKey {
  KernelSpec spec;
  std::string arch;
  // An image is found by its source, not by template_digest: that says which winners it was made with. A look-up may leave
  // the compiler empty: any compiler's image of this source will do.
  ToolchainIdentity toolchain;
  Config config;
  std::string source_digest;  // renderer.hpp: of what was compiled
};

struct StoredImage {
  ImageKey key;
  KernelImage image;
  std::string created;
};

// A caller's program (generator/core/user_program.hpp) that a spec names.
struct StoredProgram {
  ProgramDigest digest;
  score::Kind kind = score::Kind::kScore;
  std::string text;  // as it was given; read_user_program makes the program of it again

  bool operator==(const StoredProgram&) const = default;
};
// Those that a spec names, where this process knows them.
std::vector<StoredProgram> programs_of(const SpecFields& spec);
// Lets this process know the program. Throws kInvalidArgument where the text cannot be read, or its digest is another one.
void adopt(const StoredProgram& program);

// Now, or so many days ago, as ISO 8601 UTC with milliseconds, "2026-05-01T12:00:00.000Z": texts sort by time.
std::string utc_now(int days_ago = 0);

}  // namespace attune
