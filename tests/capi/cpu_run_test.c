/* SPDX-License-Identifier: Apache-2.0
 * The whole way on the CPU through the C interface: context, plan, workspace, run; results against
 * a plain double loop, for layouts, groups, masks, windows, log-sum-exp and empty lengths; plans
 * that are shared, explained and policies.
 */
#include <math.h>
#include <string.h>

#include "check.h"

static float value_of(int64_t i) { return (float)((uint64_t)i * 2654435761u % 2000) / 1000 - 1; }

static const float* at(const attune_tensor* t, int64_t b, int64_t row, int64_t head) {
  return (const float*)t->data + b * t->batch_stride + row * t->row_stride + head * t->head_stride;
}

static int visible(const attune_problem* p, int64_t i, int64_t j) {
  const int64_t diagonal = i + (p->mask == ATTUNE_CAUSAL_TOP_LEFT ? 0 : p->seqlen_kv - p->seqlen_q);
  if (p->mask != ATTUNE_MASK_NONE && j > diagonal) return 0;
  if (p->window_left >= 0 && j < diagonal - p->window_left) return 0;
  return p->window_right < 0 || j <= diagonal + p->window_right;
}

/* Largest difference of o and lse from the definition, over all rows, and of the largest logits. */
static double worst_error(const attune_problem* p, const attune_operands* x) {
  const double scale = p->softmax_scale != 0 ? p->softmax_scale : 1 / sqrt(p->head_dim_qk);
  double worst = 0;
  double* scores = malloc(sizeof(double) * (size_t)(p->seqlen_kv + 1));
  double* logits = malloc(sizeof(double) * (size_t)p->num_heads_q);
  for (int64_t h = 0; h < p->num_heads_q; ++h) logits[h] = -INFINITY;
  for (int64_t b = 0; b < p->batch; ++b)
    for (int64_t h = 0; h < p->num_heads_q; ++h)
      for (int64_t i = 0; i < p->seqlen_q; ++i) {
        const int64_t kv = h / (p->num_heads_q / p->num_heads_kv);
        double sum = 0;
        for (int64_t j = 0; j < p->seqlen_kv; ++j) {
          double dot = 0;
          for (int d = 0; d < p->head_dim_qk; ++d)
            dot += (double)at(&x->q, b, i, h)[d] * at(&x->k, b, j, kv)[d];
          if (visible(p, i, j)) logits[h] = fmax(logits[h], dot * scale);
          scores[j] = visible(p, i, j) ? exp(dot * scale) : 0;
          sum += scores[j];
        }
        for (int d = 0; d < p->head_dim_v; ++d) {
          double o = 0;
          for (int64_t j = 0; j < p->seqlen_kv; ++j) o += scores[j] * at(&x->v, b, j, kv)[d];
          worst = fmax(worst, fabs((sum > 0 ? o / sum : 0) - at(&x->o, b, i, h)[d]));
        }
        const float lse = x->lse[(b * p->num_heads_q + h) * p->seqlen_q + i];
        if (sum > 0)
          worst = fmax(worst, fabs(log(sum) - lse));
        else if (!(isinf(lse) && lse < 0))
          worst = INFINITY;
      }
  for (int64_t h = 0; p->max_logits && h < p->num_heads_q; ++h)
    if (logits[h] != x->o_scale.data[h]) worst = fmax(worst, fabs(logits[h] - x->o_scale.data[h]));
  free(scores), free(logits);
  return worst;
}

static size_t filled(attune_tensor* t, int64_t count) {
  t->data = aligned((size_t)count * sizeof(float) + 256);
  for (int64_t i = 0; i < count; ++i) ((float*)t->data)[i] = value_of(i + count);
  return (size_t)count;
}

/* heads_first: [batch, heads, rows, head_dim] instead of [batch, rows, heads, head_dim]. */
static void swap_layout(attune_tensor* t, int64_t rows, int64_t head_dim) {
  t->row_stride = head_dim;
  t->head_stride = rows * head_dim;
}

static void check_problem(attune_context* context, const char* text, int heads_first) {
  attune_problem p;
  attune_operands x;
  attune_plan* plan;
  attune_plan_info info = {.size = sizeof info};
  CHECK_OK(attune_problem_parse(text, &p));
  attune_operands_contiguous(&p, NULL, NULL, NULL, NULL, NULL, &x);
  if (heads_first) {
    swap_layout(&x.q, p.seqlen_q, p.head_dim_qk), swap_layout(&x.k, p.seqlen_kv, p.head_dim_qk);
    swap_layout(&x.v, p.seqlen_kv, p.head_dim_v), swap_layout(&x.o, p.seqlen_q, p.head_dim_v);
  }
  filled(&x.q, p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_qk);
  filled(&x.k, p.batch * p.seqlen_kv * p.num_heads_kv * p.head_dim_qk);
  filled(&x.v, p.batch * p.seqlen_kv * p.num_heads_kv * p.head_dim_v);
  filled(&x.o, p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_v);
  x.lse = aligned((size_t)(p.batch * p.num_heads_q * p.seqlen_q) * sizeof(float));
  if (p.max_logits) {
    x.o_scale.data = aligned((size_t)p.num_heads_q * sizeof(float));
    x.o_scale.head_stride = 1;
  }

  CHECK_OK(attune_plan_get(context, &p, heads_first ? &x : NULL, &plan));
  CHECK_OK(attune_plan_get_info(plan, &info));
  char* workspace = aligned(info.workspace_bytes);
  for (int repeat = 0; repeat < 4; ++repeat) {
    /* Dirty, dirty again, as the former run left it, and prepared: all alike on a CPU. */
    if (repeat < 2) memset(workspace, repeat == 0 ? 255 : 1, info.workspace_bytes);
    if (repeat == 3) CHECK_OK(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
    CHECK_OK(attune_run(plan, &x, workspace, info.workspace_bytes, NULL));
    const double error = worst_error(&p, &x);
    if (!(error < 2e-5)) fprintf(stderr, "%s: error %g\n", text, error);
    CHECK(error < 2e-5);
  }
  CHECK(info.device_ordinal == -1);
  CHECK(info.zeroed_bytes <= info.workspace_bytes);
  for (size_t i = 0; i < info.zeroed_bytes; ++i) CHECK(workspace[i] == 0); /* for other plans */
  attune_plan_release(plan);
  free(x.q.data), free(x.k.data), free(x.v.data), free(x.o.data), free(x.lse), free(workspace);
  free(x.o_scale.data);
}

static void plans_are_shared_and_explained(attune_context* context) {
  attune_problem p;
  attune_plan *first, *second;
  attune_plan_info a = {.size = sizeof a}, b = {.size = sizeof b};
  char reasons[2048];
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=64,heads=4/2,seqlen=300", &p));
  CHECK_OK(attune_problem_check(context, &p, reasons, sizeof reasons));
  CHECK(strstr(reasons, "prefill_cpu: serves this problem") != NULL);
  CHECK(strstr(reasons, "prefill_sm80:") != NULL);
  CHECK_OK(attune_prewarm(context, &p, 1));
  CHECK_OK(attune_plan_get(context, &p, NULL, &first));
  CHECK_OK(attune_plan_get(context, &p, NULL, &second));
  CHECK_OK(attune_plan_get_info(first, &a));
  CHECK_OK(attune_plan_get_info(second, &b));
  CHECK(strcmp(a.config, b.config) == 0);
  CHECK(a.rung == ATTUNE_RUNG_DEFAULT_CONFIG && a.expected_us == 0);
  CHECK(strcmp(a.kernel_template, "prefill_cpu") == 0);
  CHECK(strstr(attune_plan_explain(first), a.config) != NULL);
  attune_plan_release(first);
  CHECK(strstr(attune_plan_explain(second), "rung") !=
        NULL); /* not harmed by the release of the other */
  attune_plan_release(second);
}

/* A program built before zeroed_bytes was added gets the fields it knows, and no byte more. */
static void the_first_plan_info_is_filled(attune_context* context) {
  attune_problem p;
  attune_plan* plan;
  attune_plan_info info = {.size = offsetof(attune_plan_info, zeroed_bytes), .zeroed_bytes = 77};
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=64,heads=4/2,seqlen=300", &p));
  CHECK_OK(attune_plan_get(context, &p, NULL, &plan));
  CHECK_OK(attune_plan_get_info(plan, &info));
  CHECK(strcmp(info.kernel_template, "prefill_cpu") == 0);
  CHECK(info.zeroed_bytes == 77);
  attune_plan_release(plan);
}

static void forms_of_one_problem_are_said(attune_context* context) {
  attune_problem p;
  attune_plan *asked, *same;
  CHECK_OK(attune_problem_parse(
      "dtype=fp32,head_dim=64,heads=4/2,seqlen=70,mask=causal_top_left,window=69:-", &p));
  CHECK_OK(attune_plan_get(context, &p, NULL, &asked));
  CHECK(strstr(attune_plan_explain(asked), "mask=causal_top_left,window=69:-\n") != NULL);
  CHECK(strstr(attune_plan_explain(asked), "the same   dtype=fp32,") != NULL);
  CHECK(strstr(attune_plan_explain(asked), "mask=causal_bottom_right\n") != NULL);
  p.mask = ATTUNE_CAUSAL_BOTTOM_RIGHT;
  p.window_left = -1;
  CHECK_OK(attune_plan_get(context, &p, NULL, &same));
  CHECK(strstr(attune_plan_explain(same), "the same") == NULL);
  attune_plan_release(asked), attune_plan_release(same);
}

static void policies_are_kept(void) {
  attune_context_options options;
  attune_context* context;
  attune_problem p;
  attune_plan* plan;
  attune_context_options_init(&options);
  options.target = "cpu:2";
  options.store = "";
  options.policy = ATTUNE_POLICY_STRICT;
  CHECK_OK(attune_context_create(&options, &context));
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=64,heads=4/2,seqlen=300", &p));
  CHECK_REFUSED(attune_plan_get(context, &p, NULL, &plan), ATTUNE_NOT_TUNED,
                "attune tune --problem dtype=fp32");
  attune_context_destroy(context);
  options.policy = ATTUNE_POLICY_DEFAULT;
  options.no_jit = 1;
  CHECK_OK(attune_context_create(&options, &context));
  CHECK_REFUSED(attune_plan_get(context, &p, NULL, &plan), ATTUNE_WOULD_COMPILE, "no_jit");
  attune_context_destroy(context);
}

struct counts {
  int all, not_written, not_tuned;
};

static void count_log(void* user, int level, const char* message) {
  struct counts* counts = user;
  if (level < 0 || message == NULL) return;
  ++counts->all;
  counts->not_written += strncmp(message, "AT601: ", 7) == 0;
  counts->not_tuned += strncmp(message, "AT302: dtype=fp32", 17) == 0;
}

static void logs_go_to_the_caller(void) {
  attune_context_options options;
  attune_context* context;
  attune_problem p;
  attune_plan* plan;
  struct counts counts = {0, 0, 0};
  attune_context_options_init(&options);
  options.target = "cpu";
  options.store = "";
  options.capture_file = "/proc/nowhere/capture.jsonl"; /* cannot be written: a warning */
  options.log = count_log;
  options.log_user = &counts;
  CHECK_OK(attune_context_create(&options, &context));
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=64,heads=4/2,seqlen=300", &p));
  CHECK_OK(attune_plan_get(context, &p, NULL, &plan));
  CHECK(counts.not_written == 1 && counts.not_tuned == 1 && counts.all == 2);
  attune_plan_release(plan);
  CHECK_OK(
      attune_plan_get(context, &p, NULL, &plan)); /* a problem that is not tuned is told of once */
  CHECK(counts.not_tuned == 1);
  attune_plan_release(plan);
  attune_context_destroy(context);
}

int main(void) {
  attune_context* context = cpu_context();
  CHECK(strncmp(attune_context_device(context), "cpu:", 4) == 0);
  CHECK(attune_abi_version() == ATTUNE_ABI_VERSION && attune_version()[0] != '\0');
  check_problem(context, "dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen=33", 0);
  check_problem(context, "dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen=33", 1);
  check_problem(context,
                "dtype=fp32,head_dim_qk=48,head_dim_v=80,heads=3,seqlen_q=17,seqlen_kv=130,mask="
                "causal_bottom_right",
                0);
  check_problem(
      context, "dtype=fp32,head_dim=40,heads=4/1,seqlen_q=70,seqlen_kv=20,mask=causal_bottom_right",
      0); /* rows without keys */
  check_problem(context,
                "dtype=fp32,head_dim=64,heads=2,seqlen=100,mask=causal_top_left,window=9:0", 1);
  check_problem(context, "dtype=fp32,head_dim=64,heads=2,seqlen=100,window=5:7,scale=0.3", 0);
  check_problem(context, "dtype=fp32,head_dim=64,heads=2,seqlen_q=5,seqlen_kv=0", 0);
  check_problem(context, "dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen=33,max_logits=1", 1);
  check_problem(context, "dtype=fp32,head_dim=64,heads=2,seqlen_q=5,seqlen_kv=0,max_logits=1", 0);
  check_problem(context, "dtype=fp32,head_dim=64,heads=2,seqlen_q=0,seqlen_kv=9", 0);
  plans_are_shared_and_explained(context);
  the_first_plan_info_is_filled(context);
  forms_of_one_problem_are_said(context);
  policies_are_kept();
  attune_context_destroy(context);
  logs_go_to_the_caller();
  return finish();
}
