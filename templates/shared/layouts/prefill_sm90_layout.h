// SPDX-License-Identifier: Apache-2.0
// Shared memory and registers of the prefill_sm90 kernel as functions of its config. The kernel,
// the search space and the launch read this one text, so they cannot disagree. Sizes in bytes,
// registers per thread.
//
// | region   | bytes                                    | written by | read by            |
// |----------|------------------------------------------|------------|--------------------|
// | q        | warpgroups * 64 * panels_qk * row_qk     | TMA        | wgmma, its own     |
// | k slots  | kv_slots * block_n * panels_qk * row_qk  | TMA        | wgmma, warpgroups  |
// | v slots  | kv_slots * panels_v * rows_v * row_v     | TMA        | wgmma, warpgroups  |
// | o        | warpgroups * 64 rows * panels_o * 128    | stmatrix   | TMA store          |
// | given v  | kv_slots * panels_given * block_n *      | TMA        | idle warps         |
// |          |   row_given, with transpose_inside       |            |                    |
// | barriers | 8 each, in the order of the fields below | mbarrier   |                    |
// | tiles    | 2 * 32: next tiles (tile_stream.cuh)     | producer   | consumers          |
// | stop     | 8 for each slot of given v: no V follows | mbarrier   | idle warps         |
//
// With k_parts > 1 a slot of K is split into k_parts slots of some panels each, which are filled
// and released one after the other. With kv_ring > 0 the k and v slots are one ring of kv_ring
// slots, each as large as the larger of both. A panel is 128 bytes of columns (64 columns of 16
// bits) of all rows of a tile, 128-byte swizzled: the 16-byte chunk c of row r lies at chunk c ^ (r
// % 8). Panels follow each other. If head_dim does not fill the last panel, TMA fills the rest with
// zeros.
//
// Operands of 8 bits: Q and K have rows of row_qk = 32, 64 or 128 bytes, with a swizzle of the same
// width, so that a small head_dim is not padded to 128. V is transposed (rows of keys, one for each
// column of head_dim_v) in panels of row_v keys, the widest of 32, 64 and 128 that divides block_n.
// With transpose_inside TMA loads V as given, in rows of row_given bytes like the rows of K, and
// idle warps of the producing warpgroup write the transposed tiles.
#pragma once

namespace attune {

struct PrefillSm90Config {
  int block_m;
  int block_n;
  int blocks_per_sm;
  int kv_slots;
  int kv_ring;
  int k_parts;    // per tile of K; each has a slot
  int o_staging;  // 1: O is stored by TMA from separate shared memory; 0: from registers
  int head_dim_qk;
  int head_dim_v;
  int operand_bytes = 2;    // per element of Q, K and V: 2, or 1 with V transposed
  bool transposes = false;  // V is transposed tile by tile
};

struct PrefillSm90Layout {
  int warpgroups;  // consumers; one more produces
  int panels_qk;
  int panels_v;
  int panels_given;
  int panels_o;
  int row_qk;  // bytes of a panel's row
  int row_v;
  int row_given;
  int rows_v;  // per panel
  int k_slots;
  int v_slots;
  int k_slot_bytes;
  int v_slot_bytes;
  int given_bytes;  // per slot
  int q_bytes;      // per warpgroup
  int o_bytes;      // per warpgroup
  int q;            // offsets from here on
  int k;
  int v;
  int o;
  int given_v;
  int q_full;
  int q_empty;
  int k_full;
  int k_empty;
  int v_full;
  int v_empty;
  int given_full;
  int given_empty;
  int tile_full;
  int tile_empty;
  int tiles;
  int stop;
  int bytes;
};

constexpr int kPanelColumns = 64;
constexpr int kPanelRowBytes = 128;
constexpr int kWarpgroupRows = 64;
constexpr int kWarpgroupThreads = 128;
constexpr int kTileSlots = 2;
constexpr int kTileSlotBytes = 32;
constexpr int kTileCounterBytes = 256;  // of the workspace, if tiles are drawn from a counter

// swizzle_span returns the bytes of the narrowest swizzled row that holds `bytes`, at most 128;
// widest_swizzle the bytes of the widest swizzled row that divides `bytes`.
constexpr int swizzle_span(int bytes) { return bytes <= 32 ? 32 : bytes <= 64 ? 64 : 128; }
constexpr int widest_swizzle(int bytes) {
  return bytes % 128 == 0 ? 128 : bytes % 64 == 0 ? 64 : 32;
}

// Swizzle patterns repeat every 1024 bytes.
constexpr int aligned_slot(int bytes) { return (bytes + 1023) / 1024 * 1024; }

constexpr PrefillSm90Layout prefill_sm90_layout(const PrefillSm90Config& c) {
  PrefillSm90Layout l{};
  l.warpgroups = c.block_m / kWarpgroupRows;
  const bool narrow = c.operand_bytes == 1;
  l.row_qk = narrow ? swizzle_span(c.head_dim_qk) : kPanelRowBytes;
  l.row_v = narrow ? widest_swizzle(c.block_n) : kPanelRowBytes;
  l.rows_v = narrow ? c.head_dim_v : c.block_n;
  l.panels_qk = (c.head_dim_qk * c.operand_bytes + l.row_qk - 1) / l.row_qk;
  l.panels_o = (c.head_dim_v + kPanelColumns - 1) / kPanelColumns;
  l.panels_v = narrow ? c.block_n / l.row_v : l.panels_o;
  l.q_bytes = l.panels_qk * kWarpgroupRows * l.row_qk;
  l.o_bytes = c.o_staging ? l.panels_o * kWarpgroupRows * kPanelRowBytes : 0;
  l.k_slot_bytes = aligned_slot(l.panels_qk * c.block_n * l.row_qk);
  l.v_slot_bytes = aligned_slot(l.panels_v * l.rows_v * l.row_v);
  const bool ring = c.kv_ring > 0;
  if (ring) {
    l.k_slot_bytes = l.k_slot_bytes > l.v_slot_bytes ? l.k_slot_bytes : l.v_slot_bytes;
    l.v_slot_bytes = l.k_slot_bytes;
  }
  l.k_slots = ring ? c.kv_ring : c.kv_slots;
  l.v_slots = ring ? 0 : c.kv_slots;
  l.k_slots *= c.k_parts;
  l.k_slot_bytes /= c.k_parts;
  l.q = 0;
  l.k = l.q + l.warpgroups * l.q_bytes;
  l.v = ring ? l.k : l.k + l.k_slots * l.k_slot_bytes;
  l.o = l.k + l.k_slots * l.k_slot_bytes + l.v_slots * l.v_slot_bytes;
  l.given_v = l.o + l.warpgroups * l.o_bytes;
  l.row_given = swizzle_span(c.head_dim_v);
  l.panels_given = (c.head_dim_v + l.row_given - 1) / l.row_given;
  l.given_bytes = c.transposes ? l.panels_given * c.block_n * l.row_given : 0;
  l.q_full = l.given_v + l.v_slots * l.given_bytes;
  l.q_empty = l.q_full + 8 * l.warpgroups;
  l.k_full = l.q_empty + 8 * l.warpgroups;
  l.k_empty = l.k_full + 8 * l.k_slots;
  l.v_full = ring ? l.k_full : l.k_empty + 8 * l.k_slots;
  l.v_empty = ring ? l.k_empty : l.v_full + 8 * l.v_slots;
  l.given_full = (ring ? l.k_empty + 8 * l.k_slots : l.v_empty + 8 * l.v_slots);
  const int given_slots = c.transposes ? l.v_slots : 0;
  l.given_empty = l.given_full + 8 * given_slots;
  l.tile_full = l.given_empty + 8 * given_slots;
  l.tile_empty = l.tile_full + 8 * kTileSlots;
  l.tiles = (l.tile_empty + 8 * kTileSlots + 15) / 16 * 16;
  l.stop = l.tiles + kTileSlotBytes * kTileSlots;
  l.bytes = l.stop + 8 * given_slots;
  return l;
}

// Registers: the launch takes `launch` for every thread, then setmaxnreg moves them from the
// producer to the consumers. The launch's registers limit the sum: warpgroups * consumer + producer
// <= (warpgroups + 1) * launch.
struct PrefillSm90Registers {
  int launch;
  int consumer;
  int producer;
  bool moved;      // false: the launch count already suffices and setmaxnreg is left out
  int gather = 0;  // of warpgroups that only gather and convert keys
};

constexpr int kProducerRegisters = 32;      // with fewer it spills
constexpr int kProducer8BitRegisters = 24;  // likewise, with 8-bit operands
constexpr int kGatherRegisters = 56;        // likewise, if it gathers keys

// If warpgroups of their own gather and convert keys: two, or one beside two consumers. With other
// numbers one of the roles spills.
constexpr PrefillSm90Registers gather_group_registers(int consumers, bool has_lists) {
  if (consumers == 1) return {128, 208, 48, true, 128};
  return {128, 208, has_lists ? 48 : 40, true, has_lists ? 48 : 56};
}

constexpr PrefillSm90Registers prefill_sm90_registers(int warpgroups, int blocks_per_sm,
                                                      int least_producer = kProducerRegisters) {
  PrefillSm90Registers r{};
  const int threads = (warpgroups + 1) * kWarpgroupThreads;
  int launch = 65536 / (threads * blocks_per_sm) / 8 * 8;
  r.launch = launch > 248 ? 248 : launch;
  const int pool = (warpgroups + 1) * r.launch;
  const int consumer = (pool - least_producer) / warpgroups / 8 * 8;
  r.consumer = consumer > 240 ? 240 : consumer;
  const int left = pool - warpgroups * r.consumer;
  r.producer = left > r.launch ? r.launch : left;
  r.moved = r.launch < r.consumer;
  return r;
}

// Returns the registers of one consumer thread's accumulators: S and O in fp32, and P in 16 bits if
// it is kept while the next S is computed.
constexpr int prefill_sm90_accumulators(int block_n, int head_dim_v, bool overlap) {
  return block_n / 2 + (overlap ? block_n / 4 : 0) + head_dim_v / 2;
}

}  // namespace attune
