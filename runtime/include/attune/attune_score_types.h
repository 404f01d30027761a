/* SPDX-License-Identifier: Apache-2.0
 * Score features: what happens between the scores q k^T and the softmax beyond scale, mask and
 * window. attune_problem says which features a problem has. Here are the programs of callers, the
 * tensors and numbers that features read, and maps of blocks. attune_types.h includes this file.
 */
#ifndef ATTUNE_ATTUNE_SCORE_TYPES_H_
#define ATTUNE_ATTUNE_SCORE_TYPES_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Programs ---- */

/* A score or mask program, from attune_program_parse. It lives as long as the process. */
typedef struct attune_program attune_program;

/* The element type of a capture, a tensor that a program reads. */
typedef enum attune_capture_type {
  ATTUNE_CAPTURE_FP32 = 0,
  ATTUNE_CAPTURE_BF16 = 1,
  ATTUNE_CAPTURE_FP16 = 2,
  ATTUNE_CAPTURE_INT32 = 3,
  /* Only the low 32 bits are read. */
  ATTUNE_CAPTURE_INT64 = 4,
  ATTUNE_CAPTURE_UINT8 = 5,
  /* One byte. */
  ATTUNE_CAPTURE_BOOL = 6
} attune_capture_type;

typedef enum attune_program_kind {
  /* Returns the new score, a float. */
  ATTUNE_SCORE_MOD = 0,
  /* Returns true if the row sees the key. */
  ATTUNE_MASK_MOD = 1
} attune_program_kind;

typedef enum attune_scalar_type {
  ATTUNE_SCALAR_BOOL = 0,
  ATTUNE_SCALAR_INT = 1,
  ATTUNE_SCALAR_FLOAT = 2
} attune_scalar_type;

/* Declares a tensor of the call, which the program reads as name[i][j]... */
typedef struct attune_program_capture {
  const char* name;
  /* attune_capture_type. */
  int32_t type;
  /* Number of indices, 0 to 4. */
  int32_t rank;
} attune_program_capture;

/* Declares a number of the call. */
typedef struct attune_program_scalar {
  const char* name;
  /* attune_scalar_type. */
  int32_t type;
} attune_program_scalar;

/* The argument of attune_program_parse. */
typedef struct attune_program_desc {
  /* sizeof(attune_program_desc). */
  size_t size;
  /* The program in the score language: "return score - slopes[head] * abs(q_idx - kv_idx);". In it
   * seqlen_q and seqlen_kv are the rows and keys of the call, or over caches of the request. A
   * comment of the text may declare, too: "// capture slopes: fp32[1]". Such declarations are added
   * to those below. */
  const char* text;
  /* attune_program_kind. */
  int32_t kind;
  /* The name in messages. NULL = score_mod or mask_mod. */
  const char* name;
  const attune_program_capture* captures;
  size_t num_captures;
  const attune_program_scalar* scalars;
  size_t num_scalars;
} attune_program_desc;

/* The type of a tensor of floats that a feature reads. NONE = the feature is off. */
typedef enum attune_score_tensor {
  ATTUNE_SCORE_TENSOR_NONE = 0,
  ATTUNE_SCORE_TENSOR_FP32 = 1,
  ATTUNE_SCORE_TENSOR_BF16 = 2,
  ATTUNE_SCORE_TENSOR_FP16 = 3
} attune_score_tensor;

/* ---- Operands of one call ---- */

/* A tensor that a score feature or a program reads. */
typedef struct attune_capture {
  /* The name that the feature or the program uses, "alibi_slopes". */
  const char* name;
  /* On the device; must stay valid until the work of the call is done. */
  const void* data;
  /* Elements, one stride per axis. 0 repeats. */
  int64_t strides[4];
  /* For captures of programs; indices beyond them are clamped. Features do not read them. */
  int64_t extents[4];
} attune_capture;

/* A number that a program reads. */
typedef struct attune_scalar {
  const char* name;
  /* Converted to the type that the program declares. */
  double value;
} attune_scalar;

/* attune_operands.scores. */
typedef struct attune_score_operands {
  /* One capture for each tensor of the problem's features and programs, in any order. */
  const attune_capture* captures;
  size_t num_captures;
  /* The positions of row 0 and key 0 in longer sequences. Default 0. They shift the indices of
   * programs (q_idx, kv_idx), key_lengths, a block_map, alibi, chunk and prefix. The diagonal of
   * alibi, chunk and prefix is at key = row + q_position0 - kv_position0 + seqlen_kv - seqlen_q,
   * with the lengths of this call, and without the lengths under ATTUNE_CAUSAL_TOP_LEFT.
   * They do not shift masks and windows, nor bias, mask_tensor and documents: the call passes its
   * own part of these tensors. Both must be equal with relative_bias, and with a mask program that
   * is only a causal mask or a window, because it becomes one. */
  int32_t q_position0;
  int32_t kv_position0;
  /* One number for each scalar of the programs, in any order. */
  const attune_scalar* scalars;
  size_t num_scalars;
} attune_score_operands;

/* ---- Maps of blocks ---- */

/* Values of attune_problem.block_map: what the map means for the problem. */
typedef enum attune_block_map_use {
  ATTUNE_BLOCK_MAP_NONE = 0,
  /* It describes the problem's masks, so that kernels skip hidden blocks. Results are those without
   * it, up to rounding. */
  ATTUNE_BLOCK_MAP_SKIPS = 1,
  /* It is a mask in addition to the problem's masks: keys in granules of 0 are hidden. */
  ATTUNE_BLOCK_MAP_HIDES = 2
} attune_block_map_use;

/* A map of blocks has one byte per granule of 64 rows and 16 keys, whatever tiles a kernel has:
 * uint8 [batch, num_heads, ceil(seqlen_q / 64), ceil(seqlen_kv / 16)], contiguous in keys. Rows and
 * keys are counted by position.
 *
 *   0   no row of the granule sees any of its keys
 *   1   some rows see some keys, or that is not known
 *   3   each row sees all keys
 *
 * attune_block_map_build fills it, or the caller does. A map serves all calls with the same masks
 * and captures, of any layer, head dim and dtype. Its memory belongs to the caller and must stay
 * valid until the work of these calls is done. */
typedef struct attune_block_map {
  /* sizeof(attune_block_map), set by attune_block_map_init. */
  size_t size;
  /* On the device. */
  void* data;
  /* The problem's batch, or 1 for one map that serves all entries. */
  int64_t batch;
  /* The problem's num_heads_q, or 1 for one map that serves all heads. */
  int64_t num_heads;
  /* Positions of rows that the map covers; at least those of the call. */
  int64_t seqlen_q;
  /* Positions of keys that the map covers; at least those of the call. */
  int64_t seqlen_kv;
  /* Bytes from one batch entry to the next. */
  int64_t batch_stride;
  /* Bytes from one head to the next. */
  int64_t head_stride;
  /* Bytes from one granule of rows to the next. */
  int64_t row_stride;
} attune_block_map;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_SCORE_TYPES_H_ */
