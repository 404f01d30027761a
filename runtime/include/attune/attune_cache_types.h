/* SPDX-License-Identifier: Apache-2.0
 * ATTUNE_ATTENTION_KVCACHE: attention of requests whose keys and values are in a cache.
 * attune_types.h includes this file.
 *
 * Problem: batch is the number of requests. seqlen_q is the largest number of rows of q (tokens)
 * that one request may have, seqlen_kv the largest number of keys. Kernels read the length of each
 * request and the place of its keys from device memory. One plan, or one captured graph, therefore
 * serves every step while requests grow.
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
 *   otherwise       [num_pages, seqlen_kv, num_heads_kv, head_dim]   one slot per request
 *   packed_kv = 1   [1, num_pages, num_heads_kv, head_dim]           keys of all requests in a row
 *
 * attune_tensor.batch_stride steps from page to page. packed_kv serves prompts that are not cached
 * yet. Packed tensors may have fewer rows than the problem allows, so their head_stride may be less
 * than a full tensor needs. The caller must make sure that the heads of o do not overlap.
 *
 * 8 bits: if dtype is bf16 or fp16, dtype_kv may be e4m3, e5m2 or int8. attune_problem.kv_factors
 * says how many factors k_scale and v_scale have. GPUs multiply such keys as fp16: q beyond 65504
 * counts as 65504.
 */
#ifndef ATTUNE_ATTUNE_CACHE_TYPES_H_
#define ATTUNE_ATTUNE_CACHE_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many factors an 8-bit cache has in k_scale and v_scale. The factor of the key in row r of
 * page (or slot) p and head h is at
 *   data[p * batch_stride + h / heads_per_scale * head_stride + r * block_stride]
 * If block_stride is 0, all keys of a page share a factor. r counts all packed keys. Factors may be
 * stored between the rows themselves; the strides of k and v then leave room for them. */
typedef enum attune_kv_factors {
  /* One factor for all keys (all strides 0), or one per head of k: batch_stride and block_stride
   * must be 0. */
  ATTUNE_KV_FACTORS_HEADS = 0,
  /* By page, key and head, as the strides say. */
  ATTUNE_KV_FACTORS_KEYS = 1,
  /* ATTUNE_APPEND_KV only: as KEYS, and the call computes and writes the factor of each key and
   * head that it writes. It is the largest magnitude of the row divided by 448 (e5m2: 57344, int8:
   * 127), at least 2^-126. */
  ATTUNE_KV_FACTORS_MADE = 2
} attune_kv_factors;

/* Lists are on the device, have elements of 32 bits, and must stay valid until the work of the
 * call is done. kv_lengths and slots may be NULL. page_table must be given with pages, q_begins
 * with packed_q and kv_begins with packed_kv. Each list that the problem does not use must be
 * NULL. A length above seqlen_kv counts as seqlen_kv. The cache must have each page and slot
 * whose keys a row may see. Another id is refused on a CPU and read as 0 on a GPU. */
typedef struct attune_cache_operands {
  /* sizeof(attune_cache_operands). */
  size_t size;

  /* ---- Lengths ---- */
  /* [batch]: keys of each request, the newest included. NULL = seqlen_kv for each. */
  const int32_t* kv_lengths;
  /* [batch + 1], for problems with packed_q: request b has the rows q_begins[b] to
   * q_begins[b + 1] - 1 of q, o and lse [num_heads_q, rows]. If this call has fewer rows than
   * batch * seqlen_q, lse_head_stride may be that number. */
  const int32_t* q_begins;

  /* ---- Where keys are: pages ---- */
  /* [batch, pages of seqlen_kv keys]: the page of each page_size keys. Entries behind a request's
   * last key are not read. */
  const int32_t* page_table;
  /* Entries from one request to the next. */
  int64_t page_table_stride;

  /* ---- Where keys are: slots, or packed keys ---- */
  /* [batch], without pages: the slot of each request. NULL = slot b for request b. */
  const int32_t* slots;
  /* [batch + 1], for problems with packed_kv: request b has the keys kv_begins[b] to
   * kv_begins[b + 1] - 1, or the first kv_lengths[b] of them. */
  const int32_t* kv_begins;
  /* Pages, slots or rows that k and v have in this call. 0 = as the problem says. */
  int64_t num_pages;
} attune_cache_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_CACHE_TYPES_H_ */
