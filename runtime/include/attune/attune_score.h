/* SPDX-License-Identifier: Apache-2.0
 * Functions for score and mask programs, maps of blocks, and dropout on the host. attune.h includes
 * this file; attune_score_types.h has the types.
 */
#ifndef ATTUNE_ATTUNE_SCORE_H_
#define ATTUNE_ATTUNE_SCORE_H_

#include "attune/attune_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Programs ---- */

/* Parses a program of the score language. Set attune_problem.scores.score_mod or mask_mod to
 * *program, which lives as long as the process. Errors name line and column of the text. `warnings`
 * (or NULL) gets one line per warning, truncated to `capacity` bytes. */
ATTUNE_API attune_status attune_program_parse(const attune_program_desc* desc,
                                              const attune_program** program, char* warnings,
                                              size_t capacity);
/* Returns the program in its canonical form. The text lives as long as the process. */
ATTUNE_API const char* attune_program_text(const attune_program* program);
/* Returns the nodes of the program, one per line: operands before their users, the result last. A
 * line has numbers: operation and type (generator/score/language/program.hpp), index, bits, and the
 * line numbers of the operands, from 0. The index is that of a capture or scalar in the program's
 * text. The text lives as long as the process. */
ATTUNE_API const char* attune_program_nodes(const attune_program* program);

/* ---- Maps of blocks ---- */

/* Describes a map of the problem's masks: mask_mod, mask_tensor, key_lengths, documents, prefix and
 * chunk. Sets all fields but data: contiguous, with rows at multiples of 16 bytes, and for one
 * batch entry or head if the masks are the same for all of them. */
ATTUNE_API attune_status attune_block_map_init_sized(const attune_problem* problem,
                                                     attune_block_map* map, size_t size);
#define attune_block_map_init(problem, map) \
  attune_block_map_init_sized((problem), (map), sizeof(attune_block_map))
/* Returns the bytes that map->data must hold, aligned to 16; 0 for an empty or invalid map. */
ATTUNE_API size_t attune_block_map_bytes(const attune_block_map* map);
/* Fills the map: looks up or compiles a kernel, then enqueues it on `stream` (NULL on a CPU, where
 * the function returns when the work is done). Call it once outside the capture of a CUDA graph
 * before you call it inside one. `scores` holds the same captures of the masks as the coming runs;
 * its positions must be 0. To use the map, set problem.scores.block_map to ATTUNE_BLOCK_MAP_SKIPS,
 * and operands.block_map to the map. */
ATTUNE_API attune_status attune_block_map_build(attune_context* context,
                                                const attune_problem* problem,
                                                const attune_score_operands* scores,
                                                const attune_block_map* map, void* stream);

/* ---- Dropout ---- */

/* Returns the fraction of P that kernels drop if attune_problem.dropout is `dropout`: the nearest
 * of 0/256 to 255/256. Weights that are kept are multiplied by 1 / (1 - rate). Returns -1 if
 * `dropout` is below 0 or at least 1. */
ATTUNE_API double attune_dropout_rate(float dropout);
/* Writes the mask that kernels use with this seed and offset (attune_dropout_operands): 1 for a
 * kept weight, 0 for a dropped one. keep is contiguous [batch, num_heads_q, seqlen_q, seqlen_kv] on
 * the host. For tests and other frameworks. */
ATTUNE_API attune_status attune_dropout_mask(float dropout, uint64_t seed, uint64_t offset,
                                             int64_t batch, int64_t num_heads_q, int64_t seqlen_q,
                                             int64_t seqlen_kv, uint8_t* keep);

#ifdef __cplusplus
}
#endif

#endif /* ATTUNE_ATTUNE_SCORE_H_ */
