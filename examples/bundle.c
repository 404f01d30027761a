/* SPDX-License-Identifier: Apache-2.0
 * Runs from a folder written by `attune export FOLDER` or `attune compile --out FOLDER`: no
 * compiler, no database. Usage: bundle FOLDER [PROBLEM]. Says which kernel serves the problem and
 * times it on the CPU.
 */
#define _POSIX_C_SOURCE 200809L
#include <attune/attune.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void check(attune_status status) {
  if (status == ATTUNE_OK) return;
  fprintf(stderr, "%s: %s\n", attune_status_name(status), attune_last_error());
  exit(1);
}

static float* tensor(int64_t count) {
  float* data = aligned_alloc(64, ((size_t)count * sizeof(float) + 63) / 64 * 64);
  if (data == NULL) exit(1);
  for (int64_t i = 0; i < count; ++i) data[i] = (float)((i * 2654435761u) % 1000) / 500 - 1;
  return data;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char** argv) {
  if (argc < 2) return fprintf(stderr, "usage: %s FOLDER [PROBLEM]\n", argv[0]), 2;
  attune_context_options options;
  attune_context_options_init(&options);
  options.target = "cpu";
  options.store = ""; /* no store */
  options.no_jit = 1; /* no compiler */
  options.bundles = (const char* const*)&argv[1];
  options.num_bundles = 1;
  attune_context* context;
  check(attune_context_create(&options, &context));

  attune_problem p;
  check(attune_problem_parse(
      argc > 2 ? argv[2] : "dtype=fp32,head_dim=64,heads=8/2,seqlen=512,mask=causal_bottom_right",
      &p));
  if (p.dtype != ATTUNE_FP32) return fprintf(stderr, "this example makes fp32 inputs only\n"), 2;
  attune_plan* plan;
  check(attune_plan_get(context, &p, NULL, &plan));
  printf("%s\n", attune_plan_explain(plan));

  attune_plan_info info = {.size = sizeof info};
  check(attune_plan_get_info(plan, &info));
  void* workspace = aligned_alloc(256, (info.workspace_bytes + 256) / 256 * 256);
  check(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
  float* q = tensor(p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_qk);
  float* k = tensor(p.batch * p.seqlen_kv * p.num_heads_kv * p.head_dim_qk);
  float* v = tensor(p.batch * p.seqlen_kv * p.num_heads_kv * p.head_dim_v);
  float* o = tensor(p.batch * p.seqlen_q * p.num_heads_q * p.head_dim_v);
  attune_operands operands;
  attune_operands_contiguous(&p, q, k, v, o, NULL, &operands);
  for (int i = 0; i < 3; ++i) {
    const double start = now();
    check(attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));
    printf("%.3f ms\n", 1e3 * (now() - start));
  }
  attune_plan_release(plan);
  attune_context_destroy(context);
  free(workspace), free(q), free(k), free(v), free(o);
  return 0;
}
