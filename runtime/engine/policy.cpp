// SPDX-License-Identifier: Apache-2.0
// Names of policies and rungs, for the command line, JSON and environment variables.
#include "runtime/engine/policy.hpp"

#include <fmt/format.h>

#include "generator/core/system/error.hpp"

namespace attune {

const char* rung_name(Rung rung) {
  switch (rung) {
    case Rung::kPinned:
      return "pinned";
    case Rung::kExact:
      return "exact";
    case Rung::kBucket:
      return "bucket";
    case Rung::kNearest:
      return "nearest";
    case Rung::kDefaultConfig:
      return "default_config";
    case Rung::kReference:
      return "reference";
  }
  return "unknown";
}

const char* policy_name(Policy policy) {
  switch (policy) {
    case Policy::kDefault:
      return "default";
    case Policy::kNearest:
      return "nearest";
    case Policy::kStrict:
      return "strict";
    case Policy::kTuneOnMiss:
      return "tune_on_miss";
  }
  return "unknown";
}

Policy parse_policy(std::string_view text) {
  for (const Policy policy : {Policy::kDefault, Policy::kNearest, Policy::kStrict})
    if (text == policy_name(policy)) return policy;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("policy is \"{}\"; must be default, nearest or strict", text));
}

}  // namespace attune
