#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks programs and libraries: no library path below the current directory, no binding and no writable tables after
loading, and stack guards in the code. Usage: hardening_test.py FILE..."""
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def faults(file):
    dynamic = output("readelf", "-dW", file)
    for path in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic):
        yield from (f"looks for libraries in \"{folder}\", which is below the current directory"
                    for folder in path.split(":") if not folder.startswith(("/", "$ORIGIN")))
    if not re.search(r"\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*\bNOW\b", dynamic):
        yield "is bound while it runs (no -z now)"
    if "GNU_RELRO" not in output("readelf", "-lW", file):
        yield "has tables that can be written after loading (no -z relro)"
    if "__stack_chk_fail" not in output("nm", "-D", file):
        yield "has no stack guards (no -fstack-protector-strong)"


def main():
    found = [f"{file}: {fault}" for file in sys.argv[1:] for fault in faults(file)]
    print("\n".join(found) if found else f"{len(sys.argv) - 1} files are as they should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
