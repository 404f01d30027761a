// SPDX-License-Identifier: Apache-2.0
// Reports stores that the user named by ATTUNE_STORE, ATTUNE_SITE_STORES or the options of a
// context and that cannot be read: the program would silently run without tuned kernels. Used by
// c_context.cpp.
#pragma once

#include <filesystem>
#include <vector>

#include "runtime/engine/engine_options.hpp"

namespace attune {

// Returns the stores of these options that the user named, without stores at default paths.
std::vector<std::filesystem::path> named_stores(const EngineOptions& options);

enum class Listener { kNone, kLog };

// Logs each of these stores that exists and cannot be read, once per process and store. Without a
// listener the message goes to standard error. The library prints no other message.
void say_refused(const std::vector<std::filesystem::path>& stores, Listener listener);

}  // namespace attune
