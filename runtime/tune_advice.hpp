// SPDX-License-Identifier: Apache-2.0
// What messages about a problem that was not tuned tell people to do: the very command that tunes it for the engine that asks.
#pragma once

#include <string>

#include "cache/store_stack.hpp"
#include "generator/core/problem.hpp"
#include "runtime/engine_options.hpp"

namespace attune {

// Of a problem that more than the reference kernel serves: "`attune tune --problem ... --target cpu:1` finds its kernel". Where the
// command line cannot know a program of the problem by its digest, how to capture it.
std::string tune_advice(const Problem& asked, const EngineOptions& options,
                        const StoreStack& stores);
// Of one that no other serves.
std::string reference_advice(const Problem& asked, const EngineOptions& options);

}  // namespace attune
