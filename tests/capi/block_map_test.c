/* SPDX-License-Identifier: Apache-2.0
 * Maps of blocks through the C interface: laid out, built, held against the mask granule by
 * granule, and given to two runs, which are bit for bit those without one; what does not fit is
 * refused in words.
 */
#include "check.h"

enum { kHeads = 2, kRows = 130, kKeys = 90, kDim = 16, kGranuleKeys = 6, kPitch = 16 };

typedef struct Memory {
  _Alignas(16) float q[kRows][kHeads][kDim], k[kKeys][kHeads][kDim], v[kKeys][kHeads][kDim],
      o[kRows][kHeads][kDim], without[kRows][kHeads][kDim];
  _Alignas(16) uint8_t map[3][kPitch];
} Memory;

static Memory memory;
static int32_t ids_q[kRows], ids_kv[kKeys];
static const attune_capture kCaptures[] = {{"documents_q", ids_q, {0, 1}, {0}},
                                           {"documents_kv", ids_kv, {0, 1}, {0}}};
static const attune_score_operands kScores = {kCaptures, 2, 0, 0, NULL, 0};

static attune_problem problem_of(int32_t use) {
  attune_problem problem;
  attune_problem_init(&problem);
  problem.dtype = ATTUNE_FP32;
  problem.head_dim_qk = problem.head_dim_v = kDim;
  problem.num_heads_q = problem.num_heads_kv = kHeads;
  problem.seqlen_q = kRows;
  problem.seqlen_kv = kKeys;
  problem.scores.documents = 1;
  problem.scores.block_map = use;
  return problem;
}

static void fill(void) {
  float* values = (float*)&memory;
  for (size_t i = 0; i < sizeof(memory.q) * 3 / sizeof(float); ++i)
    values[i] = (float)((i * 2654435761u) % 1000) / 500 - 1;
  for (int i = 0; i < kRows; ++i) ids_q[i] = i / 40;
  for (int i = 0; i < kKeys; ++i) ids_kv[i] = i / 33;
}

/* Returns the visibility of a granule under the documents, from each element. */
static int expected(int row_granule, int key_granule) {
  int any = 0, all = 1;
  for (int row = 64 * row_granule; row < kRows && row < 64 * row_granule + 64; ++row)
    for (int key = 16 * key_granule; key < kKeys && key < 16 * key_granule + 16; ++key) {
      const int seen = ids_q[row] == ids_kv[key];
      any |= seen;
      all &= seen;
    }
  return all ? 3 : any;
}

static attune_block_map built(attune_context* context) {
  const attune_problem problem = problem_of(ATTUNE_BLOCK_MAP_SKIPS);
  attune_block_map map = {0};
  CHECK_OK(attune_block_map_init(&problem, &map));
  CHECK(map.batch == 1 && map.num_heads == 1 && map.seqlen_q == kRows && map.seqlen_kv == kKeys);
  CHECK(map.row_stride == kPitch && attune_block_map_bytes(&map) == sizeof(memory.map));
  memset(memory.map, 7, sizeof(memory.map));
  map.data = memory.map;
  CHECK_OK(attune_block_map_build(context, &problem, &kScores, &map, NULL));
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < kPitch; ++j)
      CHECK(memory.map[i][j] == (j < kGranuleKeys ? expected(i, j) : 7));
  return map;
}

static attune_plan* planned(attune_context* context, int32_t use, attune_operands* operands,
                            void** workspace, size_t* bytes) {
  const attune_problem problem = problem_of(use);
  attune_plan* plan = NULL;
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  attune_plan_info info = {0};
  info.size = sizeof(info);
  CHECK_OK(attune_plan_get_info(plan, &info));
  *bytes = info.workspace_bytes;
  *workspace = aligned_alloc(256, (*bytes + 256) / 256 * 256);
  CHECK_OK(attune_workspace_init(plan, *workspace, *bytes, NULL));
  CHECK_OK(
      attune_operands_contiguous(&problem, memory.q, memory.k, memory.v, memory.o, NULL, operands));
  operands->scores = &kScores;
  return plan;
}

static void runs_are_those_without_a_map(attune_context* context, const attune_block_map* map) {
  attune_operands operands;
  void* workspace;
  size_t bytes;
  attune_plan* plan = planned(context, ATTUNE_BLOCK_MAP_NONE, &operands, &workspace, &bytes);
  operands.o.data = memory.without;
  CHECK_OK(attune_run(plan, &operands, workspace, bytes, NULL));
  operands.block_map = map;
  CHECK_REFUSED(attune_run(plan, &operands, workspace, bytes, NULL), ATTUNE_INVALID_ARGUMENT,
                "operands->block_map is given, but the problem's block_map is none");
  attune_plan_release(plan);
  free(workspace);

  plan = planned(context, ATTUNE_BLOCK_MAP_SKIPS, &operands, &workspace, &bytes);
  operands.block_map = map;
  for (int layer = 0; layer < 2; ++layer) {
    memset(memory.o, 255, sizeof(memory.o));
    CHECK_OK(attune_run(plan, &operands, workspace, bytes, NULL));
    CHECK(memcmp(memory.o, memory.without, sizeof(memory.o)) == 0);
  }
  attune_block_map other = *map;
  operands.block_map = &other;
#define REFUSES(words) \
  CHECK_REFUSED(attune_run(plan, &operands, workspace, bytes, NULL), ATTUNE_INVALID_ARGUMENT, words)
  other.num_heads = 5;
  REFUSES("operands->block_map->num_heads is 5; must be 2, as in the problem, or 1");
  other.num_heads = 1;
  other.batch = 3;
  REFUSES("operands->block_map->batch is 3; must be 1");
  other.batch = 1;
  other.seqlen_q = kRows - 1;
  REFUSES("operands->block_map->seqlen_q is 129; must be at least 130");
  other.seqlen_q = kRows;
  other.data = NULL;
  REFUSES("block_map is null");
  other.data = map->data;
  other.row_stride = -16;
  REFUSES("block_map.strides[2] is -16");
  other.size = 3;
  REFUSES("size");
  operands.block_map = NULL;
  REFUSES("operands->block_map is null");
  attune_plan_release(plan);
  free(workspace);
}

static void what_has_no_map_is_refused(attune_context* context, attune_block_map map) {
  attune_problem problem = problem_of(ATTUNE_BLOCK_MAP_NONE);
  attune_score_operands scores = kScores;
#define BUILD_REFUSES(words)                                                    \
  CHECK_REFUSED(attune_block_map_build(context, &problem, &scores, &map, NULL), \
                ATTUNE_INVALID_ARGUMENT, words)
  scores.q_position0 = 4;
  BUILD_REFUSES("scores->q_position0 is 4");
  scores.q_position0 = 0;
  scores.num_captures = 1;
  BUILD_REFUSES("no capture documents_kv");
  scores.num_captures = 2;
  map.seqlen_kv = 7;
  BUILD_REFUSES("map->seqlen_kv is 7; must be 90");
  map.seqlen_kv = kKeys;
  map.num_heads = 3;
  BUILD_REFUSES("map->num_heads is 3; must be 2");
  map.num_heads = 1;
  map.data = (char*)map.data + 1;
  BUILD_REFUSES("block_map is at address");
  map.data = NULL;
  BUILD_REFUSES("block_map is a null pointer");
  problem.scores.documents = 0;
  CHECK_REFUSED(attune_block_map_init(&problem, &map), ATTUNE_INVALID_ARGUMENT,
                "op block_map has nothing to map");
  CHECK(attune_block_map_bytes(&map) == 0 && attune_block_map_bytes(NULL) == 0);
  problem.scores.block_map = 9;
  CHECK_REFUSED(attune_block_map_init(&problem, &map), ATTUNE_INVALID_ARGUMENT,
                "problem->scores.block_map is 9");
}

int main(void) {
  attune_context* context = cpu_context();
  fill();
  const attune_block_map map = built(context);
  runs_are_those_without_a_map(context, &map);
  what_has_no_map_is_refused(context, map);
  attune_context_destroy(context);
  return finish();
}
