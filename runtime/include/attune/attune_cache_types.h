/* SPDX-License-Identifier: Apache-2.0
 * Op attention_kvcache: attention of requests whose keys and values stand in a cache. attune_types.h includes this file.
 *
 * attune_problem.batch is the number of requests, seqlen_q the most rows of q (tokens) that one has, seqlen_kv the most keys. How many
 * keys each has and where they stand is read by the kernels from device memory, so that a plan, and a graph that captured it, serves
 * every step while requests grow. The last row of a request stands at its last key; masks (none, causal_bottom_right), windows and score
 * features (softcap, ALiBi, score_mod, mask_mod, sinks) count positions from there, and q_idx is a position. In a program seqlen_q is
 * the number of rows that the request has in this call, and seqlen_kv its number of keys: neither depends on the problem's lengths.
 *
 * k and v: with page_size > 0 [num_pages, page_size, num_heads_kv, head_dim], else [num_pages, seqlen_kv, num_heads_kv, head_dim], a
 * slot for each request; any strides. attune_tensor.batch_stride steps from page to page. With packed_kv [1, num_pages, num_heads_kv,
 * head_dim]: keys of all requests follow each other, as those of prompts that are not cached yet. Heads of packed rows and keys may be
 * apart by less than a problem's rows would take, for a call may have fewer: that those of o do not overlap is the caller's to see. With dtype bf16 or fp16 dtype_kv may
 * be e4m3, e5m2 or int8; attune_problem.kv_factors says how fine k_scale and v_scale are. GPUs multiply as fp16: q beyond 65504 counts
 * as 65504.
 */
#ifndef ATTUNE_ATTUNE_CACHE_TYPES_H_
#define ATTUNE_ATTUNE_CACHE_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Factors of a cache of 8 bits, k_scale and v_scale. That of a key in row r of page (or slot) p and head h stands at p * batch_stride +
 * h / heads_per_scale * head_stride + r * block_stride, in floats: of pages block_stride is 0, of packed keys r counts them all. Factors may
 * stand between the rows themselves, which are then so much further apart. */
typedef enum attune_kv_factors {
  ATTUNE_KV_FACTORS_HEADS = 0, /* one for all (strides 0), or for each head of K: batch_stride and
                                  block_stride are 0 */
  ATTUNE_KV_FACTORS_KEYS = 1,  /* by page, key and head, as strides say */
  ATTUNE_KV_FACTORS_MADE =
      2 /* of op append_kv: likewise, and the call makes and writes that of each
                                  key and head it writes: the largest magnitude of the row / 448 (of
                                  e5m2 57344, of int8 127), at least 2^-126 */
} attune_kv_factors;

/* All lists are on the device, of 32-bit integers, and live until the call's work is done. A length above seqlen_kv counts as
 * seqlen_kv. The cache must have each page and slot of keys that a row may see: on a CPU another id is refused, on a GPU it is read as
 * 0. */
typedef struct attune_cache_operands {
  size_t size;
  const int32_t*
      kv_lengths; /* [batch]: keys of each request, the newest among them; NULL = seqlen_kv */
  const int32_t* q_begins;   /* [batch + 1], of problems with packed_q: rows q_begins[b] up to
                                q_begins[b + 1] of q, o and lse [num_heads_q, rows] are those of
                                request b. lse_head_stride may be the rows of this call where
                                they are fewer than batch * seqlen_q */
  const int32_t* page_table; /* [batch, pages of seqlen_kv keys], with pages: the page of each
                                page_size keys. Entries behind a request's last key are not read */
  int64_t page_table_stride; /* entries from one request to the next */
  const int32_t* slots; /* [batch], without pages: the slot of each request; NULL = its number */
  const int32_t* kv_begins; /* [batch + 1], of problems with packed_kv: keys kv_begins[b] up to
                               kv_begins[b + 1] are those of request b, or the first kv_lengths[b]
                               of them */
  int64_t num_pages; /* pages, slots or rows that k and v have in this call; 0 = the problem's */
} attune_cache_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_CACHE_TYPES_H_ */
