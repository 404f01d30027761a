/* SPDX-License-Identifier: Apache-2.0
 * A program of attune 0.2: fills the structs of its header, runs causal attention on the CPU, and
 * compares the result with its own. upgrade_test.py runs it on the present library.
 */
#include "attune_0_2.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { kRows = 48, kHeads = 4, kHeadsKv = 2, kDim = 64 };

static float q[kRows * kHeads * kDim], k[kRows * kHeadsKv * kDim], v[kRows * kHeadsKv * kDim];
static float o[kRows * kHeads * kDim], lse[kHeads * kRows];

static void check(attune_status status) {
  if (status == ATTUNE_OK) return;
  fprintf(stderr, "%s: %s\n", attune_status_name(status), attune_last_error());
  exit(1);
}

static void fill(float* data, size_t count, float step) {
  for (size_t i = 0; i < count; ++i) data[i] = sinf(step * (float)i);
}

/* Returns the largest difference of o and lse from attention in double. */
static double error_of(void) {
  double worst = 0;
  for (int row = 0; row < kRows; ++row)
    for (int head = 0; head < kHeads; ++head) {
      const int kv = head / (kHeads / kHeadsKv);
      double sum = 0, out[kDim] = {0};
      for (int key = 0; key <= row; ++key) {
        double score = 0;
        for (int d = 0; d < kDim; ++d)
          score +=
              (double)q[(row * kHeads + head) * kDim + d] * k[(key * kHeadsKv + kv) * kDim + d];
        const double weight = exp(score / sqrt(kDim));
        sum += weight;
        for (int d = 0; d < kDim; ++d) out[d] += weight * v[(key * kHeadsKv + kv) * kDim + d];
      }
      for (int d = 0; d < kDim; ++d)
        worst = fmax(worst, fabs(out[d] / sum - o[(row * kHeads + head) * kDim + d]));
      worst = fmax(worst, fabs(log(sum) - lse[head * kRows + row]));
    }
  return worst;
}

int main(void) {
  attune_context_options options;
  attune_context* context;
  attune_problem problem;
  attune_operands operands;
  attune_plan* plan;
  attune_plan_info info = {.size = sizeof info};
  attune_context_options_init(&options);
  options.target = "cpu";
  check(attune_context_create(&options, &context));
  attune_problem_init(&problem);
  problem.dtype = ATTUNE_FP32;
  problem.mask = ATTUNE_CAUSAL_BOTTOM_RIGHT;
  problem.head_dim_qk = problem.head_dim_v = kDim;
  problem.num_heads_q = kHeads;
  problem.num_heads_kv = kHeadsKv;
  problem.batch = 1;
  problem.seqlen_q = problem.seqlen_kv = kRows;
  check(attune_operands_contiguous(&problem, q, k, v, o, lse, &operands));
  check(attune_plan_get(context, &problem, &operands, &plan));
  check(attune_plan_get_info(plan, &info));
  void* const workspace = aligned_alloc(256, (info.workspace_bytes + 256) / 256 * 256);
  check(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
  fill(q, sizeof q / sizeof *q, 0.1f);
  fill(k, sizeof k / sizeof *k, 0.7f);
  fill(v, sizeof v / sizeof *v, 0.3f);
  check(attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));
  const double error = error_of();
  printf("%s differs by %g\n", info.kernel_template, error);
  attune_plan_release(plan);
  attune_context_destroy(context);
  free(workspace);
  return error < 1e-5 ? 0 : 1;
}
