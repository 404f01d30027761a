/* SPDX-License-Identifier: Apache-2.0
 * Compiles in a program with few resources: a thread with the smallest stack, and address spaces
 * too small for LLVM. Each call returns a plan or a status and never ends the process.
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define PROBLEM "dtype=fp32,head_dim=32,heads=2,seqlen=40"

static attune_status get_a_plan(attune_context* context) {
  attune_problem problem;
  attune_plan* plan = NULL;
  CHECK_OK(attune_problem_parse(PROBLEM, &problem));
  const attune_status status = attune_plan_get(context, &problem, NULL, &plan);
  attune_plan_release(plan);
  return status;
}

static void* on_a_small_stack(void* context) {
  CHECK_OK(get_a_plan(context));
  return NULL;
}

static void a_small_stack_is_enough(void) {
  attune_context* context = cpu_context();
  pthread_attr_t attributes;
  pthread_t thread;
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, 64 << 10) == 0);
  CHECK(pthread_create(&thread, &attributes, on_a_small_stack, context) == 0);
  pthread_join(thread, NULL);
  attune_context_destroy(context);
}

static size_t address_space(void) {
  size_t pages = 0;
  FILE* file = fopen("/proc/self/statm", "r");
  if (file == NULL || fscanf(file, "%zu", &pages) != 1) pages = 0;
  if (file != NULL) fclose(file);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* In a child: compiles with `spare` bytes of address space left. Exit status 0: a plan; 1: refused
 * in words, twice alike; 2: anything else. */
static int compile_with(size_t spare) {
  const size_t now = address_space();
  const struct rlimit limit = {now + spare, now + spare};
  if (now == 0 || setrlimit(RLIMIT_AS, &limit) != 0) return 2;
  attune_context_options options;
  attune_context* context = NULL;
  attune_context_options_init(&options);
  options.target = "cpu:1";
  options.store = "";
  attune_status status = attune_context_create(&options, &context);
  if (status == ATTUNE_OK) {
    status = get_a_plan(context);
    if (status != ATTUNE_OK && get_a_plan(context) == ATTUNE_OK) return 2;
  }
  if (status == ATTUNE_OK) return 0;
  fprintf(stderr, "%zu MB: %s: %s\n", spare >> 20, attune_status_name(status), attune_last_error());
  return (status == ATTUNE_COMPILE_ERROR || status == ATTUNE_OUT_OF_MEMORY) &&
                 attune_last_error()[0] != '\0'
             ? 1
             : 2;
}

/* From almost nothing to enough: memory runs out in opening the plugin, opening clang, compiling.
 */
static void too_little_memory_is_said(void) {
  static const size_t kMegabytes[] = {4, 200, 252, 268, 276, 284, 292, 300, 320, 1024};
  int refused = 0, served = 0;
  for (size_t i = 0; i < sizeof kMegabytes / sizeof *kMegabytes; ++i) {
    const size_t megabytes = kMegabytes[i];
    const pid_t child = fork();
    if (child == 0) _exit(compile_with(megabytes << 20));
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) > 1) {
      ++failures;
      fprintf(stderr, "with %zu MB the child ended with status %x\n", megabytes, (unsigned)status);
    } else {
      ++*(WEXITSTATUS(status) == 0 ? &served : &refused);
    }
  }
  fprintf(stderr, "%d limits refused, %d served\n", refused, served);
  CHECK(refused > 0 && served > 0);
}

int main(void) {
  too_little_memory_is_said(); /* first: the children must find nothing opened */
  a_small_stack_is_enough();
  return finish();
}
