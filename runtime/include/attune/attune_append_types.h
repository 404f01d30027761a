/* SPDX-License-Identifier: Apache-2.0
 * ATTUNE_APPEND_KV: writes rows of k and v into the cache that ATTUNE_ATTENTION_KVCACHE reads.
 * attune_types.h includes this file.
 *
 * Problem: batch is the number of requests. seqlen_q is the largest number of new rows (tokens) of
 * one request, seqlen_kv the largest number of keys. Pages, slots, packed_q and dtype_kv are those
 * of ATTUNE_ATTENTION_KVCACHE; attune_operands.k, v and cache are the same in both calls. All lists
 * are read on the device.
 *
 * Positions: row i of a request with `rows` new rows goes to position kv_lengths[b] - rows + i.
 * Lengths therefore include the new rows.
 *
 * Rotation: with attune_problem.rotary, k is rotated by the angles of its position before it is
 * written. A pair of columns becomes first * cos - second * sin and second * cos + first * sin,
 * computed in fp32 and rounded once. With rotary_q, q [batch, seqlen_q, num_heads_q, head_dim_qk]
 * is rotated in the same way into o, which may be q.
 *
 * 8 bits: a cache of e4m3, e5m2 or int8 gets round(value / factor) with the factors k_scale and
 * v_scale, clamped to the largest finite value. NaN becomes 0 in int8. With kv_factors =
 * ATTUNE_KV_FACTORS_MADE the call also computes the factors.
 *
 * A row is not written if its place does not exist: a position below 0 or of at least seqlen_kv, a
 * position without angles, or a page or slot that the cache does not have. o of such a row is 0 if
 * there are no angles for it.
 */
#ifndef ATTUNE_ATTUNE_APPEND_TYPES_H_
#define ATTUNE_ATTUNE_APPEND_TYPES_H_

#include <attune/attune_tensor_types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Start from attune_append_contiguous. */
typedef struct attune_append_operands {
  /* sizeof(attune_append_operands), set by attune_append_contiguous. */
  size_t size;

  /* ---- New rows ---- */
  /* [batch, seqlen_q, num_heads_kv, head_dim_qk]; with packed_q [1, rows, ...]. */
  attune_tensor k;
  /* [batch, seqlen_q, num_heads_kv, head_dim_v]; with packed_q [1, rows, ...]. */
  attune_tensor v;

  /* ---- Angles, for problems with rotary ---- */
  /* [1, num_positions, 1, rotary_dim / 2]. Only row_stride is used. */
  attune_tensor cos;
  /* Shape as cos. */
  attune_tensor sin;

  /* ---- Where rows go ---- */
  /* The position of each row of all requests, in the order of memory: integers of index_bytes.
   * NULL = as the lengths say. */
  const void* positions;
  /* The place of each row's key, in the same order: page * page_size + key in the page, or
   * slot * seqlen_kv + key. A row with a place below 0 is not written. NULL = the place follows
   * from the position, by cache->page_table or cache->slots. Otherwise both of these must be
   * NULL. */
  const void* row_slots;
  /* Bytes of one element of positions and row_slots: 4 or 8. 0 = 4. */
  int32_t index_bytes;
  /* Must be 0. */
  int32_t reserved;

  /* ---- Extents of this call ---- */
  /* Rows of all requests. 0 = batch * seqlen_q, or as q_begins says. */
  int64_t num_rows;
  /* Rows of cos and sin. 0 = seqlen_kv. */
  int64_t num_positions;
} attune_append_operands;

/* How attune_rotary_table scales angles for long contexts. Names are those of transformers. */
typedef enum attune_rotary_scaling {
  ATTUNE_ROTARY_PLAIN = 0,
  /* Angles are divided by factor. */
  ATTUNE_ROTARY_LINEAR = 1,
  /* Frequencies of long waves are divided by factor; medium waves are blended. */
  ATTUNE_ROTARY_LLAMA3 = 2,
  ATTUNE_ROTARY_YARN = 3
} attune_rotary_scaling;

/* Angles of positions: position * base^(-2 i / rotary_dim), scaled as transformers does. Start from
 * attune_rotary_init. */
typedef struct attune_rotary {
  /* sizeof(attune_rotary), set by attune_rotary_init. */
  size_t size;

  /* ---- All scalings ---- */
  /* Columns that are rotated; must be even. attune_rotary_init sets 0: set it. */
  int32_t rotary_dim;
  /* attune_rotary_scaling. Default ATTUNE_ROTARY_PLAIN. */
  int32_t scaling;
  /* Default 10000. */
  float base;
  /* How many times longer the context becomes; at least 1. Default 1. */
  float factor;

  /* ---- ATTUNE_ROTARY_LLAMA3 ---- */
  /* Default 1. */
  float low_freq_factor;
  /* Default 4. Must be above low_freq_factor. */
  float high_freq_factor;

  /* ---- ATTUNE_ROTARY_YARN ---- */
  /* Default 32. */
  float beta_fast;
  /* Default 1. */
  float beta_slow;
  /* 0 (default) = not given. */
  float mscale;
  /* 0 (default) = not given. */
  float mscale_all_dim;
  /* Cos and sin are multiplied by it. 0 (default) = 0.1 ln(factor) + 1, or as mscale and
   * mscale_all_dim say if both are given. */
  float attention_factor;

  /* ---- ATTUNE_ROTARY_LLAMA3 and ATTUNE_ROTARY_YARN ---- */
  /* The length of the context before scaling, in tokens; at least 1. Default 0: set it. */
  int32_t original_max_position;

  /* ---- All scalings ---- */
  /* [rotary_dim / 2] on the host, instead of the frequencies that base and scaling give. NULL
   * (default) = not given. */
  const float* frequencies;
} attune_rotary;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_APPEND_TYPES_H_ */
