// SPDX-License-Identifier: Apache-2.0
// How backward_sm90_stored keeps dS and P in the workspace, for the kernels that compute dK and dV
// from them.
//
// A place holds 64 rows and 64 keys of a head of Q: four panels of dS of 16 keys each, then four
// panels of P. A panel has the form that wgmma reads in shared memory, 64 rows of 32 bytes, 32-byte
// swizzled, so that a bulk copy fetches it unchanged. The keys of a row are reordered, so that each
// thread owns 8 adjacent bytes.
//
// Only visible keys have a place. A block of 64 rows has one place per block of keys that it sees,
// and a margin at either end, because steps of attune_kernel may begin before the first seen block
// and end past the last. Blocks i and last - i share a line of places. The later block fills the
// line from its start, the earlier one up to its end, so that all lines are full under a causal
// mask.
#pragma once

#include "shared/host_device.h"
#include "shared/layouts/prefill_sm90_layout.h"

namespace attune {

constexpr int kStoredKeys = 16;  // keys per panel
constexpr int kStoredRowBytes = 2 * kStoredKeys;
constexpr int kStoredPanelBytes = kWarpgroupRows * kStoredRowBytes;
constexpr int kStoredPanels = kWarpgroupRows / kStoredKeys;  // of a warpgroup's 64 keys
constexpr int kStoredBytes = kStoredPanels * kStoredPanelBytes;

constexpr int kStoredMargin = 2;  // in places, since steps have up to 128 keys

ATTUNE_HOST_DEVICE constexpr long long backward_stored_blocks(long long seqlen_q) {
  return (seqlen_q + kWarpgroupRows - 1) / kWarpgroupRows;
}
ATTUNE_HOST_DEVICE constexpr long long backward_stored_lines(long long seqlen_q) {
  return (backward_stored_blocks(seqlen_q) + 1) / 2;
}

// Finds block `block` of rows, which sees blocks [seen_begin, seen_end) of keys: its line, and the
// place of block 0 of keys in that line. Block i of keys is i places further on; unseen blocks have
// no place.
struct StoredLine {
  int line;
  int first;
};
ATTUNE_HOST_DEVICE constexpr StoredLine backward_stored_line(long long seqlen_q, int block,
                                                             int seen_begin, int seen_end,
                                                             int stride) {
  const int mirrored = static_cast<int>(backward_stored_blocks(seqlen_q)) - 1 - block;
  if (block >= mirrored) return {mirrored, kStoredMargin - seen_begin};
  return {block, stride - kStoredMargin - seen_end};
}

// Returns the number of heads of K in one round: their places take at most kMostStoredBytes.
// Returns 0 if one head takes more.
constexpr long long kMostStoredBytes = 5LL << 28;
constexpr long long backward_stored_heads(long long heads, long long bytes_of_head) {
  const long long most = kMostStoredBytes / (bytes_of_head > 0 ? bytes_of_head : 1);
  const long long rounds = most > 0 ? (heads + most - 1) / most : 0;
  return rounds > 0 ? (heads + rounds - 1) / rounds : 0;
}

// Kernels that multiply the stored dS or P hold the accumulators of only one gradient. So
// warpgroups exchange no registers.
constexpr PrefillSm90Registers backward_stored_registers(int warpgroups) {
  PrefillSm90Registers all = prefill_sm90_registers(warpgroups, 1);
  all.consumer = all.producer = all.launch;
  all.moved = false;
  return all;
}

// Returns the key stored at place `place` of a row. Of each 16 keys a thread has two pairs, 8 keys
// apart.
ATTUNE_HOST_DEVICE constexpr int backward_stored_key(int place) {
  return (place & ~14) | (place & 2) << 2 | (place & 12) >> 1;
}

}  // namespace attune
