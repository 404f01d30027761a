/* SPDX-License-Identifier: Apache-2.0
 * Dropout through the C interface, on the CPU: o follows the definition with attune_dropout_mask
 * and attune_dropout_rate, seeds are numbers or are read from addresses, and invalid arguments are
 * refused.
 */
#include <math.h>

#include "check.h"

enum { kBatch = 2, kHeads = 3, kRows = 7, kKeys = 37, kDim = 16 };
#define PROBLEM "dtype=fp32,head_dim=16,heads=3,batch=2,seqlen_q=7,seqlen_kv=37,dropout=0.3"
#define ELEMENTS ((int64_t)kBatch * kHeads * kRows * kKeys)

static float value_of(int64_t i) { return (float)((uint64_t)i * 2654435761u % 2000) / 1000 - 1; }

static void rates(void) {
  CHECK(attune_dropout_rate(0.0f) == 0.0);
  CHECK(attune_dropout_rate(0.5f) == 0.5);
  CHECK(attune_dropout_rate(0.1f) == 26 / 256.0);
  CHECK(attune_dropout_rate(0.001f) == 0.0);
  CHECK(attune_dropout_rate(0.9999f) == 255 / 256.0);
  for (int i = 0; i < 3; ++i) {
    const float bad[] = {-0.1f, 1.0f, NAN};
    CHECK(attune_dropout_rate(bad[i]) == -1);
    CHECK(strstr(attune_last_error(), "must be at least 0, below 1") != NULL);
  }
}

static void masks(void) {
  static uint8_t a[ELEMENTS], b[ELEMENTS];
  CHECK_OK(attune_dropout_mask(0.3f, 5, 9, kBatch, kHeads, kRows, kKeys, a));
  int64_t kept = 0;
  for (int64_t i = 0; i < ELEMENTS; ++i) {
    CHECK(a[i] <= 1);
    kept += a[i];
  }
  CHECK(fabs((double)kept / ELEMENTS - 0.7) < 0.05);
  const struct {
    uint64_t seed, offset;
  } kOthers[] = {{6, 9}, {5, 10}, {5 + (1ull << 40), 9}, {5, 9 + (1ull << 40)}};
  for (int i = 0; i < 4; ++i) {
    CHECK_OK(attune_dropout_mask(0.3f, kOthers[i].seed, kOthers[i].offset, kBatch, kHeads, kRows,
                                 kKeys, b));
    CHECK(memcmp(a, b, sizeof a) != 0);
  }
  /* Equal seeds keep equal positions. */
  CHECK_OK(attune_dropout_mask(0.3f, 5, 9, kBatch, kHeads, kRows, kKeys, b));
  CHECK(memcmp(a, b, sizeof a) == 0);
  CHECK_OK(attune_dropout_mask(0, 5, 9, 1, 1, kRows, kKeys, b));
  for (int i = 0; i < kRows * kKeys; ++i) CHECK(b[i] == 1);
  CHECK_OK(attune_dropout_mask(0.3f, 5, 9, 1, 1, 0, kKeys, NULL));
  CHECK_REFUSED(attune_dropout_mask(0.3f, 5, 9, 1, 1, 1, 1, NULL), ATTUNE_INVALID_ARGUMENT,
                "keep is a null pointer");
  CHECK_REFUSED(attune_dropout_mask(1, 5, 9, 1, 1, 1, 1, a), ATTUNE_INVALID_ARGUMENT,
                "dropout is 1; must be");
  CHECK_REFUSED(attune_dropout_mask(0.3f, 5, 9, 1, -1, 1, 1, a), ATTUNE_INVALID_ARGUMENT,
                "num_heads_q is -1");
  CHECK_REFUSED(attune_dropout_mask(0.3f, 5, 9, 1 << 30, 1 << 30, 1 << 30, 1, a),
                ATTUNE_INVALID_ARGUMENT, "seqlen_q is");
}

/* softmax(q k^T / 4) with dropped weights, times v. */
static double worst_error(const attune_operands* x, const uint8_t* keep) {
  double worst = 0;
  const float *q = x->q.data, *k = x->k.data, *v = x->v.data, *o = x->o.data;
  for (int b = 0; b < kBatch; ++b)
    for (int h = 0; h < kHeads; ++h)
      for (int i = 0; i < kRows; ++i) {
        double weights[kKeys], sum = 0;
        for (int j = 0; j < kKeys; ++j) {
          double dot = 0;
          for (int d = 0; d < kDim; ++d)
            dot += (double)q[((b * kRows + i) * kHeads + h) * kDim + d] *
                   k[((b * kKeys + j) * kHeads + h) * kDim + d];
          sum += weights[j] = exp(dot / 4);
        }
        for (int d = 0; d < kDim; ++d) {
          double wanted = 0;
          for (int j = 0; j < kKeys; ++j)
            wanted += keep[((b * kHeads + h) * kRows + i) * kKeys + j] * weights[j] *
                      v[((b * kKeys + j) * kHeads + h) * kDim + d];
          wanted /= sum * (1 - attune_dropout_rate(0.3f));
          worst = fmax(worst, fabs(wanted - o[((b * kRows + i) * kHeads + h) * kDim + d]));
        }
      }
  return worst;
}

static float* tensor(int64_t count, int64_t first) {
  float* made = aligned((size_t)count * sizeof(float));
  for (int64_t i = 0; i < count; ++i) made[i] = value_of(i + first);
  return made;
}

static void runs(attune_context* context) {
  static uint8_t keep[ELEMENTS];
  attune_problem problem;
  attune_plan* plan;
  attune_plan_info info = {.size = sizeof info};
  attune_operands x;
  CHECK_OK(attune_problem_parse(PROBLEM, &problem));
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  CHECK_OK(attune_plan_get_info(plan, &info));
  CHECK(strcmp(info.kernel_template, "prefill_cpu") == 0);
  float *q = tensor(kBatch * kRows * kHeads * kDim, 0),
        *k = tensor(kBatch * kKeys * kHeads * kDim, 1000),
        *v = tensor(kBatch * kKeys * kHeads * kDim, 5000),
        *o = tensor(kBatch * kRows * kHeads * kDim, 9000);
  char* workspace = aligned(info.workspace_bytes);
  CHECK_OK(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
  CHECK_OK(attune_operands_contiguous(&problem, q, k, v, o, NULL, &x));
  CHECK_REFUSED(attune_run(plan, &x, workspace, info.workspace_bytes, NULL),
                ATTUNE_INVALID_ARGUMENT, "operands->dropout is null");
  attune_dropout_operands part = {.size = sizeof part, .row0 = 5};
  x.dropout = &part;
  CHECK_REFUSED(attune_run(plan, &x, workspace, info.workspace_bytes, NULL),
                ATTUNE_INVALID_ARGUMENT, "operands->dropout->row0 is 5; must be a multiple of 16");
  part.row0 = 0, part.head0 = -1;
  CHECK_REFUSED(attune_run(plan, &x, workspace, info.workspace_bytes, NULL),
                ATTUNE_INVALID_ARGUMENT, "operands->dropout->head0 is -1; must be");
  uint64_t added[2] = {1000, 1ull << 33}, state[2] = {0, 0};
  attune_dropout_operands dropout = {.size = sizeof dropout, .seed = ~0ull, .offset = 3};
  x.dropout = &dropout;
  for (int with_addresses = 0; with_addresses < 2; ++with_addresses) {
    if (with_addresses)
      dropout.seed_address = added, dropout.offset_address = added + 1, dropout.state = state;
    CHECK_OK(attune_run(plan, &x, workspace, info.workspace_bytes, NULL));
    const uint64_t seed = with_addresses ? 999 : ~0ull,
                   offset = with_addresses ? 3 + (1ull << 33) : 3;
    CHECK_OK(attune_dropout_mask(0.3f, seed, offset, kBatch, kHeads, kRows, kKeys, keep));
    CHECK(worst_error(&x, keep) < 1e-5);
    if (with_addresses) CHECK(state[0] == seed && state[1] == offset);
  }
  dropout.seed_address = (const uint64_t*)((const char*)added + 4);
  CHECK_REFUSED(attune_run(plan, &x, workspace, info.workspace_bytes, NULL),
                ATTUNE_INVALID_ARGUMENT, "operands->dropout->seed_address is at address");
  attune_plan_release(plan);
  free(q), free(k), free(v), free(o), free(workspace);
}

int main(void) {
  rates();
  masks();
  attune_context* context = cpu_context();
  runs(context);
  attune_context_destroy(context);
  return finish();
}
