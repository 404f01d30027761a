// SPDX-License-Identifier: Apache-2.0
// Shared memory of backward_sm90_one_kernel if blocks of keys add to dQ in any order (knob
// ordered). It follows the regions of backward_one_kernel_layout():
//
// | region            | bytes                  | written by             | read by                 |
// |-------------------|------------------------|------------------------|-------------------------|
// | ds empty          | one barrier per slot   | warpgroups             | warpgroups              |
// | dq full, dq empty | each one barrier per   | warpgroups; threads of | threads of copies;      |
// |                   | warpgroup              | copies                 | warpgroups              |
// | staging           | per warpgroup: half of | warpgroups             | bulk copies; TMA        |
// |                   | dQ in fp32, or dK of a |                        |                         |
// |                   | tile                   |                        |                         |
#pragma once

#include "shared/layouts/backward_sm90_layout.h"

namespace attune {

constexpr int kUnorderedDsSlots = 2;  // slots of dS^T: one is written, one is multiplied
constexpr int kDqCopiers = 2;         // copying threads, one for each warpgroup of keys

// Words after the fp32 dQ of each block of rows in the workspace: one per copier, then padding
// that keeps the next block aligned.
constexpr int kClaimWords = 32;

struct BackwardUnorderedLayout {
  int part_bytes;                      // a warpgroup's half of dQ
  int staging_bytes;                   // per copier
  int ds_empty, full, empty, staging;  // offsets
  int bytes;
};

// `others` is backward_one_kernel_layout() of the same tile with kUnorderedDsSlots slots of dS^T.
constexpr BackwardUnorderedLayout backward_unordered_layout(const BackwardOneKernelLayout& others,
                                                            int step_rows, int head_dim_qk) {
  BackwardUnorderedLayout l{};
  l.part_bytes = 4 * step_rows * backward_dq_columns(step_rows, head_dim_qk) / kDqCopiers;
  const int dk_bytes = others.parts.first_bytes;
  l.staging_bytes = ((l.part_bytes > dk_bytes ? l.part_bytes : dk_bytes) + 1023) / 1024 * 1024;
  l.ds_empty = (others.bytes + 15) / 16 * 16;
  l.full = l.ds_empty + 8 * kUnorderedDsSlots;
  l.empty = l.full + 8 * kDqCopiers;
  l.staging = (l.empty + 8 * kDqCopiers + 1023) / 1024 * 1024;  // dK is swizzled
  l.bytes = l.staging + kDqCopiers * l.staging_bytes;
  return l;
}

// Returns the registers of accumulators: the gradients, plus P and dP of a step or, if more,
// rounded P and dP with dQ.
constexpr int backward_unordered_accumulators(int step_rows, int gradient_columns, int dq_columns) {
  const int rounded = step_rows / 2 + dq_columns / 2;
  return gradient_columns / 2 + (rounded > step_rows ? rounded : step_rows);
}

}  // namespace attune
