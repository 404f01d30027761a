// SPDX-License-Identifier: Apache-2.0
// EngineOptions: what a program chooses when it opens an Engine. options.hpp reads them from the
// environment.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records.hpp"
#include "runtime/policy.hpp"

namespace attune {

// A low layer's view of live tuning (policy tune_on_miss); the tuner implements it.
class ConfigSource {
 public:
  virtual ~ConfigSource() = default;
  virtual std::optional<WinnerRecord> tune(const Problem& problem) = 0;
};

struct EngineOptions {
  std::string target;  // as open_device was given it, for what messages advise; empty = auto
  std::filesystem::path user_store;  // empty = default location (default_store_path())
  std::vector<std::filesystem::path> more_stores;  // site, then shipped; read-only
  std::vector<std::filesystem::path>
      bundles;  // folders and files written by `attune export`; asked before the stores
  std::vector<std::string_view> memory_bundles;  // asked before those; the caller keeps the bytes
  // Written by `attune pin`; empty = none. Winners come from it alone, and what it names is run or
  // refused; images come from bundles and stores as ever.
  std::filesystem::path pin;
  bool use_store = true;
  bool may_compile = true;  // false = policy no_jit
  // Runs wait for the GPU and refuse a workspace not initialised, and lists of a cache that kernels would cut.
  bool check_workspace = false;
  bool keep_images = true;  // write images of plans made here into the user store
  Policy policy = Policy::kDefault;
  std::filesystem::path capture_file;     // problems seen, as JSON lines; empty = off
  ConfigSource* config_source = nullptr;  // not owned
  size_t max_plans = 2048;  // kept at a time, the least recently used go first; 3 to 8 KB each
};

}  // namespace attune
