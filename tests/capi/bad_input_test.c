/* SPDX-License-Identifier: Apache-2.0
 * Everything a caller can get wrong through the C interface: each is refused with its status and a
 * sentence that names the argument, what was given and what is accepted, and nothing is written.
 */
#include <math.h>

#include "check.h"

#define GOOD "dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen=16"

static void texts_are_refused(void) {
  static const struct {
    const char* text;
    const char* words;
  } kTable[] = {
      {"dtype=float31,head_dim=64,heads=4,seqlen=8", "float31"},
      {"dtype=fp32,head_dim=100,heads=4,seqlen=8",
       "head_dim_qk is 100; must be a multiple of 8 from 16 to 576"},
      {"dtype=fp32,head_dim_qk=64,head_dim_v=520,heads=4,seqlen=8", "head_dim_v is 520"},
      {"dtype=fp32,head_dim=64,heads=6/4,seqlen=8", "num_heads_kv must divide num_heads_q"},
      {"dtype=fp32,head_dim=64,heads=0,seqlen=8", "num_heads_q is 0"},
      {"dtype=fp32,head_dim=64,heads=2/4,seqlen=8", "num_heads_kv is 4"},
      {"dtype=fp32,head_dim=64,heads=4,seqlen=-8", "-8"},
      {"dtype=fp32,head_dim=64,heads=4,seqlen=8,batch=-1", "-1"},
      {"dtype=fp32,head_dim=64,heads=4,seqlen=8,scale=nan", "nan"},
      {"dtype=fp32,head_dim=64,heads=4,seqlen=8,mask=bottom", "mask is \"bottom\""},
      {"dtype=fp32,head_dim=64,heads=4,seqlen_q=8,seqlen_kv=9,mask=causal",
       "must be causal_bottom_right"},
      {"dtype=fp32,head_dim=64,heads=4,seqlen=8,mask_mod=@/etc/hostname", "@/etc/hostname"},
      {"dtype=fp32,head_dim=64,heads=4,seqlen=8,window=a:b", "window"},
      {"dtype=fp32,head_dim=64,heads=4,seqlen=8,colour=red", "colour"},
      {"dtype=fp32,head_dim=sixty,heads=4,seqlen=8", "sixty"},
      {"nonsense", "nonsense"},
      {"dtype=fp32,head_dim=64,heads=4", "no seqlen_q; give seqlen=N"},
      {"dtype=fp32,heads=4,seqlen=8", "no head_dim_qk"},
      {"dtype=fp32,head_dim=64,seqlen=8", "no heads"},
      {"dtype=fp32,head_dim=64,head_dim_v=64,heads=4,seqlen=8", "both set head_dim_v"},
      {"dtype=e4m3,head_dim=64,heads=4,seqlen=8,accuracy=exact", "accurate or fast"},
      {"dtype=e4m3,head_dim=64,heads=4,seqlen=8,v_layout=columns", "rows or transposed"},
      {"dtype=e4m3,head_dim=64,heads=4,seqlen=8,scale_block=100",
       "scale_block_q is 100; must be a multiple of 16 up to 65536"},
      {"dtype=e4m3,head_dim=64,heads=4,seqlen=8,rotation=hadamard", "rotation is hadamard"},
      {"dtype=bf16,head_dim=64,heads=4,seqlen=8,accuracy=fast", "are for 8-bit operands"},
      {"op=decode,head_dim=64,heads=4,seqlen=8", "op is \"decode\""},
      {"op=quantise,dtype_o=e4m3,head_dim=64,heads=4/2,seqlen=8", "num_heads_kv is 2"},
  };
  attune_problem problem;
  for (size_t i = 0; i < sizeof kTable / sizeof *kTable; ++i)
    CHECK_REFUSED(attune_problem_parse(kTable[i].text, &problem), ATTUNE_INVALID_ARGUMENT,
                  kTable[i].words);
  CHECK_REFUSED(attune_problem_parse("dtype=e5m2,head_dim=64,heads=4,seqlen=8", &problem),
                ATTUNE_UNSUPPORTED, "dtype_q is e5m2; with 8-bit operands it must be e4m3");
  CHECK_REFUSED(
      attune_problem_parse("dtype=e4m3,dtype_kv=bf16,head_dim=64,heads=4,seqlen=8", &problem),
      ATTUNE_UNSUPPORTED, "dtype_kv is bf16");
  CHECK_REFUSED(attune_problem_parse(NULL, &problem), ATTUNE_INVALID_ARGUMENT,
                "text is a null pointer");
  CHECK_REFUSED(attune_problem_parse(GOOD, NULL), ATTUNE_INVALID_ARGUMENT,
                "problem is a null pointer");
}

/* Checks that every function that takes a problem refuses this problem with `words`. */
static void problem_is_refused(attune_context* context, const attune_problem* problem,
                               const char* words) {
  attune_plan* plan = (attune_plan*)1;
  char reasons[256] = "old";
  CHECK_REFUSED(attune_plan_get(context, problem, NULL, &plan), ATTUNE_INVALID_ARGUMENT, words);
  CHECK(plan == NULL);
  CHECK_REFUSED(attune_problem_check(context, problem, reasons, sizeof reasons),
                ATTUNE_INVALID_ARGUMENT, words);
  CHECK(reasons[0] == '\0');
  CHECK_REFUSED(attune_prewarm(context, problem, 1), ATTUNE_INVALID_ARGUMENT, words);
  attune_operands operands;
  static const attune_operands kNone;
  CHECK_REFUSED(
      attune_operands_contiguous(problem, reasons, reasons, reasons, reasons, NULL, &operands),
      ATTUNE_INVALID_ARGUMENT, words);
  operands.size = 0;
  CHECK(memcmp(&operands, &kNone, sizeof operands) == 0);
}

static void fields_are_refused(attune_context* context) {
  attune_problem good, problem;
  CHECK_OK(attune_problem_parse(GOOD, &good));
#define WITH(field, value, words) \
  problem = good;                 \
  problem.field = value;          \
  problem_is_refused(context, &problem, words)
  WITH(head_dim_qk, 100, "head_dim_qk is 100; must be a multiple of 8 from 16 to 576");
  WITH(head_dim_v, 0, "head_dim_v is 0");
  WITH(num_heads_kv, 3, "num_heads_kv is 3; num_heads_kv must divide num_heads_q");
  WITH(num_heads_q, -4, "num_heads_q is -4");
  WITH(batch, -1, "batch is -1");
  WITH(seqlen_q, -5, "seqlen_q is -5");
  WITH(seqlen_kv, INT64_MAX, "seqlen_kv is 9223372036854775807");
  WITH(softmax_scale, NAN, "softmax_scale is nan; must be a finite number above 0");
  WITH(softmax_scale, -1.0f, "softmax_scale is -1");
  WITH(dtype, 8, "problem->dtype is 8; must be ATTUNE_FP32");
  WITH(mask, -2, "problem->mask is -2; must be ATTUNE_MASK_NONE");
  WITH(size, 0, "problem->size is 0; must be");
  WITH(op, 9, "problem->op is 9; must be 0 (prefill), 1 (quantise), 2 (block_map)");
  WITH(dtype_kv, 9, "problem->dtype_kv is 9; must be ATTUNE_FP32");
  WITH(dtype_o, -2, "problem->dtype_o is -2; must be ATTUNE_FP32");
  WITH(accuracy, 3, "problem->accuracy is 3; must be ATTUNE_ACCURATE, ATTUNE_FAST or ATTUNE_SPLIT");
  WITH(v_layout, -1, "problem->v_layout is -1; must be ATTUNE_V_ROWS");
  WITH(quantise.rotation, 5, "problem->quantise.rotation is 5; must be ATTUNE_ROTATION_NONE");
  WITH(scale_block_q, 17, "scale_block_q is 17; must be a multiple of 16");
  WITH(scale_block_kv, -16, "scale_block_kv is -16; must be a multiple of 16");
  problem_is_refused(context, NULL, "problem");
#undef WITH
}

static void newer_structs_are_refused_when_they_ask_for_more(attune_context* context) {
  struct {
    attune_problem known;
    int64_t later;
  } newer;
  attune_plan* plan;
  memset(&newer, 0, sizeof newer);
  CHECK_OK(attune_problem_parse(GOOD, &newer.known));
  newer.known.size = sizeof newer;
  CHECK_OK(attune_plan_get(context, &newer.known, NULL, &plan));
  attune_plan_release(plan);
  newer.later = 1;
  CHECK_REFUSED(attune_plan_get(context, &newer.known, NULL, &plan), ATTUNE_INVALID_ARGUMENT,
                "does not know");
}

/* Simulates a program built when attune_operands ended with lse_head_stride, and programs of ABI 1,
 * whose attune_problem was smaller than today's. */
static void older_structs_are_understood_or_told(attune_context* context) {
  enum { kOperandsThen = offsetof(attune_operands, q_scale) };
  attune_problem problem;
  attune_operands operands;
  attune_plan* plan;
  CHECK_OK(attune_problem_parse(GOOD, &problem));
  memset(&operands, 0x5a, sizeof operands);
  attune_operands_contiguous_sized(&problem, NULL, NULL, NULL, NULL, NULL, &operands,
                                   kOperandsThen);
  CHECK(operands.size == kOperandsThen && operands.q_scale.head_stride == 0x5a5a5a5a5a5a5a5a);
  static const size_t kProblemsOfAbi1[] = {80, 232, 256};
  for (size_t i = 0; i < sizeof kProblemsOfAbi1 / sizeof *kProblemsOfAbi1; ++i) {
    const size_t then = kProblemsOfAbi1[i];
    memset(&problem, 0x5a, sizeof problem);
    attune_problem_init_sized(&problem, then);
    CHECK(problem.size == then && ((unsigned char*)&problem)[then] == 0x5a);
    CHECK_REFUSED(attune_plan_get(context, &problem, NULL, &plan), ATTUNE_INVALID_ARGUMENT,
                  "Compile the program with the headers of attune");
    CHECK_REFUSED(attune_problem_parse_sized(GOOD, &problem, then), ATTUNE_INVALID_ARGUMENT,
                  "as in programs built against attune 0.2");
  }
}

/* Reserved space becomes fields in a later version. */
static void reserved_space_must_be_zero(attune_context* context) {
  attune_problem good, problem;
  attune_plan* plan;
  CHECK_OK(attune_problem_parse(GOOD, &good));
#define WITH(part, words)                                                                      \
  problem = good;                                                                              \
  problem.part reserved[sizeof problem.part reserved / sizeof *problem.part reserved - 1] = 1; \
  CHECK_REFUSED(attune_plan_get(context, &problem, NULL, &plan), ATTUNE_INVALID_ARGUMENT, words)
  WITH(, "problem->reserved is set; must be 0");
  WITH(scores., "problem->scores.reserved is set");
  WITH(backward., "problem->backward.reserved is set");
  WITH(cache., "problem->cache.reserved is set");
  WITH(append., "problem->append.reserved is set");
  WITH(quantise., "problem->quantise.reserved is set");
#undef WITH
}

/* Checks struct sizes that are out of range: nothing is read or written. */
static void sizes_that_nobody_has_are_refused(attune_context* context) {
  static const size_t kSizes[] = {0, 1, 4, 7, 65537, (size_t)1 << 62, SIZE_MAX};
  attune_problem problem, untouched;
  attune_operands operands, untouched_operands;
  attune_context_options options, untouched_options;
  attune_plan_info info;
  attune_plan* plan;
  attune_context* none;
  memset(&untouched, 0x5a, sizeof untouched);
  memset(&untouched_operands, 0x5a, sizeof untouched_operands);
  memset(&untouched_options, 0x5a, sizeof untouched_options);
  for (size_t i = 0; i < sizeof kSizes / sizeof *kSizes; ++i) {
    problem = untouched, operands = untouched_operands, options = untouched_options;
    attune_problem_init_sized(&problem, kSizes[i]);
    CHECK(memcmp(&problem, &untouched, sizeof problem) == 0);
    CHECK_REFUSED(attune_problem_parse_sized(GOOD, &problem, kSizes[i]), ATTUNE_INVALID_ARGUMENT,
                  "problem->size is");
    CHECK(memcmp(&problem, &untouched, sizeof problem) == 0);
    attune_context_options_init_sized(&options, kSizes[i]);
    CHECK(memcmp(&options, &untouched_options, sizeof options) == 0);
    CHECK_OK(attune_problem_parse(GOOD, &problem));
    attune_operands_contiguous_sized(&problem, NULL, NULL, NULL, NULL, NULL, &operands, kSizes[i]);
    CHECK(memcmp(&operands, &untouched_operands, sizeof operands) == 0);

    CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
    info.size = kSizes[i];
    CHECK_REFUSED(attune_plan_get_info(plan, &info), ATTUNE_INVALID_ARGUMENT, "info->size is");
    attune_operands_contiguous(&problem, NULL, NULL, NULL, NULL, NULL, &operands);
    operands.size = kSizes[i];
    CHECK_REFUSED(attune_run(plan, &operands, NULL, 0, NULL), ATTUNE_INVALID_ARGUMENT,
                  "operands->size is");
    attune_plan_release(plan);
    problem.size = kSizes[i];
    problem_is_refused(context, &problem, "must be 440 to 65536");
    attune_context_options_init(&options);
    options.size = kSizes[i];
    CHECK_REFUSED(attune_context_create(&options, &none), ATTUNE_INVALID_ARGUMENT,
                  "options->size is");
  }
}

static void options_are_refused(void) {
  attune_context_options options;
  attune_context* context = (attune_context*)1;
  const char* const nowhere[] = {"/nowhere/bundle", NULL};
  attune_context_options_init(&options);
  options.store = "";
  options.target = "gpu7";
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT,
                "target is \"gpu7\"; must be auto, cuda");
  CHECK(context == NULL);
  options.target = "cpu:many";
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT, "cpu:many");
  options.target = "cpu:0";
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT,
                "target is \"cpu:0\"; must be 1 to 1024 threads");
  options.target = "cpu";
  options.policy = 9;
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT,
                "options->policy is 9");
  options.policy = ATTUNE_POLICY_DEFAULT;
  options.bundles = nowhere;
  options.num_bundles = 1;
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_IO_ERROR, "/nowhere/bundle");
  options.num_bundles = 2;
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT,
                "options->bundles[1] is a null pointer");
  options.num_bundles = 5000;
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT,
                "the count of options->bundles is 5000; must be at most 4096");
  options.num_bundles = 0;
  const char* relative[] = {"nvidia/lib"};
  options.nvrtc_folders = relative;
  options.num_nvrtc_folders = 1;
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT,
                "options->nvrtc_folders has \"nvidia/lib\"; folders must be absolute");
  options.num_nvrtc_folders = 0;
  options.size = 3;
  CHECK_REFUSED(attune_context_create(&options, &context), ATTUNE_INVALID_ARGUMENT,
                "options->size is 3");
  CHECK_REFUSED(attune_context_create(NULL, NULL), ATTUNE_INVALID_ARGUMENT,
                "context is a null pointer");
  CHECK_REFUSED(attune_context_reload(NULL), ATTUNE_INVALID_ARGUMENT, "context is a null pointer");
}

/* Checks that a run with these operands is refused and leaves the output unchanged. */
static void run_is_refused(const attune_plan* plan, const attune_operands* operands,
                           void* workspace, size_t bytes, const char* words) {
  float* const watched = (float*)((uintptr_t)operands->o.data / 256 * 256);
  if (watched) watched[0] = 123.0f;
  CHECK_REFUSED(attune_run(plan, operands, workspace, bytes, NULL), ATTUNE_INVALID_ARGUMENT, words);
  if (watched) CHECK(watched[0] == 123.0f);
}

static void operands_are_refused(attune_context* context) {
  attune_problem problem;
  attune_plan* plan;
  attune_plan_info info = {.size = sizeof info};
  attune_operands good, bad;
  CHECK_OK(attune_problem_parse(GOOD, &problem));
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  CHECK_OK(attune_plan_get_info(plan, &info));
  const size_t q_bytes = 2 * 16 * 4 * 64 * sizeof(float);
  char *q = aligned(q_bytes), *k = aligned(q_bytes), *v = aligned(q_bytes), *o = aligned(q_bytes),
       *workspace = aligned(info.workspace_bytes);
  attune_operands_contiguous(&problem, q, k, v, o, NULL, &good);
#define WITH(field, value, words) \
  bad = good;                     \
  bad.field = value;              \
  run_is_refused(plan, &bad, workspace, info.workspace_bytes, words)
  WITH(q.data, NULL, "q is a null pointer");
  WITH(k.data, k + 4, "must be aligned to 16 bytes");
  WITH(v.row_stride, 130, "v.row_stride is 130 elements; must be a multiple of 4");
  WITH(o.row_stride, 64, "o.row_stride is 64 elements and overlaps");
  WITH(o.head_stride, 0, "o.head_stride is 0");
  WITH(q.batch_stride, -4096, "q.batch_stride is -4096");
  WITH(lse, (float*)(o + 2), "lse is at address");
  WITH(size, 8, "operands->size is 8");
#undef WITH
  if (info.workspace_bytes > 0) {
    run_is_refused(plan, &good, workspace, info.workspace_bytes - 1, "workspace_bytes is");
    run_is_refused(plan, &good, NULL, info.workspace_bytes, "workspace is a null pointer");
    run_is_refused(plan, &good, workspace + 16, info.workspace_bytes, "aligned to 256 bytes");
    CHECK_REFUSED(attune_workspace_init(plan, workspace, 1, NULL), ATTUNE_INVALID_ARGUMENT,
                  "workspace_bytes is 1");
  }
  CHECK_REFUSED(attune_run(NULL, &good, NULL, 0, NULL), ATTUNE_INVALID_ARGUMENT,
                "plan is a null pointer");
  CHECK_REFUSED(attune_run(plan, NULL, NULL, 0, NULL), ATTUNE_INVALID_ARGUMENT,
                "operands is a null pointer");
  attune_plan_release(plan);
  free(q), free(k), free(v), free(o), free(workspace);
}

/* Checks factors and a transposed v of 8-bit operands, and factors where none are allowed. */
static void narrow_operands_are_refused(attune_context* context) {
  attune_problem problem;
  attune_plan* plan;
  attune_plan_info info = {.size = sizeof info};
  attune_operands good, bad;
  float factors[64] = {0};
  CHECK_OK(
      attune_problem_parse("dtype=e4m3,head_dim=72,heads=4/2,batch=2,seqlen=20,"
                           "v_layout=transposed,scale_block=16",
                           &problem));
  CHECK(problem.dtype_kv == ATTUNE_E4M3 && problem.dtype_o == ATTUNE_BF16 &&
        problem.v_layout == ATTUNE_V_TRANSPOSED && problem.scale_block_kv == 16);
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  CHECK_OK(attune_plan_get_info(plan, &info));
  char *q = aligned(1 << 16), *k = aligned(1 << 16), *v = aligned(1 << 16), *o = aligned(1 << 16),
       *workspace = aligned(info.workspace_bytes);
  memset(q, 0x38, 1 << 16), memset(k, 0x38, 1 << 16), memset(v, 0x38, 1 << 16);
  attune_operands_contiguous(&problem, q, k, v, o, NULL, &good);
  CHECK(good.q.head_stride == 80 && good.v.row_stride == 32 && good.v.head_stride == 72 * 32);
  good.k_scale = (attune_scale){factors, 4, 2, 1, 1};
  CHECK_OK(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
  CHECK_OK(attune_run(plan, &good, workspace, info.workspace_bytes, NULL));
#define WITH(field, value, words) \
  bad = good;                     \
  bad.field = value;              \
  run_is_refused(plan, &bad, workspace, info.workspace_bytes, words)
  WITH(q.row_stride, 328, "q.row_stride is 328 elements; must be a multiple of 16");
  WITH(v.row_stride, 16, "v.row_stride is 16 elements and overlaps");
  WITH(k_scale.data, (float*)((char*)factors + 1), "k_scale is at address");
  WITH(k_scale.block_stride, -1, "k_scale.block_stride is -1");
  WITH(k_scale.heads_per_scale, 3, "k_scale.heads_per_scale is 3; must divide the 2");
  WITH(o_scale.data, factors, "o_scale is given");
#undef WITH
  attune_plan_release(plan);

  CHECK_OK(attune_problem_parse(GOOD, &problem));
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  attune_operands_contiguous(&problem, q, k, v, o, NULL, &bad);
  bad.q_scale.data = factors;
  bad.q_scale.heads_per_scale = 1;
  run_is_refused(plan, &bad, workspace, 1 << 30, "q_scale is given, but its tensor is fp32");
  attune_plan_release(plan);
  free(q), free(k), free(v), free(o), free(workspace);
}

static void nulls_are_refused(attune_context* context) {
  attune_problem problem;
  attune_plan* plan;
  attune_plan_info info = {.size = 4};
  CHECK_OK(attune_problem_parse(GOOD, &problem));
  CHECK_REFUSED(attune_plan_get(NULL, &problem, NULL, &plan), ATTUNE_INVALID_ARGUMENT,
                "context is a null pointer");
  CHECK_REFUSED(attune_plan_get(context, &problem, NULL, NULL), ATTUNE_INVALID_ARGUMENT,
                "plan is a null pointer");
  CHECK_REFUSED(attune_problem_check(NULL, &problem, NULL, 0), ATTUNE_INVALID_ARGUMENT,
                "context is a null pointer");
  CHECK_REFUSED(attune_prewarm(context, NULL, 1), ATTUNE_INVALID_ARGUMENT,
                "problems is a null pointer");
  CHECK_REFUSED(attune_plan_get_info(NULL, &info), ATTUNE_INVALID_ARGUMENT,
                "plan is a null pointer");
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  CHECK_REFUSED(attune_plan_get_info(plan, &info), ATTUNE_INVALID_ARGUMENT, "info->size is 4");
  CHECK_REFUSED(attune_plan_get_info(plan, NULL), ATTUNE_INVALID_ARGUMENT,
                "info is a null pointer");
  CHECK(attune_plan_explain(NULL) == NULL);
  attune_plan_release(plan);
  attune_plan_release(NULL);
  attune_context_destroy(NULL);
  attune_problem_init(NULL);
  attune_context_options_init(NULL);
  attune_operands_contiguous(NULL, NULL, NULL, NULL, NULL, NULL, NULL);
}

/* Messages are cut at 4095 bytes, never within a character. */
static void long_sentences_are_cut(void) {
  char text[16384] = "dtype=";
  for (size_t i = strlen(text); i + 4 < sizeof text; i += 2) memcpy(text + i, "\xc3\xa9", 3);
  attune_problem problem;
  for (int shift = 0; shift < 2; ++shift) {
    CHECK_REFUSED(attune_problem_parse(text, &problem), ATTUNE_INVALID_ARGUMENT, "dtype");
    const char* said = attune_last_error();
    const size_t length = strlen(said);
    CHECK(length <= 4095 && length >= 4094);
    CHECK((said[length - 1] & 0xc0) == 0x80);          /* the second byte of its character */
    memmove(text + 7, text + 6, strlen(text + 6) + 1); /* one byte further */
    text[6] = 'x';
  }
}

int main(void) {
  texts_are_refused();
  long_sentences_are_cut();
  options_are_refused();
  attune_context* context = cpu_context();
  fields_are_refused(context);
  newer_structs_are_refused_when_they_ask_for_more(context);
  older_structs_are_understood_or_told(context);
  reserved_space_must_be_zero(context);
  sizes_that_nobody_has_are_refused(context);
  operands_are_refused(context);
  narrow_operands_are_refused(context);
  nulls_are_refused(context);
  attune_context_destroy(context);
  return finish();
}
