// SPDX-License-Identifier: Apache-2.0
// Checks the cache operands of calls of op attention_kvcache and append_kv.
#pragma once

#include "generator/core/problem/problem.hpp"
#include "runtime/operands/operands.hpp"
#include "templates/shared/append_args.h"
#include "templates/shared/cache_args.h"

namespace attune {

// All functions throw kInvalidArgument. `given` is null if the call has no cache operands.
void check_cache(const Problem& problem, const CacheArgs* given);
// Checks the page strides for the number of pages in the call. The plan's rules do not cover two
// cases: the problem has one page, or the call writes more pages than the problem has.
void check_pages_of_call(const Problem& problem, const Operands& operands);
// Checks that v has the address and strides of k, for problems with v_in_k.
void check_v_in_k(const Problem& problem, const Operands& operands);
// Checks a call of op append_kv. `of_rows` is null if the call has no append operands.
void check_append(const Problem& problem, const CacheArgs* given, const AppendArgs* of_rows);
// Checks the factors of an 8-bit cache: with kv_factors heads, kernels read one factor for the
// tensor or one per head.
void check_cache_factors(const Problem& problem, const Operands& operands);

}  // namespace attune
