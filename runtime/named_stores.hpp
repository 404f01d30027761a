// SPDX-License-Identifier: Apache-2.0
// Stores that the user named by ATTUNE_STORE, ATTUNE_SITE_STORES or the options of a context. A
// message says if one cannot be read, because the program then runs without tuned kernels. Used by
// c_context.cpp.
#pragma once

#include <filesystem>
#include <vector>

#include "runtime/engine_options.hpp"

namespace attune {

// Returns the stores of these options that the user named, without those at default places.
std::vector<std::filesystem::path> named_stores(const EngineOptions& options);

enum class Listener { kNone, kLog };

// Logs each of these stores that exists and cannot be read, once per process. Without a listener
// the message goes to standard error. It is the only message that the library prints.
void say_refused(const std::vector<std::filesystem::path>& stores, Listener listener);

}  // namespace attune
