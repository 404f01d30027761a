/* SPDX-License-Identifier: Apache-2.0
 * A named store that cannot be used is reported once per process: through the log function, or
 * without one on standard error, which is a file here. Missing stores and default stores are not
 * reported.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static char folder[] = "/tmp/attune-named-store-XXXXXX";
static char written[4096]; /* what went to standard error */
static int heard;          /* messages AT106 of the log function */

/* The path stays valid for seven more calls. */
static const char* in_folder(const char* name) {
  static char paths[8][256];
  static int calls;
  char* path = paths[calls++ % 8];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}

static const char* store_of_others(const char* name) {
  const char* path = in_folder(name);
  FILE* file = fopen(path, "w");
  CHECK(file != NULL);
  fputs("anything", file);
  fclose(file);
  CHECK(chmod(path, 0666) == 0);
  return path;
}

static void listen(void* user, int level, const char* message) {
  (void)user;
  if (strncmp(message, "AT106: ", 7) == 0 && level == 2) ++heard;
}

/* Makes a context, reloads it, and keeps what that writes to standard error. */
static void make(const char* store, attune_log_function log) {
  attune_context_options options;
  attune_context* context = NULL;
  attune_context_options_init(&options);
  options.target = "cpu:1";
  options.store = store;
  options.log = log;
  const int former = dup(2), file = open(in_folder("stderr"), O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(dup2(file, 2) == 2);
  const attune_status status = attune_context_create(&options, &context);
  const attune_status again = context ? attune_context_reload(context) : ATTUNE_OK;
  attune_context_destroy(context);
  CHECK(dup2(former, 2) == 2);
  const ssize_t bytes = pread(file, written, sizeof written - 1, 0);
  written[bytes > 0 ? bytes : 0] = '\0';
  close(file);
  close(former);
  CHECK_OK(status);
  CHECK_OK(again);
}

static void check_said(const char* store, const char* why) {
  CHECK(strncmp(written, "attune: AT106: ", 15) == 0);
  CHECK(strstr(written, store) != NULL && strstr(written, why) != NULL);
  CHECK(strchr(written, '\n') == written + strlen(written) - 1); /* one line */
}

int main(void) {
  attune_context_destroy(cpu_context()); /* or skips */
  CHECK(mkdtemp(folder) != NULL);
  unsetenv("ATTUNE_LOG");
  make(store_of_others("named.db"), NULL);
  check_said("named.db", "others can write it");
  make(in_folder("named.db"), NULL);
  CHECK(strcmp(written, "") == 0); /* said before */

  setenv("ATTUNE_STORE", store_of_others("environment.db"), 1);
  make(NULL, NULL);
  check_said("environment.db", "others can write it");
  setenv("ATTUNE_STORE", "", 1);
  setenv("ATTUNE_SITE_STORES", store_of_others("site.db"), 1);
  make(in_folder("mine.db"), NULL);
  check_said("site.db", "others can write it");
  unsetenv("ATTUNE_SITE_STORES");

  make(store_of_others("logged.db"), listen);
  CHECK(heard == 1 && strcmp(written, "") == 0);
  setenv("ATTUNE_LOG", "error", 1);
  make(store_of_others("asked.db"), NULL);
  CHECK(strcmp(written, "") == 0); /* a warning, and errors alone are asked for */
  unsetenv("ATTUNE_LOG");

  make(in_folder("none.db"), NULL);
  CHECK(strcmp(written, "") == 0);
  make("", NULL);
  CHECK(strcmp(written, "") == 0);
  setenv("XDG_CACHE_HOME", folder, 1);
  unsetenv("ATTUNE_STORE");
  CHECK(mkdir(in_folder("attune"), 0700) == 0);
  store_of_others("attune/store.db");
  make(NULL, NULL);
  CHECK(strcmp(written, "") == 0); /* the default place: nobody named it */

  setenv("ATTUNE_TRUST", "/", 1);
  attune_context* context = NULL;
  CHECK_REFUSED(attune_context_create(NULL, &context), ATTUNE_INVALID_ARGUMENT,
                "ATTUNE_TRUST has \"/\"");
  return finish();
}
