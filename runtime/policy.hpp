// SPDX-License-Identifier: Apache-2.0
// Names of the ladder (ladder.hpp): the rungs that a caller accepts, and the rung of a plan.
#pragma once

#include <string_view>

namespace attune {

// The lowest rung that a caller accepts; below it `plan` throws kNotTuned. Values as in attune.h.
//   kDefault: any.  kNearest: some tuned shape of the same spec.
//   kStrict: this shape or its bucket.
//   kTuneOnMiss: tunes if kStrict would throw, then as kDefault. It is for programs of this project
//   that have a ConfigSource, and cannot be set by the environment or attune.h.
enum class Policy : int { kDefault = 0, kNearest = 1, kStrict = 2, kTuneOnMiss = 3 };
const char* policy_name(Policy policy);
Policy parse_policy(std::string_view text);  // default, nearest, strict

// The step of the ladder that chose the config of a plan.
enum class Rung : int { kPinned, kExact, kBucket, kNearest, kDefaultConfig, kReference };
const char* rung_name(Rung rung);

}  // namespace attune
