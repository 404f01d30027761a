// SPDX-License-Identifier: Apache-2.0
// Policy and Rung of the ladder (ladder.hpp): the rungs that a caller accepts, and the rung that
// chose a plan's config.
#pragma once

#include <string_view>

namespace attune {

// The lowest rung that a caller accepts; below it `plan` throws kNotTuned. Values as in attune.h.
//   kDefault: any rung.  kNearest: a kernel tuned for any shape of the same spec.
//   kStrict: a kernel tuned for this shape or its bucket.
//   kTuneOnMiss: tunes if kStrict would throw, then continues as kDefault. For programs of this
//   project that have a ConfigSource; the environment and attune.h cannot set it.
enum class Policy : int { kDefault = 0, kNearest = 1, kStrict = 2, kTuneOnMiss = 3 };
const char* policy_name(Policy policy);
Policy parse_policy(std::string_view text);  // default, nearest, strict

// The step of the ladder that chose the config of a plan.
enum class Rung : int { kPinned, kExact, kBucket, kNearest, kDefaultConfig, kReference };
const char* rung_name(Rung rung);

}  // namespace attune
