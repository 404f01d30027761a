/* SPDX-License-Identifier: Apache-2.0
 * FIFOs in the place of the files that a context opens: each is refused by name or passed over, and
 * no call hangs. An alarm ends the test that does.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char fifo[64];

static attune_context_options cpu_options(void) {
  attune_context_options options;
  attune_context_options_init(&options);
  options.target = "cpu:1";
  options.store = "";
  options.no_jit = 1;
  return options;
}

static void check_refused(const attune_context_options* options, const char* words) {
  attune_context* context = NULL;
  CHECK_REFUSED(attune_context_create(options, &context), ATTUNE_IO_ERROR, words);
}

static void ask(const attune_context_options* options) {
  attune_context* context = NULL;
  attune_problem problem;
  attune_plan* plan;
  CHECK_OK(attune_context_create(options, &context));
  CHECK_OK(attune_problem_parse("dtype=fp32,head_dim=64,heads=4,seqlen=64", &problem));
  CHECK_REFUSED(attune_plan_get(context, &problem, NULL, &plan), ATTUNE_WOULD_COMPILE, "no_jit");
  attune_context_destroy(context);
}

int main(void) {
  attune_context_destroy(cpu_context()); /* or skips */
  char folder[] = "/tmp/attune-prepared-XXXXXX";
  CHECK(mkdtemp(folder) != NULL);
  snprintf(fifo, sizeof fifo, "%s/fifo", folder);
  CHECK(mkfifo(fifo, 0600) == 0);
  alarm(100);

  attune_context_options options = cpu_options();
  options.pin = fifo;
  check_refused(&options, "fifo cannot be read: it is a FIFO, not a regular file");
  options = cpu_options();
  const char* bundles[] = {fifo};
  options.bundles = bundles;
  options.num_bundles = 1;
  check_refused(&options, "it is a FIFO, not a regular file");
  options = cpu_options();
  options.capture_file = fifo;
  ask(&options);
  options = cpu_options();
  options.store = fifo;
  const char* more[] = {fifo};
  options.more_stores = more;
  options.num_more_stores = 1;
  ask(&options);

  setenv("ATTUNE_PIN", fifo, 1);
  options = cpu_options();
  check_refused(&options, "it is a FIFO");
  unsetenv("ATTUNE_PIN");
  setenv("ATTUNE_CAPTURE", fifo, 1);
  ask(&options);
  alarm(0);
  unlink(fifo);
  rmdir(folder);
  return finish();
}
