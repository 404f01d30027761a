#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts words and lines that make the tree hard to read. Fails if a count differs from its limit in LIMITS.

Limits only go down: a change that lowers a count lowers its limit as well. `--list NAME` prints the places of one
count. The counts are a thermometer. A comment that says why is worth more than its grammar. Run by CTest.
"""
import argparse
import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

ROOT = pathlib.Path(__file__).resolve().parent.parent
CPP = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
PAGES = {".md"}
CPP_COLUMNS = 100
PYTHON_COLUMNS = 120
SENTENCE_WORDS = 35

LIMITS = {
    "fragments": 0,  # comment blocks that open with a fragment
    "accepted": 0,  # lines that say "accepted is" and the like, where "must be" is meant
    "long_sentences": 0,  # sentences of pages with more than 35 words
    "wide_cpp": 0,  # lines of C, C++ and CUDA with more than 100 columns
    "wide_python": 0,  # lines of Python with more than 120 columns
}

FRAGMENT = re.compile(r"(Of|What|Whether|Where|Those|The same|As)\b")
ACCEPTED = re.compile(r"\b(accepted|allowed|taken) (is|are)\b", re.I)
CPP_COMMENT = re.compile(r"\s*(?://+|/\*+|\*+/|\*(?=\s))\s?(.*)")


def tracked():
    """Returns the paths of all files that git tracks, without published results and golden text."""
    names = subprocess.run(["git", "-C", ROOT, "ls-files"], check=True, capture_output=True,
                           text=True).stdout.split("\n")
    return [name for name in names if name and not name.startswith(("tests/bench/results/", "tests/golden/"))]


def cpp_blocks(lines):
    """Yields (line, text) for each block of whole-line comments in C++ text: the line of its first word, and that line.
    """
    inside = starred = False
    for number, line in enumerate(lines, 1):
        match = CPP_COMMENT.match(line) if starred or line.lstrip().startswith(("//", "/*")) else None
        if match is None and not starred:
            inside = False
            continue
        text = (match.group(1) if match else line).strip()
        starred = (starred or "/*" in line) and "*/" not in line
        if text.startswith("SPDX-"):
            continue
        if text and not inside:
            inside = True
            yield number, text
        if not text:
            inside = False


def python_blocks(text):
    """Yields (line, text) for each docstring and each block of whole-line comments in Python text."""
    previous = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.line[:token.start[1]].strip():
            words = token.string.lstrip("#! ").strip()
            if token.start[0] != previous + 1 and words and not words.startswith("SPDX-"):
                yield token.start[0], words
            previous = token.start[0] if words and not words.startswith("SPDX-") else 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring.split("\n")[0]


def sentences(text):
    """Yields (line, words) for each sentence of a page: neither code, nor tables, nor addresses of links."""
    text = re.sub(r"^```.*?^```", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S | re.M)
    text = re.sub(r"^\s*\|.*$", "", text, flags=re.M)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"`[^`\n]*`", "code", text)
    line = 1
    for part in re.split(r"((?:[.!?:]\)?\s)|\n\s*\n|\n(?=\s*(?:[-*#]|\d+\.)\s))", text):
        words = re.findall(r"[\w'-]*\w", part)
        yield line + len(part) - len(part.lstrip("\n")), len(words)
        line += part.count("\n")


def places(names):
    """Returns {count: [(path, line)]} over the files named."""
    found = {name: [] for name in LIMITS}
    for name in names:
        suffix = pathlib.Path(name).suffix
        try:
            text = (ROOT / name).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        lines = text.split("\n")
        if name != "tests/check_words.py":
            found["accepted"] += [(name, i) for i, line in enumerate(lines, 1) if ACCEPTED.search(line)]
        if suffix in CPP:
            found["wide_cpp"] += [(name, i) for i, line in enumerate(lines, 1) if len(line) > CPP_COLUMNS]
            found["fragments"] += [(name, i) for i, words in cpp_blocks(lines) if FRAGMENT.match(words)]
        if suffix == ".py":
            found["wide_python"] += [(name, i) for i, line in enumerate(lines, 1) if len(line) > PYTHON_COLUMNS]
            found["fragments"] += [(name, i) for i, words in python_blocks(text) if FRAGMENT.match(words)]
        if suffix in PAGES:
            found["long_sentences"] += [(name, i) for i, count in sentences(text) if count > SENTENCE_WORDS]
    return found


def blocks(names):
    """Returns the number of comment blocks and docstrings in the files named."""
    count = 0
    for name in names:
        suffix = pathlib.Path(name).suffix
        if suffix in CPP:
            count += sum(1 for _ in cpp_blocks((ROOT / name).read_text().split("\n")))
        elif suffix == ".py":
            count += sum(1 for _ in python_blocks((ROOT / name).read_text()))
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", choices=LIMITS, help="print the places of this count")
    parser.add_argument("--blocks", action="store_true", help="print the number of comment blocks")
    parser.add_argument("paths", nargs="*", help="count only in tracked files whose path begins with one of these")
    arguments = parser.parse_args()
    names = [n for n in tracked() if not arguments.paths or n.startswith(tuple(arguments.paths))]
    if arguments.blocks:
        print(blocks(names))
        return 0
    found = places(names)
    if arguments.list:
        print("\n".join(f"{path}:{line}" for path, line in found[arguments.list]))
        return 0
    status = 0
    for name, limit in LIMITS.items():
        count = len(found[name])
        if arguments.paths:
            print(f"{name}: {count}")
        elif count > limit:
            print(f"{name}: {count}, at most {limit}; `tests/check_words.py --list {name}` says where")
            status = 1
        elif count < limit:
            print(f"{name}: {count} is below the limit of {limit}; lower the limit in tests/check_words.py")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
