/* SPDX-License-Identifier: Apache-2.0
 * Runs a kernel that is linked in: no compiler, no store, no file. Build it with
 *   attune compile --arch cpu --out my_kernels.o \
 *       --problem dtype=fp32,head_dim=64,heads=4/2,seqlen=128
 *   cc linked.c my_kernels.o -lattune -lm
 */
#include <attune/attune.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "my_kernels.h"

enum { kLength = 128, kHeads = 4, kHeadsKv = 2, kDim = 64 };
static _Alignas(16) float q[kLength * kHeads * kDim], k[kLength * kHeadsKv * kDim],
    v[kLength * kHeadsKv * kDim];
static _Alignas(16) float o[kLength * kHeads * kDim];

static void check(attune_status status) {
  if (status == ATTUNE_OK) return;
  fprintf(stderr, "%s: %s\n", attune_status_name(status), attune_last_error());
  exit(1);
}

/* Returns element d of row 0, head 0, computed in double. */
static double expected(int d) {
  double sum = 0, o_d = 0;
  for (int j = 0; j < kLength; ++j) {
    double s = 0;
    for (int i = 0; i < kDim; ++i) s += (double)q[i] * k[j * kHeadsKv * kDim + i];
    const double p = exp(s / sqrt(kDim));
    sum += p;
    o_d += p * v[j * kHeadsKv * kDim + d];
  }
  return o_d / sum;
}

int main(void) {
  attune_memory_bundle kernels = my_kernels_bundle();
  attune_context_options options;
  attune_context_options_init(&options);
  options.target = "cpu";
  options.store = "";
  options.no_jit = 1;
  options.memory_bundles = &kernels;
  options.num_memory_bundles = 1;
  attune_context* context;
  check(attune_context_create(&options, &context));

  attune_problem problem;
  check(attune_problem_parse("dtype=fp32,head_dim=64,heads=4/2,seqlen=128", &problem));
  attune_plan* plan;
  check(attune_plan_get(context, &problem, NULL, &plan));
  attune_plan_info info = {.size = sizeof info};
  check(attune_plan_get_info(plan, &info));
  void* workspace = aligned_alloc(256, (info.workspace_bytes + 256) / 256 * 256);
  check(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
  for (int i = 0; i < kLength * kHeads * kDim; ++i) q[i] = (float)(i % 17) / 8 - 1;
  for (int i = 0; i < kLength * kHeadsKv * kDim; ++i)
    k[i] = (float)(i % 13) / 6 - 1, v[i] = (float)(i % 11) / 5 - 1;
  attune_operands operands;
  attune_operands_contiguous(&problem, q, k, v, o, NULL, &operands);
  check(attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));
  double error = 0;
  for (int d = 0; d < kDim; ++d) error = fmax(error, fabs(o[d] - expected(d)));
  printf("%s from linked kernels, greatest error %.1e\n", info.kernel_template, error);
  attune_plan_release(plan);
  attune_context_destroy(context);
  free(workspace);
  return error < 1e-4 ? 0 : 1;
}
