/* SPDX-License-Identifier: Apache-2.0
 * Every allocation of the C interface fails once: each alone, then each with all after it. Stored
 * kernels run, nothing compiles. No failure may end the process. Each gives a status, and the same
 * call works when memory is back. Each failure happens in a separate child, so that work done once
 * per process fails too. Usage: alloc_faults_test BUNDLE PACKED_BUNDLE STORE STEP
 * (alloc_faults_test.sh): every STEPth allocation, 1 for all.
 */
#include "failing_memory.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PROBLEM "dtype=fp32,head_dim=32,heads=2,seqlen=32"

static const char *bundle, *store;
static long step;

static attune_status open_context(attune_context** context) {
  attune_context_options options;
  attune_context_options_init(&options);
  options.target = "cpu:2";
  options.store = store;
  options.bundles = &bundle;
  options.num_bundles = bundle[0] != 0;
  return attune_context_create(&options, context);
}

/* The calls in which allocations fail. Memory is back after each call. */
enum call { CREATE, PARSE, PROGRAM, PLAN, RUN, EXPLAIN, RELOAD, RELEASE, DESTROY, CALLS };
static const char* const kNames[CALLS + 1] = {"create",  "parse",  "program", "plan",    "run",
                                              "explain", "reload", "release", "destroy", "none"};

/* One run of all calls. In the call `failing`, the Nth allocation fails. */
struct trip {
  enum call failing;
  long n;
  int for_ever;
  long asked; /* how many allocations the failing call made */
};

/* Makes memory fail if `call` is the failing call. Returns 1 then; ends() restores memory. */
static int starts(struct trip* trip, enum call call) {
  if (trip->failing != call) return 0;
  memory_fails_at(trip->n, trip->for_ever);
  return 1;
}
static void ends(struct trip* trip) { trip->asked = memory_is_back(); }

#define TRY(trip, call, expression)                                                             \
  do {                                                                                          \
    const int is_failing = starts(trip, call);                                                  \
    const attune_status tried = (expression);                                                   \
    if (is_failing) ends(trip);                                                                 \
    if (tried != ATTUNE_OK && attune_last_error()[0] == 0) {                                    \
      fprintf(stderr, "%s, allocation %ld: a status without words\n", kNames[call], (trip)->n); \
      ++failures;                                                                               \
    }                                                                                           \
    if (tried != ATTUNE_OK) {                                                                   \
      CHECK(is_failing);                                                                        \
      CHECK_OK(expression);                                                                     \
    }                                                                                           \
  } while (0)

static void parse_a_program(struct trip* trip) {
  const attune_program_desc description = {
      .size = sizeof description,
      .text =
          "// capture slopes: fp32[1]\nfloat a = exp2(score) * 3; return a > 2 && kv_idx < "
          "q_idx ? a - slopes[head] : tanh(score) + float(kv_idx % 7);"};
  const attune_program* program = NULL;
  char warning[100];
  TRY(trip, PROGRAM, attune_program_parse(&description, &program, warning, sizeof warning));
}

static void run(struct trip* trip, attune_plan* plan, const attune_problem* problem) {
  attune_plan_info info = {.size = sizeof info};
  attune_plan_get_info(plan, &info);
  attune_operands operands;
  float* q = aligned(4 << 12);
  float* o = aligned(4 << 12);
  void* workspace = aligned((size_t)info.workspace_bytes);
  attune_operands_contiguous(problem, q, q, q, o, NULL, &operands);
  CHECK_OK(attune_workspace_init(plan, workspace, info.workspace_bytes, NULL));
  TRY(trip, RUN, attune_run(plan, &operands, workspace, info.workspace_bytes, NULL));
  free(q);
  free(o);
  free(workspace);
}

static void go(struct trip* trip) {
  attune_context* context = NULL;
  attune_problem problem;
  attune_plan* plan = NULL;
  TRY(trip, CREATE, open_context(&context));
  TRY(trip, PARSE, attune_problem_parse(PROBLEM, &problem));
  parse_a_program(trip);
  TRY(trip, PLAN, attune_plan_get(context, &problem, NULL, &plan));
  if (context == NULL || plan == NULL) return;
  run(trip, plan, &problem);
  const int explains = starts(trip, EXPLAIN);
  attune_plan_explain(plan);
  if (explains) ends(trip);
  CHECK(strlen(attune_plan_explain(plan)) > 20);
  TRY(trip, RELOAD, attune_context_reload(context));
  const int releases = starts(trip, RELEASE);
  attune_plan_release(plan);
  if (releases) ends(trip);
  plan = NULL;
  CHECK_OK(attune_plan_get(context, &problem, NULL, &plan));
  run(trip, plan, &problem);
  const int destroys = starts(trip, DESTROY);
  attune_context_destroy(context);
  attune_plan_release(plan);
  if (destroys) ends(trip);
}

/* How a child ends. */
enum end { FINE, WRONG, PAST_THE_LAST, DEAD };

static enum end in_a_child(struct trip trip) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    failures = 0;
    alarm(60);
    go(&trip);
    _exit(failures > 0 ? WRONG : trip.asked < trip.n ? PAST_THE_LAST : FINE);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) < DEAD) return (enum end)WEXITSTATUS(status);
  if (WIFSIGNALED(status))
    fprintf(stderr, "%s, allocation %ld%s: ended by signal %d\n", kNames[trip.failing], trip.n,
            trip.for_ever ? " and all after it" : "", WTERMSIG(status));
  return DEAD;
}

static void walk(const char* from, enum call first, enum call last) {
  long tried = 0, dead = 0, wrong = 0;
  for (int call = first; call <= (int)last; ++call)
    for (int for_ever = 0; for_ever < 2; ++for_ever)
      for (long n = 1;; n += step) {
        const enum end end = in_a_child((struct trip){(enum call)call, n, for_ever, 0});
        if (end == PAST_THE_LAST) break;
        ++tried;
        dead += end == DEAD;
        wrong += end == WRONG;
        if (dead > 50) {
          fprintf(stderr, "too many deaths to go on\n");
          break;
        }
      }
  printf("%s: %ld allocations failed, %ld processes ended, %ld answers wrong\n", from, tried, dead,
         wrong);
  CHECK(dead == 0);
  CHECK(wrong == 0);
  CHECK(tried * step > 500);
}

int main(int argc, char** argv) {
  if (argc != 5 || (step = atol(argv[4])) < 1) return 2;
  setenv("ATTUNE_NO_JIT", "1", 1);
  const char* const names[] = {"a bundle", "a packed bundle", "a store"};
  for (int from = 0; from < 3; ++from) {
    bundle = from < 2 ? argv[1 + from] : "";
    store = from < 2 ? "" : argv[3];
    struct trip whole = {CALLS, 0, 0, 0};
    if (in_a_child(whole) != FINE) {
      fprintf(stderr, "without a failure %s does not serve\n", names[from]);
      return 1;
    }
    if (from != 1) {
      walk(names[from], CREATE, DESTROY);
    } else { /* it differs where libzstd is looked for, and where an image is unpacked */
      walk(names[from], CREATE, CREATE);
      walk(names[from], PLAN, PLAN);
    }
  }
  return finish();
}
