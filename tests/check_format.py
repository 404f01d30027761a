#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on a C, C++ or CUDA source that clang-format 14 would change. Exit code 77, aloud, where that version is not
installed: others break lines elsewhere. `check_format.py --mend` formats the files. Run by CTest.
"""
import pathlib
import shutil
import subprocess
import sys

import check_repo

SUFFIXES = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
VERSION = "14."


def formatter():
    """Returns the program, or None."""
    for name in ("clang-format-14", "clang-format"):
        program = shutil.which(name)
        if program and f"version {VERSION}" in subprocess.run([program, "--version"], capture_output=True, text=True,
                                                              check=False).stdout:
            return program
    return None


def unclean(program, paths):
    """Lines "path:line:column: ..." of those that clang-format would change."""
    run = subprocess.run([program, "--dry-run", "-Werror", *paths], cwd=check_repo.ROOT, capture_output=True, text=True,
                         check=False)
    found = [line for line in run.stderr.splitlines() if "[-Wclang-format-violations]" in line]
    return found if found or run.returncode == 0 else [run.stderr]


def main():
    program = formatter()
    if program is None:
        print("SKIP: clang-format 14 is not installed (package clang-format-14); formatting is not checked")
        return 77
    paths = [
        path for path in check_repo.files()
        if pathlib.PurePosixPath(path).suffix in SUFFIXES and check_repo.is_source(path)]
    if "--mend" in sys.argv:
        return subprocess.run([program, "-i", *paths], cwd=check_repo.ROOT, check=False).returncode
    found = unclean(program, paths)
    print("\n".join(found[:50]) if found else f"format: {len(paths)} files are as clang-format 14 leaves them")
    if found:
        print("mend: python3 tests/check_format.py --mend")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
