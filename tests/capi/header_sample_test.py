#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The samples that open attune.h, attune_cache_types.h and attune.hpp compile and run as they are written there: a
reader pastes them. Headers are free of warnings.

Usage: header_sample_test.py INCLUDE_DIR LIBRARY CC CXX
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# The reader's part of the samples: operands, lists, a stream, and memory for the workspace. The workspace is dirty.
YOURS = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
static void* allocate(size_t bytes) {
  void* memory = aligned_alloc(256, bytes / 256 * 256 + 256);
  if (memory) memset(memory, 255, bytes);
  return memory;
}
static unsigned short* ones(size_t count) {
  unsigned short* data = (unsigned short*)allocate(count * 2);
  for (size_t i = 0; i < count; ++i) data[i] = 0x3f80; /* bf16 */
  return data;
}
int main(void) {
  const size_t q_count = ROWS * 32 * 128, kv_count = KEYS * 8 * 128;
  void *q = ones(q_count), *k = ones(kv_count), *v = ones(kv_count), *stream = NULL;
  unsigned short* o = (unsigned short*)allocate(q_count * 2);
  int32_t kv_lengths[4] = {1, 100, 4000, 4096}, page_table[4 * 256];
  for (int i = 0; i < 4 * 256; ++i) page_table[i] = 4 * 256 - 1 - i;
  (void)stream, (void)kv_lengths, (void)page_table;
SAMPLE
  for (size_t i = 0; i < q_count; ++i) /* a mean of ones */
    if (o[i] != 0x3f80) return 1;
  return 0;
}
"""


def sample(header, comment):
    """Returns the indented lines of the opening comment, unchanged. If it contains more than the sample, returns only
    the lines between "Sample:" and "Layout"."""
    opening = header.read_text().split("#ifndef" if comment == " *" else "#pragma once")[0]
    opening = opening.partition("* Sample:")[2].partition("* Layout")[0] or opening
    lines = re.findall(rf"^{re.escape(comment)}   (\s*\S.*)$", opening, re.M)
    if not any("workspace" in line and "init" in line for line in lines):
        sys.exit(f"{header.name}: the sample does not prepare its workspace")
    return "\n".join(lines)


def check_warnings(include, cc, cxx):
    """Compiles the headers with the warnings of strict programs, and not as system headers."""
    strict = [
        "-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Werror", "-fsyntax-only",
        f"-I{include}", "-"]
    for compiler, header in (([cc, "-std=c11", "-x",
                               "c"], "attune.h"), ([cc, "-std=c11", "-x", "c"], "attune_cascade.h"),
                             ([cc, "-std=c11", "-x", "c"], "attune_group.h"), ([
                                   cxx, "-std=c++17", "-Wold-style-cast", "-x", "c++"], "attune.hpp")):
        subprocess.run(compiler + strict, input=f"#include <attune/{header}>\n", text=True, check=True)


def main():
    include, library, cc, cxx = sys.argv[1:]
    check_warnings(include, cc, cxx)
    library = pathlib.Path(library)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        environment = dict(os.environ, ATTUNE_STORE=str(folder / "store/store.db"), ATTUNE_LOG="warning")
        c, cpp = (" *", "sample.c", [cc, "-std=c11"]), ("//", "sample.cpp", [cxx, "-std=c++17"])
        for header, rows, keys, (comment, source, compiler) in (("attune.h", 1024, 1024, c),
                                                                ("attune_cache_types.h", 4, 4 * 4096, c),
                                                                ("attune.hpp", 1024, 1024, cpp)):
            code = sample(pathlib.Path(include) / "attune" / header, comment)
            whole = "attune.hpp" if header == "attune.hpp" else "attune.h"
            text = YOURS.replace("ROWS", str(rows)).replace("KEYS", str(keys)).replace("SAMPLE", code)
            (folder / source).write_text(f"#include <attune/{whole}>\n" + text)
            program = folder / "sample"
            subprocess.run(
                compiler + [
                    "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", f"-I{include}",
                    str(folder / source), "-o",
                    str(program),
                    str(library), f"-Wl,-rpath,{library.parent}"], check=True)
            done = subprocess.run([str(program)], env=environment, capture_output=True, text=True, timeout=200,
                                  check=False)
            if "needs clang" in done.stderr or "no CPU kernel can be compiled here" in done.stderr:
                print(f"SKIP: {header}: there is no device here")
                sys.exit(77)
            if done.returncode != 0:
                sys.exit(f"{header}: the sample ended with {done.returncode}\n{done.stderr}")
            print(f"{header}: the sample compiles and runs")


if __name__ == "__main__":
    main()
