/* SPDX-License-Identifier: Apache-2.0
 * What stands between the scores and the softmax beyond scale, mask and window: programs of callers,
 * and the tensors and numbers that score features read. attune_types.h includes it; attune_problem
 * (attune_types.h) says which features a problem has.
 */
#ifndef ATTUNE_ATTUNE_SCORE_TYPES_H_
#define ATTUNE_ATTUNE_SCORE_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attune_program
    attune_program; /* a score or mask program; lives as long as the process */

/* Elements of a capture. */
typedef enum attune_capture_type {
  ATTUNE_CAPTURE_FP32 = 0,
  ATTUNE_CAPTURE_BF16 = 1,
  ATTUNE_CAPTURE_FP16 = 2,
  ATTUNE_CAPTURE_INT32 = 3,
  ATTUNE_CAPTURE_INT64 = 4, /* the low 32 bits are read */
  ATTUNE_CAPTURE_UINT8 = 5,
  ATTUNE_CAPTURE_BOOL = 6 /* a byte */
} attune_capture_type;

typedef enum attune_program_kind {
  ATTUNE_SCORE_MOD = 0, /* gives the new score, a float */
  ATTUNE_MASK_MOD = 1   /* gives whether the key is seen, a bool */
} attune_program_kind;

typedef enum attune_scalar_type {
  ATTUNE_SCALAR_BOOL = 0,
  ATTUNE_SCALAR_INT = 1,
  ATTUNE_SCALAR_FLOAT = 2
} attune_scalar_type;

/* What a program may read beside its names: tensors as name[i][j].. and numbers of the call. */
typedef struct attune_program_capture {
  const char* name;
  int32_t type; /* attune_capture_type */
  int32_t rank; /* 0 to 4 */
} attune_program_capture;

typedef struct attune_program_scalar {
  const char* name;
  int32_t type; /* attune_scalar_type */
} attune_program_scalar;

typedef struct attune_program_desc {
  size_t size;
  const char*
      text;     /* in the score language, e.g. "return score - slopes[head] * abs(q_idx - kv_idx);"
                       seqlen_q and seqlen_kv are the call's numbers of rows and keys; over caches the
                       request's own (attune_cache_types.h).
                       Declarations that stand in it as comments ("// capture slopes: fp32[1]") join those below */
  int32_t kind; /* attune_program_kind */
  const char* name; /* in messages; NULL = score_mod or mask_mod */
  const attune_program_capture* captures;
  size_t num_captures;
  const attune_program_scalar* scalars;
  size_t num_scalars;
} attune_program_desc;

/* Whether a bias is added, and its type. */
typedef enum attune_score_tensor {
  ATTUNE_SCORE_TENSOR_NONE = 0,
  ATTUNE_SCORE_TENSOR_FP32 = 1,
  ATTUNE_SCORE_TENSOR_BF16 = 2,
  ATTUNE_SCORE_TENSOR_FP16 = 3
} attune_score_tensor;

/* A tensor that a score feature reads. */
typedef struct attune_capture {
  const char* name;   /* "alibi_slopes" */
  const void* data;   /* on the device, until the call's work is done */
  int64_t strides[4]; /* elements, one for each axis; 0 repeats */
  int64_t extents[4]; /* of captures of programs; not read of others. Indices beyond are clamped */
} attune_capture;

/* A number that a program reads. */
typedef struct attune_scalar {
  const char* name;
  double value; /* becomes what the program declared */
} attune_scalar;

typedef struct attune_score_operands {
  const attune_capture* captures; /* those of the problem's features, in any order */
  size_t num_captures;
  /* Where row 0 and key 0 stand in longer sequences, for programs (q_idx, kv_idx), key_lengths, a
   * block_map, alibi, chunk and prefix. The diagonal of alibi, chunk and prefix is at key = row +
   * q_position0 - kv_position0 + seqlen_kv - seqlen_q, lengths of this call, and without the lengths
   * under causal_top_left. Not moved are masks and windows, and tensors by row and key: bias,
   * mask_tensor and documents are the call's own, part of a longer one where it is; beside
   * relative_bias both are equal. A mask program that says no more than a causal mask or window
   * becomes one, and then takes equal positions only. */
  int32_t q_position0;
  int32_t kv_position0;
  const attune_scalar* scalars; /* those of the programs, in any order */
  size_t num_scalars;
} attune_score_operands;

/* What a map of blocks is to a problem. */
typedef enum attune_block_map_use {
  ATTUNE_BLOCK_MAP_NONE = 0,
  ATTUNE_BLOCK_MAP_SKIPS = 1, /* it tells what the problem's masks show, and so what need not be
                                 looked at: results are those without it, to rounding */
  ATTUNE_BLOCK_MAP_HIDES = 2  /* it is a mask by itself, beside those of the problem: keys of
                                 granules that are 0 are hidden */
} attune_block_map_use;

/* A map of blocks: a byte for each granule of 64 rows and 16 keys, counted in positions, whatever
 * tiles a kernel has: uint8 [batch, num_heads, ceil(seqlen_q / 64), ceil(seqlen_kv / 16)], contiguous
 * in keys. 0: no row of the granule sees any of its keys; 3: each row sees all; 1: some are seen, or
 * that is not known. Filled by attune_block_map_build, or by the caller from lists of its own. It is
 * good for every call with the same masks and captures, of any layer, head dim and dtype, until these
 * change; its memory is the caller's, and must live until the work of those calls is done. */
typedef struct attune_block_map {
  size_t size;
  void* data;        /* on the device */
  int64_t batch;     /* that of the problem, or 1: one for all */
  int64_t num_heads; /* the problem's num_heads_q, or 1 */
  int64_t seqlen_q;  /* positions that it covers: those of a call and more */
  int64_t seqlen_kv;
  int64_t batch_stride; /* bytes */
  int64_t head_stride;
  int64_t row_stride; /* from one granule of rows to the next */
} attune_block_map;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_SCORE_TYPES_H_ */
