/* SPDX-License-Identifier: Apache-2.0
 * Attention from C on the CPU: makes a plan for one problem, runs it, and shows how it was chosen.
 * Next: prefill.cpp for the same in C++, bundle.c to run without compiler and store.
 */
#include <attune/attune.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check(attune_status status) {
  if (status == ATTUNE_OK) return;
  fprintf(stderr, "%s: %s\n", attune_status_name(status), attune_last_error());
  exit(1);
}

/* Returns memory that is aligned to 64 bytes and filled with different values. */
static float* tensor(size_t count, float step) {
  float* data = aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64);
  if (data == NULL) exit(1);
  for (size_t i = 0; i < count; ++i) data[i] = sinf(step * (float)(i % 9973));
  return data;
}

int main(void) {
  attune_context_options options;
  attune_context_options_init(&options);
  options.target = "cpu";
  attune_context* context;
  check(attune_context_create(&options, &context));

  attune_problem problem;
  check(attune_problem_parse(
      "dtype=fp32,head_dim=64,heads=8/2,batch=1,seqlen=512,mask=causal_bottom_right", &problem));
  attune_plan* plan;
  check(attune_plan_get(context, &problem, NULL, &plan));
  printf("%s\n%s\n", attune_context_device(context), attune_plan_explain(plan));

  attune_plan_info info = {.size = sizeof info};
  check(attune_plan_get_info(plan, &info));
  void* workspace = NULL;
  if (info.workspace_bytes > 0) {
    workspace = aligned_alloc(256, (info.workspace_bytes + 255) / 256 * 256);
    check(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
  }

  const size_t q_count = 512 * 8 * 64, kv_count = 512 * 2 * 64;
  float *q = tensor(q_count, 0.1f), *k = tensor(kv_count, 0.7f), *v = tensor(kv_count, 0.3f),
        *o = tensor(q_count, 0.0f);
  attune_operands operands;
  attune_operands_contiguous(&problem, q, k, v, o, NULL, &operands);
  check(attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));

  /* The first query sees only the first key, so in each head its output is the first value. */
  float worst = 0;
  for (int head = 0; head < 8; ++head)
    for (int d = 0; d < 64; ++d)
      worst = fmaxf(worst, fabsf(o[head * 64 + d] - v[head / 4 * 64 + d]));
  printf("first row differs from the first value by %g\n", (double)worst);

  attune_plan_release(plan);
  attune_context_destroy(context);
  free(workspace), free(q), free(k), free(v), free(o);
  return worst < 1e-6f ? 0 : 1;
}
