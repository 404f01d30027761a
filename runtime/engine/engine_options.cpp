// SPDX-License-Identifier: Apache-2.0
// See engine_options.hpp.
#include "runtime/engine/engine_options.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "cache/store_stack.hpp"
#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "runtime/engine/options.hpp"

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

namespace {

// True for the first call with `store` in this process.
bool is_first(const std::filesystem::path& store) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard<std::mutex> lock(mutex);
  return said.insert(store.string()).second;
}

}  // namespace

std::vector<std::filesystem::path> named_stores(const EngineOptions& options) {
  std::vector<std::filesystem::path> stores;
  if (!options.use_store) return stores;
  if (!options.user_store.empty()) stores.push_back(options.user_store);
  if (environment_variable("ATTUNE_SITE_STORES") || options.more_stores != site_stores())
    stores.insert(stores.end(), options.more_stores.begin(), options.more_stores.end());
  return stores;
}

void say_refused(const std::vector<std::filesystem::path>& stores, Listener listener) {
  for (const std::filesystem::path& store : stores) {
    const std::optional<std::string> why = StoreStack::refusal_of(store);
    if (!why || !is_first(store)) continue;
    const std::string text =
        fmt::format("a store that the environment or the program names is not used: {}", *why);
    if (listener == Listener::kLog)
      log(LogCode::kNamedStoreRefused, text);
    else
      std::fprintf(stderr, "attune: AT%d: %s\n", static_cast<int>(LogCode::kNamedStoreRefused),
                   text.c_str());
  }
}

}  // namespace attune
