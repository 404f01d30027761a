// SPDX-License-Identifier: Apache-2.0
// The words of the ladder (ladder.hpp): which rungs a caller accepts, and on which one a plan stands.
#pragma once

#include <string_view>

namespace attune {

// The lowest rung a caller accepts; below it `plan` throws kNotTuned. Values as in attune.h.
//   kDefault: any.  kNearest: some tuned shape of the same spec.  kStrict: this shape or its
//   bucket. kTuneOnMiss: tunes where kStrict would throw, then as kDefault; for programs of this
//   project that bring a ConfigSource, no word of the environment or of attune.h.
enum class Policy : int { kDefault = 0, kNearest = 1, kStrict = 2, kTuneOnMiss = 3 };
const char* policy_name(Policy policy);
Policy parse_policy(std::string_view text);  // default, nearest, strict

// Where a plan stands: which step of the ladder chose its config.
enum class Rung : int { kPinned, kExact, kBucket, kNearest, kDefaultConfig, kReference };
const char* rung_name(Rung rung);

}  // namespace attune
