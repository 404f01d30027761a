// SPDX-License-Identifier: Apache-2.0
// Work items of backward_cpu: tiles of rows and K/V heads.
#pragma once

#include "shared/attention_args.h"

namespace attune {

// A tile: rows [first, first + count) of the list of one K/V head.
struct Tile {
  int batch;
  int head_kv;
  long long first;
  int count;
};

// One K/V head of one batch entry.
struct Group {
  int batch;
  int head_kv;
};

inline Group group_at(const AttentionArgs& args, long long index) {
  return {static_cast<int>(index / args.num_heads_kv), static_cast<int>(index % args.num_heads_kv)};
}
inline long long groups_of(const AttentionArgs& args) {
  return static_cast<long long>(args.batch) * args.num_heads_kv;
}
inline long long list_rows(const AttentionArgs& args) {
  return static_cast<long long>(args.seqlen_q) * kGqaRatio;
}
inline long long tiles_of(const AttentionArgs& args) {
  return (list_rows(args) + kBlockM - 1) / kBlockM;
}
inline Tile tile_at(const AttentionArgs& args, Group group, long long index) {
  const long long first = index * kBlockM, rows = list_rows(args) - first;
  return {group.batch, group.head_kv, first, static_cast<int>(rows < kBlockM ? rows : kBlockM)};
}

}  // namespace attune
