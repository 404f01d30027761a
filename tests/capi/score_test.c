/* SPDX-License-Identifier: Apache-2.0
 * Score features and programs through the C interface: parsed, planned, run with captures and
 * scalars by name, held against the formula; what does not fit is refused in words.
 */
#include <math.h>

#include "check.h"

enum { kHeads = 2, kRows = 5, kKeys = 7, kDim = 16 };

static const char* kProgram =
    "// scalar reach: float\n"
    "float near = exp2(-abs(q_idx - kv_idx) / reach);\n"
    "return score + slopes[head] * near;";

typedef struct Memory {
  _Alignas(16) float q[kRows][kHeads][kDim], k[kKeys][kHeads][kDim], v[kKeys][kHeads][kDim],
      o[kRows][kHeads][kDim];
} Memory;

static void fill(Memory* m) {
  float* values = (float*)m;
  for (size_t i = 0; i < sizeof(Memory) / sizeof(float); ++i)
    values[i] = (float)((i * 2654435761u) % 1000) / 500 - 1;
}

/* Largest difference from softmax of the program's scores, keys below `length` alone. */
static double error_of(const Memory* m, const float* slopes, double reach, int length) {
  double worst = 0;
  for (int row = 0; row < kRows; ++row)
    for (int head = 0; head < kHeads; ++head) {
      double sum = 0, o[kDim] = {0};
      for (int key = 0; key < length; ++key) {
        double score = 0;
        for (int i = 0; i < kDim; ++i) score += (double)m->q[row][head][i] * m->k[key][head][i];
        const double near = exp2(-abs(row - key) / reach);
        const double weight = exp(score / sqrt(kDim) + slopes[head] * near);
        sum += weight;
        for (int i = 0; i < kDim; ++i) o[i] += weight * m->v[key][head][i];
      }
      for (int i = 0; i < kDim; ++i) {
        const double error = fabs(o[i] / sum - m->o[row][head][i]);
        if (!(error <= worst)) worst = error;
      }
    }
  return worst;
}

static const attune_program* parsed(const char* text, int32_t kind) {
  const attune_program_capture capture = {"slopes", ATTUNE_CAPTURE_FP32, 1};
  attune_program_desc desc = {0};
  desc.size = sizeof(desc);
  desc.text = text;
  desc.kind = kind;
  if (kind == ATTUNE_SCORE_MOD) {
    desc.captures = &capture;
    desc.num_captures = 1;
  }
  const attune_program* program = NULL;
  char warnings[200];
  CHECK_OK(attune_program_parse(&desc, &program, warnings, sizeof(warnings)));
  CHECK(program != NULL && strlen(warnings) == 0);
  return program;
}

static void programs_are_read_or_refused(void) {
  const attune_program* one = parsed(kProgram, ATTUNE_SCORE_MOD);
  CHECK(one == parsed(kProgram, ATTUNE_SCORE_MOD)); /* the same program is one */
  CHECK(strstr(attune_program_text(one), "slopes") != NULL);
  CHECK(strcmp(attune_program_text(NULL), "") == 0);

  attune_program_desc desc = {0};
  const attune_program* program = one;
  CHECK_REFUSED(attune_program_parse(&desc, &program, NULL, 0), ATTUNE_INVALID_ARGUMENT, "size");
  desc.size = sizeof(desc);
  CHECK_REFUSED(attune_program_parse(&desc, &program, NULL, 0), ATTUNE_INVALID_ARGUMENT, "text");
  CHECK(program == NULL);
  desc.text = "return score;";
  desc.kind = 2;
  CHECK_REFUSED(attune_program_parse(&desc, &program, NULL, 0), ATTUNE_INVALID_ARGUMENT,
                "kind is 2");
  desc.kind = ATTUNE_MASK_MOD;
  CHECK_REFUSED(attune_program_parse(&desc, &program, NULL, 0), ATTUNE_INVALID_ARGUMENT,
                "mask_mod:1:");
  desc.num_captures = 1;
  desc.text = "return kv_idx < 3;";
  CHECK_REFUSED(attune_program_parse(&desc, &program, NULL, 0), ATTUNE_INVALID_ARGUMENT,
                "captures");
  /* Counts beyond the limit are refused before any element is read. */
  const attune_program_capture capture = {"table", ATTUNE_CAPTURE_FP32, 1};
  const attune_program_scalar scalar = {"reach", ATTUNE_SCALAR_FLOAT};
  desc.captures = &capture;
  desc.scalars = &scalar;
  desc.num_captures = (size_t)1 << 40;
  CHECK_REFUSED(attune_program_parse(&desc, &program, NULL, 0), ATTUNE_INVALID_ARGUMENT,
                "desc->num_captures is 1099511627776; must be at most 64");
  desc.num_captures = 0;
  desc.num_scalars = 65;
  CHECK_REFUSED(attune_program_parse(&desc, &program, NULL, 0), ATTUNE_INVALID_ARGUMENT,
                "desc->num_scalars is 65; must be at most 64");
  desc.num_scalars = 0;
  desc.text = "return kv_idx < 3; // caf\xe9";
  CHECK_REFUSED(attune_program_parse(&desc, &program, NULL, 0), ATTUNE_INVALID_ARGUMENT,
                "byte 25 of the text is 0xe9; the text must be UTF-8");
}

/* Checks refusals of a run with the captures key_lengths and slopes, and the scalar reach. */
static void refusals_have_sentences(const attune_plan* plan, attune_operands* operands,
                                    void* workspace, size_t bytes) {
  attune_score_operands scores = *operands->scores;
  attune_capture captures[2] = {scores.captures[0], scores.captures[1]};
  const float* slopes = captures[1].data;
  scores.captures = captures;
  operands->scores = &scores;
#define REFUSES(words) \
  CHECK_REFUSED(attune_run(plan, operands, workspace, bytes, NULL), ATTUNE_INVALID_ARGUMENT, words)
  captures[1].extents[0] = 0;
  REFUSES("slopes.extents[0] is 0");
  captures[1].extents[0] = kHeads;
  captures[1].strides[0] = -1;
  REFUSES("slopes.strides[0] is -1");
  captures[1].strides[0] = INT64_MAX;
  REFUSES("with 2 steps it leaves the 64-bit address range");
  captures[1].strides[0] = 2;
  captures[1].data = NULL;
  REFUSES("slopes is null");
  captures[1].data = (const char*)slopes + 2;
  REFUSES("a multiple of 4 bytes");
  captures[1].data = slopes;
  captures[1].name = "slope";
  REFUSES("a capture slope, which this plan does not read");
  captures[1].name = "key_lengths";
  REFUSES("two captures key_lengths");
  captures[1].name = "slopes";
  scores.num_captures = 1;
  REFUSES("no capture slopes, which this plan reads");
  scores.num_captures = 2;
  scores.num_scalars = 0;
  REFUSES("no scalar reach, which this plan reads: float");
  scores.num_scalars = 1;
  scores.q_position0 = -1;
  REFUSES("q_position0 is -1");
  scores.q_position0 = 0;
  operands->scores = NULL;
  REFUSES("must be");
}

static void a_program_runs(attune_context* context) {
  attune_problem problem;
  attune_problem_init(&problem);
  problem.dtype = ATTUNE_FP32;
  problem.head_dim_qk = problem.head_dim_v = kDim;
  problem.num_heads_q = problem.num_heads_kv = kHeads;
  problem.seqlen_q = kRows;
  problem.seqlen_kv = kKeys;
  problem.scores.score_mod = parsed(kProgram, ATTUNE_SCORE_MOD);
  problem.scores.key_lengths = 1;
  attune_plan* plan = NULL;
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  if (plan == NULL) return;
  attune_plan_info info = {0};
  info.size = sizeof(info);
  CHECK_OK(attune_plan_get_info(plan, &info));
  void* workspace = aligned_alloc(256, (info.workspace_bytes + 256) / 256 * 256);
  CHECK_OK(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));

  static Memory memory;
  fill(&memory);
  attune_operands operands;
  CHECK_OK(attune_operands_contiguous(&problem, memory.q, memory.k, memory.v, memory.o, NULL,
                                      &operands));
  const float slopes[] = {0.5f, 9, 2.0f}; /* every other one */
  const int32_t lengths[] = {6};
  attune_capture captures[] = {{"key_lengths", lengths, {1}, {0}},
                               {"slopes", slopes, {2}, {kHeads}}};
  attune_scalar reach = {"reach", 2.5};
  attune_score_operands scores = {captures, 2, 0, 0, &reach, 1};
  operands.scores = &scores;
  CHECK_OK(attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));
  const float taken[] = {0.5f, 2.0f};
  CHECK(error_of(&memory, taken, 2.5, 6) < 1e-5);
  reach.value = 0.75; /* another number, the same plan */
  CHECK_OK(attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));
  CHECK(error_of(&memory, taken, 0.75, 6) < 1e-5);

  refusals_have_sentences(plan, &operands, workspace, info.workspace_bytes);
  attune_plan_release(plan);
  free(workspace);
}

/* One name is one tensor, whatever part of the problem reads it. */
static void equal_names_are_one_thing(attune_context* context) {
  static const char* const kMasks[] = {
      "// capture slopes: int32[2]\nreturn slopes[q_idx][kv_idx] > 0;",
      "// capture slopes: fp32[1]\nreturn slopes[head] > kv_idx;",
      "// capture key_lengths: int32[1]\nreturn key_lengths[q_idx] > kv_idx;"};
  attune_problem problem;
  attune_plan* plan = NULL;
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=16,heads=2,seqlen=8,key_lengths=1", &problem));
  problem.scores.score_mod = parsed(kProgram, ATTUNE_SCORE_MOD);
  for (int i = 0; i < 3; ++i) {
    problem.scores.mask_mod = parsed(kMasks[i], ATTUNE_MASK_MOD);
    if (i == 1) {
      CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
      attune_plan_release(plan);
      continue;
    }
    CHECK_REFUSED(attune_plan_get(context, &problem, NULL, &plan), ATTUNE_INVALID_ARGUMENT,
                  i == 0 ? "two captures slopes" : "two captures key_lengths");
    CHECK(plan == NULL);
  }
}

int main(void) {
  attune_context* context = cpu_context();
  programs_are_read_or_refused();
  a_program_runs(context);
  equal_names_are_one_thing(context);
  attune_context_destroy(context);
  return finish();
}
