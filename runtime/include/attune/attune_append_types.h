/* SPDX-License-Identifier: Apache-2.0
 * Op append_kv: rows of k and v written into the cache that op attention_kvcache reads. attune_types.h includes this file.
 *
 * attune_problem.batch is the number of requests, seqlen_q the most new rows (tokens) of one, seqlen_kv the most keys; pages, slots,
 * packed_q and dtype_kv are those of attention_kvcache, and attune_operands.k, v and cache are the same there and here. Row i of a
 * request with `rows` new rows stands at position kv_lengths[b] - rows + i: lengths count the new rows. All lists are read on the device.
 *
 * With attune_problem.rotary k is turned by the angles of its position before it is written: first * cos - second * sin, second * cos +
 * first * sin of each pair of columns, in fp32, rounded once. With rotary_q q [batch, seqlen_q, num_heads_q, head_dim_qk] is turned
 * likewise into o, which may be q. A cache of e4m3, e5m2 or int8 gets round(value / factor) with k_scale and v_scale, clamped to the largest
 * finite value; NaN is 0 in int8. With attune_problem.kv_factors = ATTUNE_KV_FACTORS_MADE the call makes the factors, too.
 *
 * A row whose place is not there is not written: a position below 0 or from seqlen_kv on, one without angles, a page or a slot that the
 * cache does not have. o of such a row is 0 where there are no angles.
 */
#ifndef ATTUNE_ATTUNE_APPEND_TYPES_H_
#define ATTUNE_ATTUNE_APPEND_TYPES_H_

#include <attune/attune_tensor_types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attune_append_operands {
  size_t size;
  attune_tensor k; /* [batch, seqlen_q, num_heads_kv, head_dim_qk]; of packed rows [1, rows, ..] */
  attune_tensor v; /* [batch, seqlen_q, num_heads_kv, head_dim_v] */
  attune_tensor cos; /* [1, num_positions, 1, rotary_dim / 2], of problems with rotary: row_stride
                        counts */
  attune_tensor sin;
  const void* positions; /* integers, one for each row of all requests in the order of memory: where
                            rows stand; NULL = as lengths say */
  const void*
      row_slots;       /* likewise the place of each row's key: page * page_size + key of the page,
                            or slot * seqlen_kv + key; below 0 = it is not written. NULL = by position,
                            in cache->page_table or cache->slots, which are NULL beside it */
  int32_t index_bytes; /* of positions and row_slots: 4 or 8; 0 = 4 */
  int32_t reserved;    /* 0 */
  int64_t num_rows; /* of all requests in this call; 0 = batch * seqlen_q, or what q_begins says */
  int64_t num_positions; /* rows of cos and sin; 0 = seqlen_kv */
} attune_append_operands;

typedef enum attune_rotary_scaling {
  ATTUNE_ROTARY_PLAIN = 0,
  ATTUNE_ROTARY_LINEAR = 1, /* angles divided by factor */
  ATTUNE_ROTARY_LLAMA3 = 2, /* long waves divided by factor, those between blended */
  ATTUNE_ROTARY_YARN = 3
} attune_rotary_scaling;

/* Angles of positions: position * base^(-2 i / rotary_dim), scaled as transformers does. Start from attune_rotary_init. */
typedef struct attune_rotary {
  size_t size;
  int32_t rotary_dim;     /* even */
  int32_t scaling;        /* attune_rotary_scaling */
  float base;             /* 10000 */
  float factor;           /* of every scaling, 1 and more: how much longer contexts are */
  float low_freq_factor;  /* of llama3: 1 */
  float high_freq_factor; /* of llama3: 4 */
  float beta_fast;        /* of yarn: 32 */
  float beta_slow;        /* of yarn: 1 */
  float mscale;           /* of yarn, 0 = not given */
  float mscale_all_dim;
  float attention_factor; /* of yarn: cos and sin are multiplied by it; 0 = 0.1 ln(factor) + 1, or
                             as mscale and mscale_all_dim say */
  int32_t original_max_position; /* of llama3 and yarn: the context before scaling */
  const float* frequencies; /* [rotary_dim / 2] instead of base and scaling, on the host; or NULL */
} attune_rotary;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_APPEND_TYPES_H_ */
