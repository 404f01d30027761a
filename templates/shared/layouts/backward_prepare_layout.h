// SPDX-License-Identifier: Apache-2.0
// How attune_prepare deals out rows. A group of lanes computes delta of several consecutive rows,
// and loads all of them before it sums any. In the end each lane has delta of at most one row. A
// block handles rows of one head.
#pragma once

#include "shared/host_device.h"

namespace attune {

constexpr int kPrepareThreads = 256;

// Returns the number of lanes that compute delta of a row, eight columns per lane.
ATTUNE_HOST_DEVICE constexpr int backward_row_lanes(int head_dim_v) {
  int lanes = 1;
  while (8 * lanes < head_dim_v) lanes *= 2;
  return lanes;
}

ATTUNE_HOST_DEVICE constexpr int backward_rows_of_group(int head_dim_v) {
  const int lanes = backward_row_lanes(head_dim_v);
  return lanes < 4 ? lanes : 4;
}

ATTUNE_HOST_DEVICE constexpr int backward_rows_of_block(int head_dim_v) {
  return kPrepareThreads / backward_row_lanes(head_dim_v) * backward_rows_of_group(head_dim_v);
}

// Returns the blocks for a head of `rows` rows, which include padded rows.
ATTUNE_HOST_DEVICE constexpr long long backward_prepare_blocks(long long rows, int head_dim_v) {
  const int of_block = backward_rows_of_block(head_dim_v);
  return (rows + of_block - 1) / of_block;
}

}  // namespace attune
