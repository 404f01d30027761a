/* SPDX-License-Identifier: Apache-2.0
 * Tests what attune.h promises to a child after fork: it runs and releases the plans it holds,
 * whatever other threads of the parent were doing; with no other thread inside attune it may do
 * anything.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { kForks = 20, kSeqlen = 40, kCount = kSeqlen * 2 * 32 };

static atomic_int stop;

/* Requests plans, each of a new shape, until it is stopped. */
static void* keep_asking(void* context) {
  for (int seqlen = 100; !atomic_load(&stop); ++seqlen) {
    char text[128];
    attune_problem problem;
    attune_plan* plan = NULL;
    snprintf(text, sizeof text, "dtype=fp32,head_dim=%d,heads=2,seqlen=%d", 16 + seqlen % 30 * 8,
             seqlen);
    CHECK_OK(attune_problem_parse(text, &problem));
    CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
    attune_plan_release(plan);
  }
  return NULL;
}

/* With all values 2, every output is 2 whatever the scores are. */
static int runs_right(const attune_plan* plan, const attune_problem* problem) {
  attune_plan_info info = {.size = sizeof info};
  attune_operands operands;
  float* memory = aligned(4 * kCount * sizeof(float));
  for (int i = 0; i < 3 * kCount; ++i) memory[i] = 2;
  CHECK_OK(attune_plan_get_info(plan, &info));
  void* workspace = aligned(info.workspace_bytes);
  attune_operands_contiguous(problem, memory, memory + kCount, memory + 2 * kCount,
                             memory + 3 * kCount, NULL, &operands);
  CHECK_OK(attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));
  int right = 1;
  for (int i = 3 * kCount; i < 4 * kCount; ++i)
    right = right && memory[i] > 1.9999f && memory[i] < 2.0001f;
  free(memory), free(workspace);
  return right;
}

static void child_is_well(pid_t child) {
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fprintf(stderr, "the child ended with status %x (%x = it hung)\n", (unsigned)status, 14U);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void children_run_what_they_hold(attune_context* context, const attune_problem* problem) {
  attune_plan* plan;
  pthread_t thread;
  CHECK_OK(attune_plan_get(context, problem, NULL, &plan));
  CHECK(pthread_create(&thread, NULL, keep_asking, context) == 0);
  for (int i = 0; i < kForks; ++i) {
    usleep(20000);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60); /* a hang ends the child by a signal */
      const int right = runs_right(plan, problem);
      attune_plan_release(plan);
      attune_context_destroy(context);
      _exit(right && failures == 0 ? 0 : 1);
    }
    child_is_well(child);
  }
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
  attune_plan_release(plan);
}

/* A thread of the parent is making a plan at the fork. The child gets it, or a sentence why not. */
static void nobody_waits_for_threads_of_the_parent(attune_context* context) {
  pthread_t thread;
  atomic_store(&stop, 0);
  CHECK(pthread_create(&thread, NULL, keep_asking, context) == 0);
  for (int i = 0; i < kForks / 4; ++i) {
    usleep(30000);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      for (int dim = 16; dim < 256; dim += 8) { /* whichever it was making */
        char text[128];
        attune_problem problem;
        attune_plan* plan = NULL;
        snprintf(text, sizeof text, "dtype=fp32,head_dim=%d,heads=2,seqlen=100", dim);
        CHECK_OK(attune_problem_parse(text, &problem));
        const attune_status status = attune_plan_get(context, &problem, NULL, &plan);
        CHECK(status == ATTUNE_OK || strstr(attune_last_error(), "forked from") != NULL);
        if (status != ATTUNE_OK) break;
        attune_plan_release(plan);
      }
      _exit(failures == 0 ? 0 : 1);
    }
    child_is_well(child);
  }
  atomic_store(&stop, 1);
  pthread_join(thread, NULL);
}

static void a_child_of_a_quiet_parent_does_anything(attune_context* context) {
  const pid_t child = fork();
  if (child == 0) {
    attune_problem problem;
    attune_plan* plan;
    alarm(120);
    CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=32,heads=2,seqlen=40,mask=causal_top_left",
                                  &problem));
    CHECK_OK(attune_plan_get(context, &problem, NULL, &plan)); /* compiles */
    CHECK(runs_right(plan, &problem));
    attune_plan_release(plan);
    attune_context_destroy(context);
    context = cpu_context();
    CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
    CHECK(runs_right(plan, &problem));
    _exit(failures == 0 ? 0 : 1);
  }
  child_is_well(child);
}

int main(void) {
  attune_context* context = cpu_context();
  attune_problem problem;
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=32,heads=2,seqlen=40", &problem));
  children_run_what_they_hold(context, &problem);
  nobody_waits_for_threads_of_the_parent(context);
  a_child_of_a_quiet_parent_does_anything(context);
  attune_context_destroy(context);
  return finish();
}
