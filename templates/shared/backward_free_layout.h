// SPDX-License-Identifier: Apache-2.0
// What the kernel of backward_sm90 that makes all gradients has where blocks of keys add to dQ in no order (knob ordered), behind the shared memory
// of the other forms:
//
// | region             | bytes                               | written by                  | read by                     |
// |--------------------|-------------------------------------|-----------------------------|-----------------------------|
// | dq full, dq empty  | a barrier a copier each             | warpgroups; threads of copies | threads of copies; warpgroups |
// | staging            | fp32 of dQ of a step, for each copier its part | warpgroups that make dQ | bulk copies             |
#pragma once

#include "shared/backward_apart_layout.h"

namespace attune {

// Behind fp32 of a block of rows in the workspace: one of each copier, and what keeps the next aligned.
constexpr int kFreeWords = 32;

struct BackwardFreeLayout {
  int copiers;               // threads, one for each warpgroup that makes dQ
  int staging_bytes;         // of one
  int full, empty, staging;  // offsets
  int bytes;
};

// `others`: of the same tile in the order of keys.
constexpr BackwardFreeLayout backward_free_layout(const BackwardFusedLayout& others,
                                                  int head_dim_qk, int head_dim_v) {
  const bool apart = backward_dq_apart(kWarpgroupRows, head_dim_qk, head_dim_v);
  const int before = apart ? backward_apart_bytes(others, kFusedDsSlots) : others.bytes;
  BackwardFreeLayout l{};
  l.copiers = apart ? 1 : 2;
  l.staging_bytes = 4 * kWarpgroupRows * head_dim_qk / l.copiers;
  l.full = (before + 15) / 16 * 16;
  l.empty = l.full + 8 * l.copiers;
  l.staging = (l.empty + 8 * l.copiers + 127) / 128 * 128;
  l.bytes = l.staging + l.copiers * l.staging_bytes;
  return l;
}

}  // namespace attune
