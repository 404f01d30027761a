/* SPDX-License-Identifier: Apache-2.0
 * ATTUNE_ATTENTION_KVCACHE: attention of requests whose keys and values are in a cache.
 * attune_types.h includes this file.
 *
 * Problem: batch is the number of requests. seqlen_q is the largest number of rows of q (tokens)
 * that one request may have, seqlen_kv the largest number of keys. Kernels read the length of each
 * request and the place of its keys from device memory. So one plan, or one captured graph, serves
 * every step while requests grow.
 *
 * Positions: the last row of a request is at its last key. Masks (none or causal_bottom_right),
 * windows and score features (softcap, alibi, score_mod, mask_mod, sinks) count positions from
 * there, and q_idx is a position. In a program, seqlen_q is the number of rows that the request has
 * in this call, and seqlen_kv its number of keys. Neither depends on the lengths of the problem.
 *
 * Sample: one new token for each of 4 requests. q and o are [4, 1, 32, 128], k and v are
 * [1024, 16, 8, 128]. The lists kv_lengths [4] and page_table [4, 256] are on the device.
 *
 *   attune_context* context;
 *   attune_problem problem;
 *   attune_plan* plan;
 *   attune_plan_info info = {.size = sizeof info};
 *   attune_operands operands;
 *   attune_context_create(NULL, &context);
 *   attune_problem_parse("op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=4,"
 *                        "seqlen_q=1,seqlen_kv=4096,page_size=16", &problem);
 *   attune_plan_get(context, &problem, NULL, &plan);
 *   attune_plan_get_info(plan, &info);
 *   void* workspace = allocate(info.workspace_bytes);
 *   attune_workspace_init(plan, workspace, info.workspace_bytes, stream);
 *   attune_operands_contiguous(&problem, q, k, v, o, NULL, &operands);
 *   attune_cache_operands cache = {.size = sizeof cache, .kv_lengths = kv_lengths,
 *                                  .page_table = page_table, .page_table_stride = 256};
 *   operands.cache = &cache;
 *   attune_run(plan, &operands, workspace, info.workspace_bytes, stream);  // each step, each layer
 *   attune_plan_release(plan);
 *   attune_context_destroy(context);
 *
 * Layout of k and v, with any strides:
 *
 *   page_size > 0   [num_pages, page_size, num_heads_kv, head_dim]   pages
 *   packed_kv = 1   [1, num_pages, num_heads_kv, head_dim]           keys of all requests in a row
 *   otherwise       [num_pages, seqlen_kv, num_heads_kv, head_dim]   one slot per request
 *
 * attune_tensor.batch_stride is the step from page to page, or from slot to slot. packed_kv is for
 * prompts that are not in a cache yet. Packed tensors may have fewer rows than the problem allows,
 * so their head_stride may be less than a full tensor needs. It is not checked that heads of o do
 * not overlap.
 *
 * 8 bits: If dtype is bf16 or fp16, dtype_kv may be e4m3, e5m2 or int8.
 * attune_problem.cache.kv_factors says how many factors k_scale and v_scale have. GPU kernels
 * convert q and such keys to fp16: an element of q beyond 65504 counts as 65504.
 *
 * 4 bits: dtype_kv may also be int4 or e2m1, with kv_factors COLUMNS16 or COLUMNS32. Head dims are
 * then multiples of 32. A row of k or v is head_dim / 2 bytes: byte i has column 2 i in its low 4
 * bits and column 2 i + 1 in its high ones. Strides count bytes. The value of a column is
 *   code * factor of its 16 or 32 columns (k_factors, v_factors) * factor of its head (k_scale,
 *   v_scale; with no address: 1)
 * ATTUNE_APPEND_KV computes the codes and k_factors from rows and k_scale.
 */
#ifndef ATTUNE_ATTUNE_CACHE_TYPES_H_
#define ATTUNE_ATTUNE_CACHE_TYPES_H_

#include <attune/attune_tensor_types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The factors of an 8-bit or 4-bit cache. In k_scale and v_scale, the factor of the key in row r of
 * page (or slot) p and head h is at
 *   data[p * batch_stride + h / heads_per_scale * head_stride + r * block_stride]
 * If block_stride is 0, all keys of a page share a factor. With packed_kv, p is 0 and r counts the
 * keys of all requests. Factors may be stored between the rows of k and v, whose strides then leave
 * room for them. */
typedef enum attune_kv_factors {
  /* One factor for all keys (all strides 0), or one per head of k: batch_stride and block_stride
   * must be 0. */
  ATTUNE_KV_FACTORS_HEADS = 0,
  /* One factor per page, key and head; a stride of 0 shares it. */
  ATTUNE_KV_FACTORS_KEYS = 1,
  /* ATTUNE_APPEND_KV only: as KEYS, but the call computes and writes the factor of each key and
   * head that it writes. The factor is the largest magnitude of the row divided by 448 (e5m2:
   * 57344, int8: 127), and at least 2^-126. */
  ATTUNE_KV_FACTORS_MADE = 2,
  /* The rows of k hold their factors, and k_scale and v_scale are not read. For e4m3 with v_in_k, q
   * of bf16 and a head_dim_v of 512. A row is 512 codes, 4 factors (fp32, one for every 128 codes),
   * and the other columns of k in bf16: 656 bytes with a head_dim_qk of 576. */
  ATTUNE_KV_FACTORS_LATENT = 3,
  /* For int4 and e2m1: a factor for each 16 columns of each key, in k_factors and v_factors, and
   * factors as with HEADS. ATTUNE_APPEND_KV computes and writes the factors of each key: the
   * largest magnitude of the columns / 7 (e2m1: / 6) / factor of the head, rounded to e4m3. */
  ATTUNE_KV_FACTORS_COLUMNS16 = 4,
  /* A factor for each 32 columns, else as COLUMNS16. */
  ATTUNE_KV_FACTORS_COLUMNS32 = 5
} attune_kv_factors;

/* The meaning of an entry in a call's lists of keys. */
typedef enum attune_key_indices {
  /* No lists: rows see all keys of their request, as far as masks show them. */
  ATTUNE_KEY_INDICES_NONE = 0,
  /* The index of a key in the row's request, from 0 to its number of keys - 1. */
  ATTUNE_KEY_INDICES_POSITIONS = 1,
  /* The place of a key in the cache: page * page_size + index in the page, or slot * seqlen_kv +
   * index in the slot. kv_lengths, page_table and slots must then be NULL. */
  ATTUNE_KEY_INDICES_PLACES = 2
} attune_key_indices;

/* Lists are on the device, have elements of 32 bits, and must stay valid until the work of the
 * call is done. kv_lengths and slots may be NULL. page_table must be given with pages, q_begins
 * with packed_q and kv_begins with packed_kv. Each list that the problem does not use must be
 * NULL. A length above seqlen_kv counts as seqlen_kv. The cache must have each page and slot
 * whose keys a row may see. An id that the cache does not have is refused on a CPU and read as 0
 * on a GPU. With ATTUNE_CHECK_WORKSPACE=1 in the environment, values out of range are refused. */
typedef struct attune_cache_operands {
  /* sizeof(attune_cache_operands). Set it before the call. */
  size_t size;

  /* ---- Lengths ---- */
  /* The number of keys of each request, [batch]. It includes the newest. NULL = seqlen_kv each. */
  const int32_t* kv_lengths;
  /* [batch + 1], for problems with packed_q: request b has the rows q_begins[b] to
   * q_begins[b + 1] - 1 of q, o and lse [num_heads_q, rows]. lse_head_stride may be the number of
   * rows in this call, even if that is less than batch * seqlen_q. NULL without packed_q. */
  const int32_t* q_begins;

  /* ---- Where keys are: pages ---- */
  /* [batch, pages of seqlen_kv keys]: the page that holds each page_size keys of a request. Entries
   * after the request's last key are not read. NULL without pages. */
  const int32_t* page_table;
  /* The number of entries of page_table from one request to the next. */
  int64_t page_table_stride;

  /* ---- Where keys are: slots, or packed keys ---- */
  /* The slot of each request, [batch], for problems without pages. NULL = slot b for request b. */
  const int32_t* slots;
  /* [batch + 1], for problems with packed_kv: request b has the keys kv_begins[b] to
   * kv_begins[b + 1] - 1, or the first kv_lengths[b] of them. NULL without packed_kv. */
  const int32_t* kv_begins;
  /* The number of pages, slots or packed rows that k and v have in this call. 0 = the number that
   * the problem has. */
  int64_t num_pages;

  /* ---- Lists of keys, for problems with key_indices; else NULL and 0. ATTUNE_ATTENTION_BACKWARD
   * takes only these: there a request is a batch entry of seqlen_kv keys. ---- */
  /* [rows, 1 or num_heads_kv, listed_keys]: the keys that each row sees. Row i of request b is row
   * b * seqlen_q + i, or row q_begins[b] + i. A key that is named twice counts twice. An entry that
   * names no key, such as -1, is skipped. With ATTUNE_CHECK_WORKSPACE=1 in the environment, entries
   * out of range other than -1, and keys that are named twice, are refused. */
  const int32_t* key_indices;
  /* [rows]: how many entries of a row's list are read. NULL = listed_keys each. */
  const int32_t* key_counts;
  /* The number of entries from one row to the next. */
  int64_t key_indices_row_stride;
  /* The number of entries from one head of k to the next. 0 = all heads share a row's list. */
  int64_t key_indices_head_stride;

  /* ---- Factors of 4-bit caches; else all 0 ---- */
  /* The factors of k: e4m3 [num_pages, page_size, num_heads_kv, row], strides in bytes. A row has
   * the head_dim_qk / 16 (or / 32) factors of a key, up to a multiple of 4 bytes. The address and
   * the strides are multiples of the row's largest power of two, at most 16. They may be a view of
   * the memory of k. Kernels read whole lines if the keys of a head are adjacent in a page:
   * [num_pages, num_heads_kv, page_size, row]. */
  attune_tensor k_factors;
  /* The factors of v, with head_dim_v. */
  attune_tensor v_factors;
} attune_cache_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_CACHE_TYPES_H_ */
