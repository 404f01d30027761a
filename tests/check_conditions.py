#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the lines of templates/ that only some kernels have, and those of them that may not have a condition. Fails if
a count is above its limit in LIMITS.

A condition is `// where kX`, with a comparison or not, or `// unless kX` at the end of a line. It may name the file for
other kernels (generator/render/inliner.hpp). It belongs on #include lines, and on lines that hold one parameter of a
`__global__` function. Preprocessor directives that ask for a knob count as well. Run by CTest; `--list NAME` prints the
places.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUFFIXES = {".cu", ".cuh", ".h", ".hpp", ".cpp"}
LIMITS = {
    "conditions": 178,  # lines with a condition
    "misplaced": 0,  # of those, lines that are neither an include nor a parameter of a kernel
    "directives": 0,  # preprocessor directives that choose by a constant of a kernel
}

CONDITION = re.compile(r"\S.* // (where|unless) k[A-Z]")
PARAMETER = re.compile(r"\s*const __grid_constant__ [^{}]*")
DIRECTIVE = re.compile(r"#\s*(if 1\b|if k|(if|ifdef|ifndef) .*\bATTUNE_(?!BOUNDED_WAITS\b))")


def places(text):
    """Returns {count: lines} for the text of one file."""
    found = {name: [] for name in LIMITS}
    in_head = False  # between `__global__` and the kernel's body
    for number, line in enumerate(text.split("\n"), 1):
        code = line.partition("//")[0]
        in_head = in_head or "__global__" in code
        if DIRECTIVE.match(line):
            found["directives"].append(number)
        if CONDITION.search(line):
            found["conditions"].append(number)
            if not line.startswith("#include ") and not (in_head and PARAMETER.fullmatch(code)):
                found["misplaced"].append(number)
        in_head = in_head and "{" not in code
    return found


def main():
    found = {name: [] for name in LIMITS}
    for path in sorted((ROOT / "templates").rglob("*")):
        if path.suffix in SUFFIXES:
            for name, lines in places(path.read_text()).items():
                found[name] += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
    if sys.argv[1:2] == ["--list"]:
        print("\n".join(found[sys.argv[2]]))
        return 0
    status = 0
    for name, limit in LIMITS.items():
        count = len(found[name])
        if count > limit:
            status = 1
            print(f"{name}: {count}, at most {limit}; `tests/check_conditions.py --list {name}` says where")
        else:
            print(f"{name}: {count}" + (f" is below the limit of {limit}; lower the limit" if count < limit else ""))
    return status


if __name__ == "__main__":
    sys.exit(main())
