#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if a source reads an environment variable that the tables of examples/guide/variables.md lack.

Fails too if a table has a variable that nobody reads, and if a .md file names a file of the tree that is not there.
Run by CTest.
"""
import pathlib
import re
import sys

import check_repo

TABLE = "examples/guide/variables.md"
NAME = r"([A-Z][A-Z0-9_]+)"
# Calls that read a variable, by language. In C++ helpers that pass a name on count too.
CPP = [rf'\b(?:\w*getenv|environment_variable|variable|flag|folders?_in|from_environment)\(\s*"{NAME}"']
# Names in a list that a loop passes to such a helper.
CPP_LIST = re.compile(r"for \(const char\* name : \{([^}]*)\}\)")
PYTHON = [rf'\benviron(?:\.get|\.pop)?[\(\[]\s*"{NAME}"', rf'\bgetenv\(\s*"{NAME}"']
SHELL = [rf"\$\{{{NAME}:?[-?+=]", r"\$\{?(ATTUNE[A-Z_]*)\b"]
READS = {".c": CPP, ".h": CPP, ".cpp": CPP, ".hpp": CPP, ".py": PYTHON, ".sh": SHELL, ".bash": SHELL, ".bats": SHELL}
OF_OTHERS = {"SECONDS", "BATS_TEST_TMPDIR", "BATS_FILE_TMPDIR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
# Tests of the readers themselves have variables of their own.
OF_ITS_TEST = {
    "tests/generator/core/system/environment_test.cpp": {"ATTUNE_TEST_VARIABLE"}, "tests/check_test.py": {"ATTUNE_A"},
    "tests/python/score/traced_functions_test.py": {"ATTUNE_TEST_FACTOR", "TORCHINDUCTOR_CACHE_DIR"}}
ROOTS = "generator|templates|tuner|runtime|cache|tests|examples"


def variables_read(path, text):
    suffix = pathlib.PurePosixPath(path).suffix
    found = {name for pattern in READS.get(suffix, []) for name in re.findall(pattern, text)}
    if suffix == ".cpp" and "environment_variable(" in text:
        for names in CPP_LIST.findall(text):
            found |= set(re.findall(rf'"{NAME}"', names))
    return found - OF_OTHERS - OF_ITS_TEST.get(path, set())


def variables_listed(text):
    """Returns the names in all tables whose head begins with "variable"; one row may hold several."""
    tables = re.findall(r"^\| variable \|.*\n\|[-|]+\|\n((?:\|.*\n)*)", text, re.M)
    return {
        name
        for table in tables for row in table.splitlines()
        for name in re.findall(rf"`{NAME}`", row.split("|")[1])}


def missing_files(path, text, tree):
    """Yields line and name of each `folder/file.suffix` and each link to a file that is not in the tree."""
    folder = pathlib.PurePosixPath(path).parent
    for number, line in enumerate(text.splitlines(), 1):
        for name in re.findall(rf"`((?:{ROOTS})/[\w./-]+)`", line):
            if name not in tree and name.rstrip("/") not in tree:
                yield number, name
        for link in re.findall(r"\]\(([^)#:]+)\)", line):
            target = pathlib.Path(check_repo.ROOT / folder / link)
            if not target.exists():
                yield number, link


def main():
    paths = check_repo.files()
    texts = {path: (check_repo.ROOT / path).read_text(errors="replace") for path in paths
             if pathlib.PurePosixPath(path).suffix in {*READS, ".md"}}
    listed = variables_listed(texts[TABLE])
    found, read = [], set()
    for path, text in texts.items():
        names = variables_read(path, text)
        read |= names
        found += [f"{path}: reads {name}, which {TABLE} lacks" for name in sorted(names - listed)]
    found += [f"{TABLE}: nobody reads {name}" for name in sorted(listed - read)]
    tree = set(paths) | {parent.as_posix() for path in paths for parent in pathlib.PurePosixPath(path).parents}
    for path in (path for path in texts if path.endswith(".md")):
        found += [f"{path}:{number}: {name} is not there" for number, name in missing_files(path, texts[path], tree)]
    print("\n".join(found)
          if found else f"variables: {len(read)} are read, and {TABLE} has them; .md files name files that are there")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
