// SPDX-License-Identifier: Apache-2.0
// What a call of the op attention_kvcache must say of its cache, in sentences.
#pragma once

#include "generator/core/problem.hpp"
#include "runtime/operands.hpp"
#include "templates/shared/append_args.h"
#include "templates/shared/cache_args.h"

namespace attune {

// Throws kInvalidArgument. `given` may be null: then nothing is given.
void check_cache(const Problem& problem, const CacheArgs* given);
// Strides from page to page, where the problem's cache has one page and the call's has more: the plan's rules leave them free.
void check_pages_of_call(const Problem& problem, const Operands& operands);
// That v is where k is, of problems that say so.
void check_v_in_k(const Problem& problem, const Operands& operands);
// Of calls of the op append_kv, likewise.
void check_append(const Problem& problem, const CacheArgs* given, const AppendArgs* of_rows);
// Of caches of 8 bits: with kv_factors heads kernels read one factor for the tensor or one for each head. Throws likewise.
void check_cache_factors(const Problem& problem, const Operands& operands);

}  // namespace attune
