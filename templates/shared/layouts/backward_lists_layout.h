// SPDX-License-Identifier: Apache-2.0
// Workspace of gradients over lists of keys, on every target, and dynamic shared memory of the
// kernel backward_lists_sm80. Kernels, search space and launch read this one text.
//
// | workspace, floats   | count                          | what                                  |
// |---------------------|--------------------------------|---------------------------------------|
// | 0                   | batch * num_heads_q * seqlen_q | delta of each row; on a GPU with L2   |
// | after it            | batch * seqlen_kv *            | sums: dK and dV of each key and head  |
// |                     | num_heads_kv * columns         | of K; with v_in_k both in dK's row    |
// | after it, on a GPU  | rows of a round *              | with deterministic=1: parts of dK and |
// | alone               | num_heads_kv * listed_keys *   | dV, of each entry of a list and tile  |
// |                     | tiles of heads * columns       | of heads                              |
// | after them          | batch * seqlen_kv *            | begin and end of each key and head of |
// |                     | num_heads_kv * 2               | K in the array that follows; int      |
// | after it            | rows of a round *              | entries of the round, ordered by the  |
// |                     | num_heads_kv * listed_keys     | key that they name; int               |
//
// Sums and parts begin at a multiple of 256 bytes.
//
// | shared memory | bytes                   | what                                             |
// |---------------|-------------------------|--------------------------------------------------|
// | 0             | heads * row(qk)         | Q: the heads of one row                          |
// | dout          | heads * row(v)          | dout                                             |
// | keys          | keys * row(qk)          | K of a step                                      |
// | values        | keys * row(v)           | V of a step; with v_in_k the same as `keys`      |
// | p, ds         | heads * row(keys), each | P and dS of a step, 16 bits                      |
// | statistics    | 8 * heads               | L2 and delta of each head                        |
// | places        | 2 * 4 * keys            | the keys of this step and the next one; -1: none |
//
// row(): prefill_sm80_row_bytes, with the swizzle of cuda/mma/shared_tile.cuh.
#pragma once

#include "shared/host_device.h"
#include "shared/layouts/prefill_sm80_layout.h"

namespace attune {

// Returns the columns of a key's row of sums.
ATTUNE_HOST_DEVICE constexpr int backward_lists_columns(int head_dim_qk, int head_dim_v,
                                                        bool v_in_k) {
  return head_dim_qk + (v_in_k ? 0 : head_dim_v);
}
// Returns a number of floats of the workspace after which others begin at a multiple of 256 bytes.
ATTUNE_HOST_DEVICE constexpr long long backward_lists_aligned(long long floats) {
  return (floats + 63) / 64 * 64;
}
// Returns the rows of Q of a round, whose parts take at most 1 GiB if possible.
constexpr long long backward_lists_round(long long rows, long long part_floats) {
  constexpr long long kMostFloats = 1LL << 28;
  const long long fitting = part_floats > 0 ? kMostFloats / part_floats : rows;
  return fitting < 1 ? 1 : fitting < rows ? fitting : rows;
}

// Returns the batch entries that the rows of a round belong to, at most.
constexpr long long backward_lists_batch(long long batch, long long rows, long long of_round) {
  const long long most = rows > 0 ? (of_round + rows - 2) / rows + 1 : batch;
  return most < batch ? most : batch;
}

struct BackwardListsTile {
  int heads;
  int keys;
  int head_dim_qk;
  int head_dim_v;
  bool v_in_k;
};

struct BackwardListsLayout {
  int dout;  // offsets
  int keys;
  int values;
  int p;
  int ds;
  int statistics;
  int places;
  int bytes;
};

constexpr BackwardListsLayout backward_lists_layout(const BackwardListsTile& t) {
  const int row_qk = prefill_sm80_row_bytes(t.head_dim_qk);
  const int row_v = prefill_sm80_row_bytes(t.head_dim_v);
  BackwardListsLayout l{};
  l.dout = t.heads * row_qk;
  l.keys = l.dout + t.heads * row_v;
  l.values = l.keys + (t.v_in_k ? 0 : t.keys * row_qk);
  l.p = l.values + t.keys * (t.v_in_k ? row_qk : row_v);
  l.ds = l.p + t.heads * 2 * t.keys;
  l.statistics = l.ds + t.heads * 2 * t.keys;
  l.places = l.statistics + 8 * t.heads;
  l.bytes = l.places + 8 * t.keys;
  return l;
}

}  // namespace attune
