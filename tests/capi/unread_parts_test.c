/* SPDX-License-Identifier: Apache-2.0
 * Operands that a plan does not read are refused by name. NULL, older structs without these
 * operands, and an empty list of captures are not refused.
 */
#include <stddef.h>

#include "check.h"

enum { kBytes = 2 * 8 * 16 * sizeof(float) };

static char* workspace;
static size_t workspace_bytes;

static attune_status run(attune_plan* plan, const attune_operands* operands) {
  return attune_run(plan, operands, workspace, workspace_bytes, NULL);
}

static void part_is_refused(attune_plan* plan, const attune_operands* given, size_t offset,
                            const void* part, const char* words) {
  attune_operands operands = *given;
  memcpy((char*)&operands + offset, &part, sizeof part);
  CHECK_REFUSED(run(plan, &operands), ATTUNE_INVALID_ARGUMENT, words);
  operands.size = offset; /* of a header without it */
  if (offset >= offsetof(attune_operands, cache)) CHECK_OK(run(plan, &operands));
}

int main(void) {
  attune_context* context = cpu_context();
  attune_problem problem;
  attune_plan* plan = NULL;
  attune_operands operands;
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=16,heads=2,seqlen=8", &problem));
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  attune_plan_info info = {.size = sizeof info};
  CHECK_OK(attune_plan_get_info(plan, &info));
  workspace_bytes = info.workspace_bytes;
  workspace = aligned(workspace_bytes);
  float *q = aligned(kBytes), *k = aligned(kBytes), *v = aligned(kBytes), *o = aligned(kBytes);
  CHECK_OK(attune_operands_contiguous(&problem, q, k, v, o, NULL, &operands));
  CHECK_OK(run(plan, &operands));

  const attune_dropout_operands dropout = {.size = sizeof dropout};
  const attune_gradient_operands gradients = {.size = sizeof gradients};
  const attune_cache_operands cache = {.size = sizeof cache};
  const attune_append_operands append = {.size = sizeof append};
  part_is_refused(plan, &operands, offsetof(attune_operands, dropout), &dropout,
                  "operands->dropout is given, and the problem has no dropout");
  part_is_refused(plan, &operands, offsetof(attune_operands, gradients), &gradients,
                  "operands->gradients is given, and the problem asks for no gradients");
  part_is_refused(plan, &operands, offsetof(attune_operands, cache), &cache,
                  "operands->cache is given, and the problem has no cache");
  part_is_refused(plan, &operands, offsetof(attune_operands, append), &append,
                  "operands->append is given, and the problem does not have op append_kv");

  attune_capture capture = {"slopes", q, {1}, {0}};
  attune_score_operands scores = {0};
  operands.scores = &scores;
  CHECK_OK(run(plan, &operands));
  scores.captures = &capture;
  scores.num_captures = 1;
  CHECK_REFUSED(run(plan, &operands), ATTUNE_INVALID_ARGUMENT,
                "operands->scores is given, and the problem has no score features");
  scores.num_captures = 0;
  scores.kv_position0 = 3;
  CHECK_REFUSED(run(plan, &operands), ATTUNE_INVALID_ARGUMENT, "operands->scores is given");
  attune_plan_release(plan);
  attune_context_destroy(context);
  free(q), free(k), free(v), free(o), free(workspace);
  return finish();
}
