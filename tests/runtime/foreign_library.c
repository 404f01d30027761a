// SPDX-License-Identifier: Apache-2.0
// Prints when it is loaded; foreign_code_test.py copies it to places that must not be searched.
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
  static const char text[] = "FOREIGN CODE RUNS\n";
  if (write(STDOUT_FILENO, text, sizeof text - 1) < 0) _exit(1);
}
