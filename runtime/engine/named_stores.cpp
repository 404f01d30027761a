// SPDX-License-Identifier: Apache-2.0
// Messages about refused stores; see named_stores.hpp.
#include "runtime/engine/named_stores.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <mutex>
#include <set>
#include <string>

#include "cache/store_stack.hpp"
#include "generator/core/system/environment.hpp"
#include "generator/core/system/log.hpp"
#include "runtime/engine/options.hpp"

namespace attune {
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
