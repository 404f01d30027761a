// SPDX-License-Identifier: Apache-2.0
// Launch arguments of kernels over caches of 4 bits, on every target: the factors of their groups
// of columns (shared/nibble_rows.h).
//
// | operand | shape                                                                             |
// |---------|-----------------------------------------------------------------------------------|
// | k, v    | [pages, page_size, num_heads_kv, bytes of a row of factors], e4m3; without pages  |
// |         | [slots, seqlen_kv, num_heads_kv, bytes]                                           |
#pragma once

#include "shared/attention_args.h"

namespace attune {

struct GroupFactorArgs {
  OperandView k, v;  // strides in bytes
};

}  // namespace attune
