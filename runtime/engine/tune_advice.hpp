// SPDX-License-Identifier: Apache-2.0
// Advice in messages about a problem that was not tuned: the exact command that tunes it for this
// engine.
#pragma once

#include <string>

#include "cache/store_stack.hpp"
#include "generator/core/problem/problem.hpp"
#include "runtime/engine/engine_options.hpp"

namespace attune {

// Returns advice for a problem that other kernels than the reference serve: "`attune tune --problem
// ... --target cpu:1` finds its kernel". If the problem has a program that no store holds, the
// command line cannot find the program by its digest. The advice is then to capture the problem.
std::string tune_advice(const Problem& asked, const EngineOptions& options,
                        const StoreStack& stores);
// Returns advice for a problem that only the reference kernel serves.
std::string reference_advice(const Problem& asked, const EngineOptions& options);

}  // namespace attune
