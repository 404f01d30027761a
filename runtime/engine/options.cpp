// SPDX-License-Identifier: Apache-2.0
// Reading environment variables; see options.hpp.
#include "runtime/engine/options.hpp"

#include <fmt/format.h>

#include "cache/store_stack.hpp"
#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/private_path.hpp"

namespace attune {
namespace {

// Returns an environment variable; nullopt if it is not set or empty.
std::optional<std::string> variable(const char* name) {
  std::optional<std::string> value = environment_variable(name);
  return value && !value->empty() ? value : std::nullopt;
}

[[noreturn]] void refuse(const char* name, const std::string& value, const char* accepted) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("environment variable {} is \"{}\"; must be {}", name, value, accepted));
}

bool flag(const char* name) {
  const std::optional<std::string> value = variable(name);
  if (!value || *value == "0") return false;
  if (*value != "1") refuse(name, *value, "0 or 1");
  return true;
}

LogLevel parse_log_level(const std::string& text) {
  for (size_t level = 0; level < kLogLevelNames.size(); ++level)
    if (text == kLogLevelNames[level]) return static_cast<LogLevel>(level);
  refuse("ATTUNE_LOG", text, "debug, info, warning or error");
}

}  // namespace

std::optional<LogLevel> log_level_from_environment() {
  const std::optional<std::string> text = variable("ATTUNE_LOG");
  return text ? std::optional(parse_log_level(*text)) : std::nullopt;
}

Options options_from_environment() {
  Options options;
  trusted_folders();  // refuses a bad list here, not later when a store is opened
  if (environment_variable("ATTUNE_STORE") == "") options.engine.use_store = false;
  if (auto text = variable("ATTUNE_STORE")) options.engine.user_store = *text;
  options.engine.more_stores = site_stores();
  if (auto text = variable("ATTUNE_PIN")) options.engine.pin = *text;
  if (auto text = variable("ATTUNE_BUNDLE")) options.engine.bundles = split_paths(*text);
  if (auto text = variable("ATTUNE_POLICY")) {
    try {
      options.engine.policy = parse_policy(*text);
    } catch (const Error&) {
      refuse("ATTUNE_POLICY", *text, "default, nearest or strict");
    }
  }
  if (auto text = variable("ATTUNE_CAPTURE")) options.engine.capture_file = *text;
  options.log_level = log_level_from_environment();
  options.engine.may_compile = !flag("ATTUNE_NO_JIT");
  options.engine.check_workspace = flag("ATTUNE_CHECK_WORKSPACE");
  return options;
}

std::filesystem::path default_store_path() {
  if (environment_variable("ATTUNE_STORE") == "") return {};
  if (auto text = variable("ATTUNE_STORE")) return *text;
  if (!StoreStack::available()) return {};
  // The XDG Base Directory Specification says that a relative path counts as not set.
  if (auto text = variable("XDG_CACHE_HOME"); text && text->front() == '/')
    return std::filesystem::path(*text) / "attune" / "store.db";
  const std::optional<std::string> home = home_directory();
  return home ? std::filesystem::path(*home) / ".cache" / "attune" / "store.db"
              : std::filesystem::path();
}

std::vector<std::filesystem::path> site_stores() {
  if (const auto text = environment_variable("ATTUNE_SITE_STORES")) return split_paths(*text);
  std::vector<std::filesystem::path> stores;
  if (!StoreStack::available()) return stores;
  for (const char* const folder : {ATTUNE_SITE_FOLDER, ATTUNE_SHIPPED_FOLDER}) {
    const std::filesystem::path store = std::filesystem::path(folder) / "attune" / "store.db";
    std::error_code ignored;
    if (std::filesystem::exists(store, ignored)) stores.push_back(store);
  }
  return stores;
}

std::filesystem::path user_store_of(const EngineOptions& options) {
  if (!options.use_store) return {};
  return options.user_store.empty() ? default_store_path() : options.user_store;
}

std::vector<std::filesystem::path> store_layers(const EngineOptions& options) {
  if (!options.use_store) return {};
  std::vector<std::filesystem::path> layers = options.more_stores;
  if (const std::filesystem::path user = user_store_of(options); !user.empty())
    layers.insert(layers.begin(), user);
  return layers;
}

std::filesystem::path store_path_or_default(const std::filesystem::path& given) {
  std::filesystem::path path = given.empty() ? default_store_path() : given;
  if (path.empty())
    throw Error(ErrorCode::kStore,
                environment_variable("ATTUNE_STORE") == ""
                    ? "ATTUNE_STORE is empty, which means no store; name a file with --store"
                    : "there is no default store, because no home directory is known (HOME); name "
                      "a file with --store or ATTUNE_STORE");
  return path;
}

}  // namespace attune
