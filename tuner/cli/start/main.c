/* SPDX-License-Identifier: Apache-2.0
 * The program attune, whose commands are attune_program() in ../main.cpp. They are linked in. In a
 * wheel they are in libattune.so in the program's own folder, so that a wheel holds their code
 * once; the program opens no other file.
 */
#ifdef ATTUNE_WHEEL

#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char kLibrary[] = "libattune.so";

int main(int argc, char** argv) {
  char path[PATH_MAX + sizeof kLibrary];
  const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
  if (length <= 0) return perror("attune: /proc/self/exe"), 5;
  path[length] = 0;
  strcpy(strrchr(path, '/') + 1, kLibrary);
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "attune: %s\n", dlerror()), 5;
  int (*program)(int, char**);
  *(void**)&program = dlsym(library, "attune_program");
  if (program == NULL)
    return fprintf(stderr, "attune: %s is of another version: %s\n", path, dlerror()), 5;
  return program(argc, argv);
}

#else

int attune_program(int argc, char** argv);

int main(int argc, char** argv) { return attune_program(argc, argv); }

#endif
