// SPDX-License-Identifier: Apache-2.0
// EngineOptions: the choices of a program that opens an Engine. options.hpp reads them from the
// environment.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records.hpp"
#include "cache/store_stack.hpp"
#include "generator/core/problem/problem.hpp"

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

// The interface through which the engine tunes a problem (policy tune_on_miss). The tuner
// implements it.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;
  virtual std::optional<WinnerRecord> tune(const Problem& problem) = 0;
};

struct EngineOptions {
  std::string target;  // the argument of open_device, for advice in messages; empty = auto
  std::filesystem::path user_store;  // empty = default location (default_store_path())
  std::vector<std::filesystem::path> more_stores;  // site, then shipped; read-only
  std::vector<std::filesystem::path>
      bundles;  // folders and files of `attune export`; searched before the stores
  std::vector<std::string_view> memory_bundles;  // searched before `bundles`; not owned
  // A file of `attune pin`; empty = none. If there is one, it is the only source of winners, and a
  // problem that it names runs with the config given there or is refused. Images still come from
  // bundles and stores.
  std::filesystem::path pin;
  bool use_store = true;
  bool may_compile = true;  // false = policy no_jit
  // Each run waits for the GPU and checks device memory. It refuses a workspace that was not
  // initialised, and lists of a cache with values that kernels would clamp.
  bool check_workspace = false;
  bool keep_images = true;  // write images of plans made here into the user store
  Policy policy = Policy::kDefault;
  std::filesystem::path capture_file;     // problems seen, as JSON lines; empty = off
  ConfigSource* config_source = nullptr;  // not owned
  size_t max_plans = 2048;  // in the cache, 3 to 8 KB each; drops the least recently used
};

// Reports stores that the user named by ATTUNE_STORE, ATTUNE_SITE_STORES or the options of a
// context and that cannot be read: the program would silently run without tuned kernels. Used by
// c_context.cpp.

// Returns the stores of these options that the user named, without stores at default paths.
std::vector<std::filesystem::path> named_stores(const EngineOptions& options);

enum class Listener { kNone, kLog };

// Logs each of these stores that exists and cannot be read, once per process and store. Without a
// listener the message goes to standard error. The library prints no other message.
void say_refused(const std::vector<std::filesystem::path>& stores, Listener listener);

// Advice in messages about a problem that was not tuned: the exact command that tunes it for this
// engine.

// Returns advice for a problem that other kernels than the reference serve: "`attune tune --problem
// ... --target cpu:1` finds its kernel". If the problem has a program that no store holds, the
// command line cannot find the program by its digest. The advice is then to capture the problem.
std::string tune_advice(const Problem& asked, const EngineOptions& options,
                        const StoreStack& stores);
// Returns advice for a problem that only the reference kernel serves.
std::string reference_advice(const Problem& asked, const EngineOptions& options);

}  // namespace attune
