/* SPDX-License-Identifier: Apache-2.0
 * The enumerations and structs of attune.h, which includes this file and says how they are used.
 */
#ifndef ATTUNE_ATTUNE_TYPES_H_
#define ATTUNE_ATTUNE_TYPES_H_

#include <attune/attune_append_types.h>
#include <attune/attune_cache_types.h>
#include <attune/attune_context_types.h>
#include <attune/attune_dropout_types.h>
#include <attune/attune_gradient_types.h>
#include <attune/attune_plan_types.h>
#include <attune/attune_score_types.h>
#include <attune/attune_tensor_types.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attune_context attune_context; /* a device, stores, bundles, everything loaded */
typedef struct attune_plan attune_plan;       /* immutable: what will be launched for one problem */

/* Values are frozen, here and in all enumerations. */
typedef enum attune_status {
  ATTUNE_OK = 0,
  ATTUNE_INVALID_ARGUMENT = 1, /* an argument is outside what the function accepts */
  ATTUNE_UNSUPPORTED = 2,      /* a valid request that no kernel serves here */
  ATTUNE_NOT_TUNED = 3,        /* the policy accepts only tuned kernels, and there is none */
  ATTUNE_WOULD_COMPILE = 4,    /* no_jit is set, and answering needs a compiler */
  ATTUNE_COMPILE_ERROR = 5,    /* the compiler is missing or refused the source */
  ATTUNE_DRIVER_ERROR = 6,     /* the driver or the device is missing or failing */
  ATTUNE_STORE_ERROR = 7,      /* the database is unreadable, unwritable, damaged or newer */
  ATTUNE_OUT_OF_MEMORY = 8,
  ATTUNE_IO_ERROR = 9, /* a file other than the store */
  ATTUNE_INTERNAL_ERROR = 10
} attune_status;

typedef enum attune_dtype {
  ATTUNE_DTYPE_DEFAULT = -1, /* follows from attune_problem.dtype */
  ATTUNE_FP32 = 0,
  ATTUNE_BF16 = 1,
  ATTUNE_FP16 = 2,
  ATTUNE_E4M3 = 3, /* 8 bits, largest finite value 448 */
  ATTUNE_E5M2 = 4, /* 8 bits, largest finite value 57344; k and v only */
  ATTUNE_INT8 = 5  /* -128 to 127; k and v of a cache only */
} attune_dtype;

typedef enum attune_op {
  ATTUNE_PREFILL = 0,  /* attention: o = softmax(scale * q k^T + mask) v */
  ATTUNE_QUANTISE = 1, /* o = q in 8 bits, with a factor for each block of rows in o_scale */
  ATTUNE_QUANTIZE = ATTUNE_QUANTISE,
  ATTUNE_BLOCK_MAP = 2, /* o = a map of blocks of the problem's masks: see attune_block_map_build */
  ATTUNE_MERGE = 3,     /* o, lse = those of two calls over different keys together: see attune.h */
  ATTUNE_ATTENTION_BACKWARD = 4, /* gradients of attention: see attune_gradient_types.h */
  ATTUNE_ATTENTION_KVCACHE = 5,  /* attention over a cache of requests: see attune_cache_types.h */
  ATTUNE_APPEND_KV = 6           /* rows into that cache: see attune_append_types.h */
} attune_op;

/* Of 8 bits, and fp32: on a GPU exact but slow, tf32, and each finite number as two of tf32. */
typedef enum attune_accuracy { ATTUNE_ACCURATE, ATTUNE_FAST, ATTUNE_SPLIT } attune_accuracy;

/* 8-bit v (attention) or o (quantise). Transposed: [batch, num_heads, head_dim, seqlen], contiguous
 * in seqlen; row_stride then steps over head_dim. */
typedef enum attune_v_layout { ATTUNE_V_ROWS = 0, ATTUNE_V_TRANSPOSED = 1 } attune_v_layout;

/* Quantise: what is done to each row before rounding. Rotating q and k alike leaves q k^T as it is
 * and spreads outliers over the row. */
typedef enum attune_rotation {
  ATTUNE_ROTATION_NONE = 0,
  ATTUNE_ROTATION_HADAMARD = 1 /* orthonormal; head_dim must be a power of two */
} attune_rotation;

/* Query row i sees key column j when: */
typedef enum attune_mask {
  ATTUNE_MASK_NONE = 0,
  ATTUNE_CAUSAL_TOP_LEFT = 1,    /* j <= i */
  ATTUNE_CAUSAL_BOTTOM_RIGHT = 2 /* j <= i + seqlen_kv - seqlen_q */
} attune_mask;

/* One attention call: o = softmax(scale * q k^T + mask) v. Start from attune_problem_init: bf16,
 * head dims 128, one head, batch 1, no mask, open windows, and lengths of 0, for which there is
 * nothing to compute. A struct of zeros is something else: head dims and heads of 0 are refused,
 * and windows of 0 show the diagonal alone. */
typedef struct attune_problem {
  size_t size;
  int32_t dtype;       /* attune_dtype of q, and of k, v and o unless given below; products are
                          accumulated in fp32 */
  int32_t mask;        /* attune_mask */
  int32_t head_dim_qk; /* multiples of 8 from 16 to 576, of 8-bit operands to 256 */
  int32_t head_dim_v;  /* to 512, of 8-bit operands to 256 */
  int32_t num_heads_q;
  int32_t num_heads_kv; /* divides num_heads_q */
  int64_t batch;
  int64_t seqlen_q;
  int64_t seqlen_kv;
  int64_t window_left;    /* keys visible left of the diagonal; negative = all */
  int64_t window_right;   /* keys visible right of the diagonal; negative = all */
  float softmax_scale;    /* 0 = 1 / sqrt(head_dim_qk) */
  int32_t reserved;       /* not read */
  int32_t op;             /* attune_op */
  int32_t dtype_kv;       /* default: as dtype */
  int32_t dtype_o;        /* default: as dtype; bf16 where dtype has 8 bits */
  int32_t accuracy;       /* attune_accuracy, of 8 bits and of fp32; what follows is for 8 bits */
  int32_t v_layout;       /* attune_v_layout */
  int32_t scale_block_q;  /* rows of q that share a factor: multiples of 16; 0 = all of a head */
  int32_t scale_block_kv; /* rows of k, and of v */
  int32_t rotation;       /* attune_rotation, of op quantise */
  /* Score features, applied in this order; attune_operands.scores has what they read. */
  float softcap; /* scores become softcap tanh(score / softcap); 0 = none */
  /* attune_score_tensor: bias [batch, num_heads_q, seqlen_q, seqlen_kv] is added, and hides where it
   * is -1e30 or less; relative_bias [num_heads_q, seqlen_q + seqlen_kv - 1] is added, by
   * key - row + seqlen_q - 1. */
  int32_t bias;
  int32_t relative_bias;
  int32_t alibi;       /* 1 = less slope times distance from the diagonal; reads alibi_slopes, fp32
                            [batch, num_heads_q] */
  int32_t mask_tensor; /* 1 = hides keys where mask_tensor, bools (bytes) [batch, num_heads_q,
                            seqlen_q, seqlen_kv], is 0 */
  int32_t key_lengths; /* 1 = hides keys from key_lengths[batch], int32, on */
  int32_t documents;   /* 1 = hides keys of other documents; reads int32 ids documents_q [batch,
                            seqlen_q] and documents_kv [batch, seqlen_kv] */
  int32_t prefix;      /* 1 = causal_bottom_right, but all rows see the first prefix[batch], int32,
                            keys; with mask none */
  int32_t chunk;       /* hides keys of other chunks of so many positions; 0 = none */
  const attune_program* score_mod; /* applied behind softcap; NULL = none */
  const attune_program* mask_mod;  /* hides keys */
  int32_t sinks;                   /* attune_score_tensor sinks [num_heads_q]: a logit of each head
                                      joins the denominator, and LSE, as it is */
  int32_t block_map;               /* attune_block_map_use of attune_operands.block_map */
  int32_t gradients;      /* of op attention_backward: sum of attune_gradient; 0 = all of q, k, v */
  float dropout;          /* the part of P that is dropped, in steps of 1/256: 0 = none; below 1 */
  int32_t page_size;      /* of op attention_kvcache: keys of a page, 0 = no pages */
  int32_t packed_q;       /* of it: 1 = rows of all requests follow each other */
  int64_t num_pages;      /* of it: pages, or slots, or rows of packed keys, of k and v; 0 = as
                             many as the requests need */
  int32_t packed_kv;      /* of it: 1 = keys of all requests follow each other, without pages */
  int32_t score_gradient; /* attune_score_gradient, of op attention_backward */
  int32_t repeats;        /* of what it names: sum of attune_repeats */
  int32_t accumulate;     /* 1 = dq, dk and dv are fp32, and what a call makes is added to them */
  int32_t batch_invariant;    /* of op attention_kvcache: 1 = a request's bits are its own */
  int32_t rotary;             /* attune_score_tensor of op append_kv: the type of cos and sin by
                                 which k is turned; none = k stays */
  int32_t rotary_dim;         /* leading columns that are turned, even; 0 = all */
  int32_t rotary_interleaved; /* 1 = columns 2 i and 2 i + 1 make a pair; 0 = i and i +
                                 rotary_dim / 2 */
  int32_t rotary_q;           /* 1 = q is turned too, into o */
  int32_t v_in_k; /* of op attention_kvcache: 1 = v is the first head_dim_v columns of k,
                                 and attune_operands.v the same address and strides as k */
  int32_t load; /* of score_gradient LOAD and LOAD_DIAGONALS: which load of floats of score_mod, in
                   the order of attune_program_nodes, from 0 on */
  int32_t deterministic; /* of op attention_backward: 1 = gradients of the same bits in every run; 0
                            = sums may be made in another order each time, where that is faster */
  int32_t kv_factors;    /* attune_kv_factors, of caches of 8 bits */
} attune_problem;

/* What a call writes shares memory with nothing else of it, which is not checked. But o may stand in the
 * very place of q, with its strides, of ops attention and append_kv, and o and lse of op merge where the
 * first's do. */
typedef struct attune_operands {
  size_t size;
  attune_tensor q; /* [batch, seqlen_q,  num_heads_q,  head_dim_qk] */
  attune_tensor k; /* [batch, seqlen_kv, num_heads_kv, head_dim_qk] */
  attune_tensor v; /* [batch, seqlen_kv, num_heads_kv, head_dim_v] */
  attune_tensor o; /* [batch, seqlen_q,  num_heads_q,  head_dim_v]; 0 where no key is seen */
  float* lse;      /* [batch, num_heads_q, seqlen_q] natural log, -infinity where no key is
                      seen; or NULL. With packed_q [num_heads_q, rows of all requests] */
  int64_t lse_batch_stride; /* both 0 = contiguous, with packed_q for batch * seqlen_q rows */
  int64_t lse_head_stride;
  attune_scale q_scale; /* of 8-bit operands */
  attune_scale k_scale;
  attune_scale v_scale;
  attune_scale o_scale; /* op quantise writes it: [batch, num_heads, blocks of rows] */
  const attune_score_operands* scores;       /* NULL = nothing is captured */
  const attune_block_map* block_map;         /* of problems with block_map; NULL elsewhere */
  const attune_gradient_operands* gradients; /* of op attention_backward; NULL elsewhere */
  const attune_dropout_operands* dropout;    /* of problems with dropout; NULL elsewhere */
  const attune_cache_operands* cache;   /* of attention_kvcache and append_kv; NULL elsewhere */
  const attune_append_operands* append; /* of op append_kv; NULL elsewhere */
} attune_operands;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_TYPES_H_ */
