// SPDX-License-Identifier: Apache-2.0
// What a call of the op attention_kvcache must say of its cache, in sentences.
#pragma once

#include "generator/core/problem.hpp"
#include "templates/shared/cache_args.h"

namespace attune {

// Throws kInvalidArgument. `given` may be null: then nothing is given.
void check_cache(const Problem& problem, const CacheArgs* given);

}  // namespace attune
