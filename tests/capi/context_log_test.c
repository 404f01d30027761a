/* SPDX-License-Identifier: Apache-2.0
 * Log functions of several contexts: each gets its own context's lines, to the end of that context
 * and no longer. A capture file that cannot be written makes a line for each context's first
 * problem.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "check.h"

typedef struct {
  atomic_int lines, inside;
  int slow;
} Listener;

static void nap(int milliseconds) {
  const struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
  nanosleep(&time, NULL);
}

static void listen(void* user, int level, const char* message) {
  Listener* listener = user;
  atomic_store(&listener->inside, 1);
  if (listener->slow) nap(300);
  if (level == 2 && strstr(message, "capture file") != NULL) atomic_fetch_add(&listener->lines, 1);
  atomic_store(&listener->inside, 0);
}

static attune_context* listened(Listener* listener) {
  attune_context_options options;
  attune_context* context = NULL;
  attune_context_options_init(&options);
  options.target = "cpu:1";
  options.store = "";
  options.no_jit = 1; /* nothing is compiled: asking for a plan is enough */
  options.capture_file = "/proc/nowhere/capture.jsonl";
  options.log = listen;
  options.log_user = listener;
  CHECK_OK(attune_context_create(&options, &context));
  return context;
}

static void ask(attune_context* context) {
  attune_problem problem;
  attune_plan* plan;
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=64,heads=4,seqlen=64", &problem));
  CHECK_REFUSED(attune_plan_get(context, &problem, NULL, &plan), ATTUNE_WOULD_COMPILE, "no_jit");
}

static void each_hears_its_own(void) {
  Listener a = {0}, b = {0}, c = {0};
  attune_context *first = listened(&a), *second = listened(&b), *third = listened(&c);
  ask(first);
  CHECK(a.lines == 1 && b.lines == 0 && c.lines == 0);
  attune_context_destroy(first);
  ask(second);
  CHECK(a.lines == 1 && b.lines == 1 && c.lines == 0);
  attune_context_destroy(third);
  attune_context_destroy(second);
  CHECK(a.lines == 1 && b.lines == 1 && c.lines == 0);
}

static void* ask_in_thread(void* context) {
  ask(context);
  return NULL;
}

static void destroying_waits_for_a_running_call(void) {
  Listener listener = {.slow = 1};
  attune_context* context = listened(&listener);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, ask_in_thread, context) == 0);
  while (!atomic_load(&listener.inside)) nap(1);
  attune_context_destroy(context);
  CHECK(!atomic_load(&listener.inside) && listener.lines == 1);
  pthread_join(thread, NULL);
  CHECK(listener.lines == 1);
}

int main(void) {
  attune_context_destroy(cpu_context()); /* or skips */
  each_hears_its_own();
  destroying_waits_for_a_running_call();
  return finish();
}
