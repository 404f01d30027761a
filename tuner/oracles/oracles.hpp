// SPDX-License-Identifier: Apache-2.0
// The oracles: each is in the file of its op's name in this folder. Used by oracle.cpp, which finds
// the oracle of an op.
#pragma once

#include "tuner/oracles/oracle.hpp"

namespace attune {

const Oracle& append_kv_oracle();
const Oracle& attention_oracle();
const Oracle& attention_backward_oracle();
const Oracle& attention_kvcache_oracle();
const Oracle& block_map_oracle();
const Oracle& merge_oracle();
const Oracle& quantise_oracle();

}  // namespace attune
