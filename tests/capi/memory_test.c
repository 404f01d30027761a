/* SPDX-License-Identifier: Apache-2.0
 * Memory must not grow with the number of lengths. Measures what 10,000 lengths add beyond the
 * first 100, in a process that plans, runs and releases each.
 */
#include <unistd.h>

#include "check.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INSTRUMENTED 1
#endif

static double resident_mb(void) {
  long pages = 0, resident = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  CHECK(file && fscanf(file, "%ld %ld", &pages, &resident) == 2);
  if (file) fclose(file);
  return (double)resident * (double)sysconf(_SC_PAGESIZE) / (1 << 20);
}

/* Grows to the largest size that a plan needs, as in a program. */
static struct {
  char* data;
  size_t bytes;
} workspace;

static void run_once(const attune_plan* plan, const attune_problem* problem, float* in,
                     float* out) {
  attune_plan_info info;
  attune_operands operands;
  info.size = sizeof info;
  CHECK_OK(attune_plan_get_info(plan, &info));
  if (info.workspace_bytes > workspace.bytes) {
    free(workspace.data);
    workspace.data = aligned(info.workspace_bytes);
    workspace.bytes = info.workspace_bytes;
  }
  CHECK_OK(attune_workspace_init(plan, workspace.data, workspace.bytes, NULL));
  attune_operands_contiguous(problem, in, in, in, out, NULL, &operands);
  CHECK_OK(attune_run(plan, &operands, workspace.data, workspace.bytes, NULL));
}

int main(void) {
  enum { kFirst = 100, kLengths = 10000, kHeads = 2, kHeadDim = 32, kLongestRun = 500 };
  attune_context* context = cpu_context();
  const size_t bytes = kLongestRun * kHeads * kHeadDim * sizeof(float);
  float *const in = aligned(bytes), *const out = aligned(bytes);
  double before = 0;
  for (int length = 1; length <= kLengths; ++length) {
    attune_problem problem;
    attune_plan* plan;
    char text[128];
    snprintf(text, sizeof text, "dtype=fp32,head_dim=%d,heads=%d,seqlen=%d,mask=causal_top_left",
             kHeadDim, kHeads, length);
    CHECK_OK(attune_problem_parse(text, &problem));
    CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
    if (!plan) return finish();
    if (length <= kLongestRun && length % 25 == 0) run_once(plan, &problem, in, out);
    attune_plan_release(plan);
    if (length == kFirst) before = resident_mb();
  }
  const double grown = resident_mb() - before;
  printf("%d lengths add %.1f MB beyond the first %d\n", kLengths, grown, kFirst);
#ifndef INSTRUMENTED
  CHECK(grown < 20);
#endif
  free(workspace.data), free(in), free(out);
  attune_context_destroy(context);
  return finish();
}
