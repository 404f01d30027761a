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
#include "runtime/engine/policy.hpp"

namespace attune {

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

}  // namespace attune
