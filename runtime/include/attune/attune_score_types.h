/* SPDX-License-Identifier: Apache-2.0
 * Score features: changes to the scores q k^T before the softmax, other than scale, mask and
 * window. attune_problem selects features. This file has the programs of callers, the tensors and
 * numbers that features read, and maps of blocks. attune_types.h includes this file.
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

/* The result of a program. */
typedef enum attune_program_kind {
  /* The program returns the new score, a float. */
  ATTUNE_SCORE_MOD = 0,
  /* The program returns true if the row sees the key. */
  ATTUNE_MASK_MOD = 1
} attune_program_kind;

/* The type of a number that a program reads. */
typedef enum attune_scalar_type {
  ATTUNE_SCALAR_BOOL = 0,
  ATTUNE_SCALAR_INT = 1,
  ATTUNE_SCALAR_FLOAT = 2
} attune_scalar_type;

/* Declares a tensor that each call passes and the program reads as name[i][j]... */
typedef struct attune_program_capture {
  /* The name in the program. */
  const char* name;
  /* The element type, an attune_capture_type. */
  int32_t type;
  /* The number of indices, 0 to 4. */
  int32_t rank;
} attune_program_capture;

/* Declares a number that each call passes. */
typedef struct attune_program_scalar {
  /* The name in the program. */
  const char* name;
  /* The type, an attune_scalar_type. */
  int32_t type;
} attune_program_scalar;

/* The argument of attune_program_parse. */
typedef struct attune_program_desc {
  /* sizeof(attune_program_desc). Set it before the call. */
  size_t size;
  /* The program in the score language: "return score - slopes[head] * abs(q_idx - kv_idx);". There
   * seqlen_q and seqlen_kv are the numbers of rows and keys of the call, or over caches of the
   * request. Comments may also declare captures and scalars: "// capture slopes: fp32[1]". */
  const char* text;
  /* The result of the program, an attune_program_kind. */
  int32_t kind;
  /* The name of the program in messages. NULL = "score_mod" or "mask_mod". */
  const char* name;
  /* Declarations of captures, in addition to those in the text. */
  const attune_program_capture* captures;
  size_t num_captures;
  /* Declarations of scalars, in addition to those in the text. */
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
  /* The name that the feature or the program uses, for instance "alibi_slopes". */
  const char* name;
  /* The address of the first element, on the device. The memory must stay valid until the work of
   * the call is done. */
  const void* data;
  /* One stride per axis, in elements. A stride of 0 repeats one value along the axis. */
  int64_t strides[4];
  /* One extent per axis, to which indices of programs are clamped. Features read no extents. */
  int64_t extents[4];
} attune_capture;

/* A number that a program reads. */
typedef struct attune_scalar {
  /* The name that the program declares. */
  const char* name;
  /* The value. It is converted to the type that the program declares. */
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
   * with the lengths of this call. Under ATTUNE_CAUSAL_TOP_LEFT the lengths are left out.
   * The positions do not shift masks, windows, bias, mask_tensor and documents: of these tensors
   * the call passes only its part. Both must be equal with relative_bias. They must also be equal
   * with a mask program that is only a causal mask or a window, which attune replaces by `mask` or
   * the window. */
  int32_t q_position0;
  int32_t kv_position0;
  /* One number for each scalar of the programs, in any order. */
  const attune_scalar* scalars;
  size_t num_scalars;
} attune_score_operands;

/* ---- Maps of blocks ---- */

/* Values of attune_problem.scores.block_map: the meaning of the map. */
typedef enum attune_block_map_use {
  ATTUNE_BLOCK_MAP_NONE = 0,
  /* The map describes the problem's masks, so that kernels skip hidden blocks. Results are the same
   * as without the map, up to rounding. */
  ATTUNE_BLOCK_MAP_SKIPS = 1,
  /* The map is one more mask: keys in granules of 0 are hidden. */
  ATTUNE_BLOCK_MAP_HIDES = 2
} attune_block_map_use;

/* A map of blocks has one byte per granule of 64 rows and 16 keys, for kernels with any tile size:
 * uint8 [batch, num_heads, ceil(seqlen_q / 64), ceil(seqlen_kv / 16)], contiguous in keys. Rows and
 * keys are counted by position.
 *
 *   0   no row of the granule sees any of its keys
 *   1   some rows see some keys, or it is not known if they do
 *   3   each row sees all keys
 *
 * attune_block_map_build or the caller fills it. A map is valid for all calls with the same masks
 * and captures, of any layer, head dim and dtype. Its memory belongs to the caller and must stay
 * valid until the work of these calls is done. */
typedef struct attune_block_map {
  /* sizeof(attune_block_map), set by attune_block_map_init. */
  size_t size;
  /* The address of the first byte, on the device. */
  void* data;
  /* The problem's batch, or 1 for one map for all entries. */
  int64_t batch;
  /* The problem's num_heads_q, or 1 for one map for all heads. */
  int64_t num_heads;
  /* The number of row positions that the map covers: at least q_position0 + seqlen_q. */
  int64_t seqlen_q;
  /* The number of key positions that the map covers: at least kv_position0 + seqlen_kv. */
  int64_t seqlen_kv;
  /* The number of bytes from one batch entry to the next. */
  int64_t batch_stride;
  /* The number of bytes from one head to the next. */
  int64_t head_stride;
  /* The number of bytes from one granule of rows to the next. */
  int64_t row_stride;
} attune_block_map;

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_SCORE_TYPES_H_ */
