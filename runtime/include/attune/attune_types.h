/* SPDX-License-Identifier: Apache-2.0
 * The types of attune.h, which includes this file and explains their use. This file has statuses
 * and attune_operands, the memory of one run. The other types are in:
 *
 *   attune_context_types.h   the options of a context: device, stores, bundles, log
 *   attune_problem_types.h   what one call computes, with a table "you want ... -> op, fields"
 *   attune_part_types.h      its parts, for single ops: scores, backward, cache, append
 *   attune_enum_types.h      the enumerations of a problem: op, dtype, mask, accuracy
 *   attune_plan_types.h      how a kernel is chosen, and what a plan says about itself
 *   attune_tensor_types.h    a tensor and its factors in memory
 *   attune_score_types.h     score and mask programs, captures, maps of blocks
 *   attune_dropout_types.h   seed and offset
 *   attune_gradient_types.h  ATTUNE_ATTENTION_BACKWARD
 *   attune_cache_types.h     ATTUNE_ATTENTION_KVCACHE: lengths, pages, slots
 *   attune_append_types.h    ATTUNE_APPEND_KV, and rotary embeddings
 */
#ifndef ATTUNE_ATTUNE_TYPES_H_
#define ATTUNE_ATTUNE_TYPES_H_

#include <attune/attune_append_types.h>
#include <attune/attune_cache_types.h>
#include <attune/attune_context_types.h>
#include <attune/attune_dropout_types.h>
#include <attune/attune_gradient_types.h>
#include <attune/attune_plan_types.h>
#include <attune/attune_problem_types.h>
#include <attune/attune_score_types.h>
#include <attune/attune_tensor_types.h>
#include <stddef.h>
#include <stdint.h>

/* Marks the functions that libattune.so exports. */
#if defined(__GNUC__)
#define ATTUNE_API __attribute__((visibility("default")))
#else
#define ATTUNE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A device with its stores, its bundles and all kernels that are loaded. */
typedef struct attune_context attune_context;
/* The launches for one problem. A plan never changes. */
typedef struct attune_plan attune_plan;

/* The result of a function. attune_last_error returns the message. Values are frozen. */
typedef enum attune_status {
  ATTUNE_OK = 0,
  /* An argument is outside the range that the function takes. */
  ATTUNE_INVALID_ARGUMENT = 1,
  /* The request is valid, but no kernel here serves it. */
  ATTUNE_UNSUPPORTED = 2,
  /* The policy permits only tuned kernels, and none is tuned for this problem. */
  ATTUNE_NOT_TUNED = 3,
  /* no_jit is set, and no store or bundle has the compiled kernel. */
  ATTUNE_WOULD_COMPILE = 4,
  /* The compiler is missing or refused the source. */
  ATTUNE_COMPILE_ERROR = 5,
  /* The driver or the device is missing, or it reported an error. */
  ATTUNE_DRIVER_ERROR = 6,
  /* The store is unreadable, unwritable, damaged or of a newer version. */
  ATTUNE_STORE_ERROR = 7,
  /* Memory of the host or of the device is exhausted. */
  ATTUNE_OUT_OF_MEMORY = 8,
  /* A file other than the store cannot be read or written. */
  ATTUNE_IO_ERROR = 9,
  /* An error in attune itself. */
  ATTUNE_INTERNAL_ERROR = 10
} attune_status;

/* The memory of one run. Start from attune_operands_contiguous, or set size and zero the rest.
 *
 * A run must not write to memory that another of its operands uses; this is not checked. There are
 * two exceptions. In ATTUNE_PREFILL and ATTUNE_APPEND_KV, o may have the address and strides of q.
 * In ATTUNE_MERGE, o and lse may be the first pair below.
 *
 * ATTUNE_MERGE reads two pairs of o and lse, which must come from calls over different keys. q and
 * q_scale are the first o and lse, k and k_scale the second; both have block_stride 1. A row whose
 * lse is -infinity has seen no key, and its o is ignored.
 *
 * ATTUNE_INDEX_SCORES reads q, k and q_scale: fp32 weights of each row and head. It writes o: fp32
 * [batch, seqlen_q, num_heads_kv, seqlen_kv], the sum over the heads of q of weight * max(0, q k);
 * -infinity where the mask or a length hides the key. k_scale of an 8-bit k has a factor above 0
 * for each key, which multiplies the sum.
 *
 * ATTUNE_TOP_K reads q: scores [batch, seqlen_q, num_heads_q, seqlen_kv]. It writes o: int32
 * [batch, seqlen_q, num_heads_q, cache.listed_keys], the indices of the largest scores in ascending
 * order, then -1. lse is int32 [batch, num_heads_q, seqlen_q]: the number of indices; NULL = not
 * written. Of equal scores the lower index is chosen. -infinity hides a key; NaN is above all
 * numbers.
 *
 * v_scale of both has int32 numbers of each row and head: the row sees only keys below its number.
 * NULL = all keys that the mask shows. In these three, block_stride steps from row to row. */
typedef struct attune_operands {
  /* sizeof(attune_operands), set by attune_operands_contiguous. */
  size_t size;

  /* ---- Tensors ---- */
  /* The queries, [batch, seqlen_q, num_heads_q, head_dim_qk]. */
  attune_tensor q;
  /* The keys, [batch, seqlen_kv, num_heads_kv, head_dim_qk], or as attune_cache_types.h says. */
  attune_tensor k;
  /* The values, [batch, seqlen_kv, num_heads_kv, head_dim_v], or as attune_cache_types.h says. */
  attune_tensor v;
  /* The result, [batch, seqlen_q, num_heads_q, head_dim_v]. A row that sees no key gets 0. */
  attune_tensor o;

  /* ---- Log-sum-exp of each row ---- */
  /* Natural logarithms, fp32 [batch, num_heads_q, seqlen_q]; with packed_q [num_heads_q, rows of
   * all requests]. A row that sees no key gets -infinity. NULL = not written. */
  float* lse;
  /* The number of elements from one batch entry to the next. Both strides 0 = contiguous, with
   * packed_q for batch * seqlen_q rows. */
  int64_t lse_batch_stride;
  /* The number of elements from one head to the next. */
  int64_t lse_head_stride;

  /* ---- Factors of 8-bit operands ---- */
  /* Factors of q. */
  attune_scale q_scale;
  /* Factors of k. */
  attune_scale k_scale;
  /* Factors of v. */
  attune_scale v_scale;
  /* Factors of o, [batch, num_heads, blocks of rows], which ATTUNE_QUANTISE writes. For problems
   * with max_logits: the largest logits, [num_heads_q], with head_stride 1. */
  attune_scale o_scale;

  /* ---- More operands; each must be NULL if the problem does not use it ---- */
  /* Tensors and numbers that score features and programs read. NULL = they read none. */
  const attune_score_operands* scores;
  /* The map of blocks, for problems with block_map. */
  const attune_block_map* block_map;
  /* The gradients, for ATTUNE_ATTENTION_BACKWARD. */
  const attune_gradient_operands* gradients;
  /* The seed and offset, for problems with dropout. */
  const attune_dropout_operands* dropout;
  /* The lists of a cache, for ATTUNE_ATTENTION_KVCACHE and ATTUNE_APPEND_KV. */
  const attune_cache_operands* cache;
  /* The new rows and their places, for ATTUNE_APPEND_KV. */
  const attune_append_operands* append;
} attune_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_TYPES_H_ */
