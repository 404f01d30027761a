// SPDX-License-Identifier: Apache-2.0
// The ops: each has a description in the file of its name in this folder. Used by
// generator/core/problem/op.cpp, which lists them.
#pragma once

#include "generator/core/problem/op.hpp"

namespace attune {

const OpDescription& append_kv_op();
const OpDescription& attention_backward_op();
const OpDescription& attention_kvcache_op();
const OpDescription& block_map_op();
const OpDescription& merge_op();
const OpDescription& prefill_op();
const OpDescription& quantise_op();

}  // namespace attune
