// SPDX-License-Identifier: Apache-2.0
// Stores that the user named, by ATTUNE_STORE, ATTUNE_SITE_STORES or the options of a context. One
// that cannot be read is said, for the program runs on without what was tuned. Used by
// c_context.cpp.
#pragma once

#include <filesystem>
#include <vector>

#include "runtime/engine_options.hpp"

namespace attune {

// Returns the stores of these options that somebody named, not those of the default places.
std::vector<std::filesystem::path> named_stores(const EngineOptions& options);

enum class Listener { kNone, kLog };

// Logs each of those stores that is there and cannot be read, once a process. Where nobody listens,
// the message goes to standard error: the one that the library prints.
void say_refused(const std::vector<std::filesystem::path>& stores, Listener listener);

}  // namespace attune
