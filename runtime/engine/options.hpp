// SPDX-License-Identifier: Apache-2.0
// Options from environment variables, and the default paths of files. attune_context_create and the
// command line read the environment once, at their start.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/system/log.hpp"
#include "runtime/engine/engine_options.hpp"

namespace attune {

struct Options {
  EngineOptions engine;
  std::optional<LogLevel> log_level;
};

struct EnvironmentVariable {
  const char* name;
  const char* meaning;
  const char* fallback;  // if it is not set
};

// All variables that attune reads, for `attune doctor` and the README.
// clang-format off
inline constexpr EnvironmentVariable kEnvironmentVariables[] = {
    {"ATTUNE_STORE",           "the user's store file; empty = none",
     "~/.cache/attune/store.db"},
    {"ATTUNE_SITE_STORES",     "stores under it, split by ':', read only",   "the installed ones"},
    {"ATTUNE_TRUST",           "folders shared with other users, by ':'",   "none"},
    {"ATTUNE_PIN",             "file of `attune pin`; nothing else is run", "none"},
    {"ATTUNE_BUNDLE",          "folders of `attune export`, split by ':'",  "none"},
    {"ATTUNE_POLICY",          "lowest rung: default, nearest, strict",     "default"},
    {"ATTUNE_NO_JIT",          "1 = never compile",                         "0"},
    {"ATTUNE_CAPTURE",         "file that gets problems as JSON lines",     "none"},
    {"ATTUNE_LOCKS",           "folder of the locks by which tunes wait",   "/tmp"},
    {"ATTUNE_LOG",             "to stderr: debug, info, warning, error",
     "none; warning in `attune`"},
    {"ATTUNE_CHECK_WORKSPACE", "1 = refuse a dirty workspace (slow)",       "0"},
    {"ATTUNE_CHECK_GROUP",     "1 = ranks compare every call (slow)",       "0"},
    {"ATTUNE_NVRTC",           "path of libnvrtc",                          "searched"},
    {"ATTUNE_NVRTC_FOLDERS",   "folders that may hold it, split by ':'",    "none"},
    {"ATTUNE_CPU_PLUGIN",      "path of libattune_clang.so",                "beside libattune"},
    {"ATTUNE_LIBRARY",         "path of libattune.so, for Python",          "beside the module"},
};
// clang-format on

// Throws kInvalidArgument with the variable, its value and what it must be.
Options options_from_environment();
// Reads only ATTUNE_LOG, for a program that logs before it opens anything.
std::optional<LogLevel> log_level_from_environment();

// Returns $ATTUNE_STORE, else $XDG_CACHE_HOME/attune/store.db, else ~/.cache/attune/store.db. Empty
// (no store) if no home directory is known or the library was built without stores.
std::filesystem::path default_store_path();
// Returns $ATTUNE_SITE_STORES, else the existing stores of the site and the distribution: store.db
// in attune/ under the installation's etc and share folders.
std::vector<std::filesystem::path> site_stores();
// Returns the store in which an engine with these options keeps images; empty if there is none.
std::filesystem::path user_store_of(const EngineOptions& options);
// Returns the store files that an engine with these options reads, uppermost first.
std::vector<std::filesystem::path> store_layers(const EngineOptions& options);
// Returns `given`, else default_store_path(). Throws kStore if there is neither.
std::filesystem::path store_path_or_default(const std::filesystem::path& given);

}  // namespace attune
