// SPDX-License-Identifier: Apache-2.0
// The options that the environment gives, read once where a program enters the library
// (attune_context_create, the command line), and the places of files that follow from them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/log.hpp"
#include "runtime/engine_options.hpp"

namespace attune {

struct Options {
  EngineOptions engine;
  std::optional<LogLevel> log_level;
};

struct EnvironmentVariable {
  const char* name;
  const char* meaning;
  const char* fallback;  // when it is not set
};

// Every variable that counts, for `attune doctor` and the README.
// clang-format off
inline constexpr EnvironmentVariable kEnvironmentVariables[] = {
    {"ATTUNE_STORE",           "the user's store file; empty = none",       "~/.cache/attune/store.db"},
    {"ATTUNE_SITE_STORES",     "stores under it, split by ':', read only",   "the installed ones"},
    {"ATTUNE_TRUST",           "folders shared with other users, by ':'",   "none"},
    {"ATTUNE_PIN",             "file of `attune pin`; nothing else is run", "none"},
    {"ATTUNE_BUNDLE",          "folders of `attune export`, split by ':'",  "none"},
    {"ATTUNE_POLICY",          "lowest rung: default, nearest, strict",     "default"},
    {"ATTUNE_NO_JIT",          "1 = never compile",                         "0"},
    {"ATTUNE_CAPTURE",         "file that gets problems as JSON lines",     "none"},
    {"ATTUNE_LOCKS",           "folder of the locks by which tunes wait",   "/tmp"},
    {"ATTUNE_LOG",             "to stderr: debug, info, warning, error",    "none; warning in `attune`"},
    {"ATTUNE_CHECK_WORKSPACE", "1 = refuse a dirty workspace (slow)",       "0"},
    {"ATTUNE_NVRTC",           "path of libnvrtc",                          "searched"},
    {"ATTUNE_NVRTC_FOLDERS",   "folders that may hold it, split by ':'",    "none"},
    {"ATTUNE_CPU_PLUGIN",      "path of libattune_clang.so",                "beside libattune"},
    {"ATTUNE_LIBRARY",         "path of libattune.so, for Python",          "beside the module"},
    {"ATTUNE_PYTHON_MODULE",   "0 = Python calls by ctypes alone",          "1"},
};
// clang-format on

// Throws kInvalidArgument naming the variable, its value and what is accepted.
Options options_from_environment();
// ATTUNE_LOG alone, for a program that logs before it opens anything.
std::optional<LogLevel> log_level_from_environment();

// $ATTUNE_STORE, else $XDG_CACHE_HOME/attune/store.db, else ~/.cache/attune/store.db. Empty, for no
// store, when no home directory is known or the library was built without stores.
std::filesystem::path default_store_path();
// $ATTUNE_SITE_STORES, else those of the site and the distribution that exist: store.db in attune/
// under the installation's etc and share folders.
std::vector<std::filesystem::path> site_stores();
// The store that an engine of these options keeps images in; empty when there is none.
std::filesystem::path user_store_of(const EngineOptions& options);
// The store files that an engine of these options reads, uppermost first.
std::vector<std::filesystem::path> store_layers(const EngineOptions& options);
// `given`, else default_store_path(). Throws kStore when there is neither.
std::filesystem::path store_path_or_default(const std::filesystem::path& given);

}  // namespace attune
