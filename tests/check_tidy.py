#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on what clang-tidy's short list (.clang-tidy) finds in the host's sources. It looks at the files of the last
commit and of the working tree first, then at others for as long as 40 seconds allow; --all looks at every file. Exit
code 77, aloud, without clang-tidy. Run by CTest.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import check_repo

SECONDS = 40  # no file is begun later
FOLDERS = ("generator", "cache", "runtime", "tuner")
# Files that include LLVM, which not every machine has and whose headers take a minute.
LLVM = re.compile(r"generator/compile/clang_(compiler|thread)\.cpp|runtime/cpu/no_polly\.cpp")
# Without precompiled headers, which belong to another compiler.
FLAGS = [
    "-std=c++20", "-I.", "-Itemplates", "-Iruntime/include", '-DATTUNE_VERSION="0"', '-DATTUNE_SITE_FOLDER=""',
    '-DATTUNE_SHIPPED_FOLDER=""']


def tidy_program():
    """Returns the newest clang-tidy, or None."""
    names = [f"clang-tidy-{version}" for version in range(21, 13, -1)] + ["clang-tidy"]
    return next((program for program in map(shutil.which, names) if program), None)


def sources():
    return [path for path in check_repo.files()
            if path.endswith(".cpp") and path.split("/")[0] in FOLDERS and not LLVM.fullmatch(path)]


def changed():
    """Returns files changed by the last commit and the working tree; none outside a git checkout."""
    listed = subprocess.run(["git", "diff", "--name-only", "HEAD~1"], cwd=check_repo.ROOT, capture_output=True,
                            text=True, check=False)
    return set(listed.stdout.splitlines())


def ordered(paths, first):
    """Returns `first`, then every seventh file, then the others: a sample of all folders, however far it gets."""
    rest = [path for path in paths if path not in first]
    return [path for path in paths if path in first] + [path for start in range(7) for path in rest[start::7]]


def findings(program, path):
    """Returns clang-tidy's output for one file, or ""."""
    run = subprocess.run([program, "--quiet", path, "--", *FLAGS], cwd=check_repo.ROOT, capture_output=True, text=True,
                         check=False)
    return run.stdout if run.returncode or ": warning: " in run.stdout else ""


def main():
    program = tidy_program()
    if program is None:
        print("SKIP: clang-tidy is not installed (package clang-tidy); the list of .clang-tidy is not checked")
        return 77
    paths = ordered(sources(), changed())
    end = time.monotonic() + (86400 if "--all" in sys.argv else SECONDS)

    def look(path):
        answer = findings(program, path) if time.monotonic() < end else None
        if answer:
            print(answer, flush=True)
        return answer

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        answers = list(pool.map(look, paths))
    seen = [answer for answer in answers if answer is not None]
    found = [answer for answer in seen if answer]
    print(
        f"tidy: {len(seen)} of {len(paths)} files looked at by {pathlib.Path(program).name}, {len(found)} with findings"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
