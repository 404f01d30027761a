/* SPDX-License-Identifier: Apache-2.0
 * ATTUNE_APPEND_KV: writes rows of k and v into the cache that ATTUNE_ATTENTION_KVCACHE reads.
 * attune_types.h includes this file.
 *
 * Problem: batch is the number of requests. seqlen_q is the largest number of new rows (tokens) of
 * one request, seqlen_kv the largest number of keys. Pages, slots, packed_q and dtype_kv mean the
 * same as in ATTUNE_ATTENTION_KVCACHE, and both calls get the same attune_operands.k, v and cache.
 * Kernels read all lists on the device.
 *
 * Positions: row i of a request with `rows` new rows goes to position kv_lengths[b] - rows + i.
 * Lengths therefore include the new rows.
 *
 * Rotation: with attune_problem.append.rotary, k is rotated by the angles of its position before it
 * is written. A pair of columns becomes first * cos - second * sin and second * cos + first * sin,
 * computed in fp32 and rounded once. With rotary_q, q [batch, seqlen_q, num_heads_q, head_dim_qk]
 * is rotated in the same way into o, which may be q.
 *
 * 8 bits: a cache of e4m3, e5m2 or int8 gets round(value / factor) with the factors k_scale and
 * v_scale, clamped to the largest finite value. NaN becomes 0 in int8. With kv_factors =
 * ATTUNE_KV_FACTORS_MADE the call also computes the factors.
 *
 * 4 bits: a cache of int4 or e2m1 gets the codes and the factors k_factors and v_factors
 * (attune_cache_types.h). int4 gets -7 to 7. NaN becomes 0.
 *
 * A row is not written if its place does not exist: its position is below 0, at least seqlen_kv or
 * without angles, or the cache does not have its page or slot. o of a row without angles is 0. With
 * ATTUNE_CHECK_WORKSPACE=1 in the environment a call with such a row is refused. Only a row_slots
 * entry of -1 is then still valid.
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
  /* The new keys, [batch, seqlen_q, num_heads_kv, head_dim_qk]; with packed_q [1, rows, ...]. */
  attune_tensor k;
  /* The new values, [batch, seqlen_q, num_heads_kv, head_dim_v]; with packed_q [1, rows, ...]. */
  attune_tensor v;

  /* ---- Angles, for problems with rotary ---- */
  /* The cosines, [1, num_positions, 1, rotary_dim / 2]. Only row_stride is used. */
  attune_tensor cos;
  /* The sines, in the same shape as cos. Only row_stride is used. */
  attune_tensor sin;

  /* ---- Where rows go ---- */
  /* The position of each row of all requests, in the order of memory: integers of index_bytes.
   * NULL = positions follow from kv_lengths, as above. */
  const void* positions;
  /* The place of each row's key, in the same order: page * page_size + key in the page, or
   * slot * seqlen_kv + key. -1 = the row is not written. NULL = the place follows from the
   * position, by cache->page_table or cache->slots. If row_slots is given, both of these must be
   * NULL. */
  const void* row_slots;
  /* Bytes of one element of positions and row_slots: 4 or 8. 0 means 4. */
  int32_t index_bytes;
  /* Must be 0. */
  int32_t reserved;

  /* ---- Extents of this call ---- */
  /* The number of rows of all requests. 0 = batch * seqlen_q, or with q_begins its last entry. */
  int64_t num_rows;
  /* The number of rows of cos and sin. 0 = seqlen_kv. */
  int64_t num_positions;
} attune_append_operands;

/* How attune_rotary_table scales angles for long contexts. The names are from transformers. */
typedef enum attune_rotary_scaling {
  /* Angles are not scaled. */
  ATTUNE_ROTARY_PLAIN = 0,
  /* Angles are divided by factor. */
  ATTUNE_ROTARY_LINEAR = 1,
  /* Frequencies of long waves are divided by factor. Frequencies of medium waves are blended. */
  ATTUNE_ROTARY_LLAMA3 = 2,
  /* YaRN: slow frequencies are divided by factor, and cos and sin get a factor. */
  ATTUNE_ROTARY_YARN = 3
} attune_rotary_scaling;

/* Angles of positions: position * base^(-2 i / rotary_dim), scaled as transformers does. Start from
 * attune_rotary_init. */
typedef struct attune_rotary {
  /* sizeof(attune_rotary), set by attune_rotary_init. */
  size_t size;

  /* ---- All scalings ---- */
  /* The number of columns that are rotated; must be even and at least 2. Default 0, which is
   * refused: set it. */
  int32_t rotary_dim;
  /* attune_rotary_scaling. Default ATTUNE_ROTARY_PLAIN. */
  int32_t scaling;
  /* The base of the powers in the frequencies. Default 10000. */
  float base;
  /* How many times longer the context becomes; at least 1. Default 1. */
  float factor;

  /* ---- ATTUNE_ROTARY_LLAMA3 ---- */
  /* Waves that fit fewer times than this into the original context are long. Default 1. */
  float low_freq_factor;
  /* Waves that fit more times than this into the original context are not scaled. Must be above
   * low_freq_factor. Default 4. */
  float high_freq_factor;

  /* ---- ATTUNE_ROTARY_YARN ---- */
  /* Waves that turn more often than this in the original context are not scaled. Default 32. */
  float beta_fast;
  /* Waves that turn less often than this in the original context are scaled fully. Default 1. */
  float beta_slow;
  /* The numerator's scale in the factor of cos and sin. 0 (default) = not given. */
  float mscale;
  /* The denominator's scale in the factor of cos and sin. 0 (default) = not given. */
  float mscale_all_dim;
  /* The factor of cos and sin. 0 (default) = 0.1 ln(factor) + 1, or the value that follows from
   * mscale and mscale_all_dim if both are given. */
  float attention_factor;

  /* ---- ATTUNE_ROTARY_LLAMA3 and ATTUNE_ROTARY_YARN ---- */
  /* The length of the context before scaling, in tokens; at least 1. Default 0: set it. */
  int32_t original_max_position;

  /* ---- All scalings ---- */
  /* Frequencies in radians per position, [rotary_dim / 2] on the host. NULL (default) = they follow
   * from base and scaling. */
  const float* frequencies;
} attune_rotary;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_APPEND_TYPES_H_ */
