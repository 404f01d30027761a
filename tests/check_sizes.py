#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails on files, functions and folders that are too large for a reader, and on totals over their budget.

Also fails if too many product files have only a few lines. The limits are at the top. ALLOWED has larger files and
functions, CROWDED has larger folders, each with its own limit and a reason. Both lists and the budgets only shrink: an
entry that is no longer needed fails too. Rendered and golden text does not count as code. Run by CTest.
  check_sizes.py [--crumbs]    --crumbs lists the short files too
"""
import collections
import pathlib
import re
import sys

import check_repo

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["generator", "templates", "cache", "runtime", "tuner", "tests", "examples"]
CODE = {".c", ".h", ".cpp", ".hpp", ".cu", ".cuh"}
SCRIPTS = {".py", ".sh", ".bats", ".cmake"}
FILE_LINES = 600  # look again at 400
PUBLIC_HEADER_LINES = 200
EXAMPLE_LINES = 80
FUNCTION_LINES = 60
KERNEL_LINES = 120  # a function marked __global__

FOLDER_FILES = 40
# A product file of code under CRUMB_LINES lines is a crumb. Null objects (none/) are short by nature and do not count.
CRUMB_LINES = 30
CRUMB_SHARE = 0.08  # of all product files
# Lines of the whole tree. To raise one, say in the commit what for. Data: what tests read, without published results.
BUDGETS = {"product": 130450, "tests": 85200, "data": 4100}
PRODUCT = ("generator/", "templates/", "cache/", "runtime/", "tuner/")
RESULTS = "tests/bench/results/"

# "path" or "path:function" -> (limit, reason)
ALLOWED = {}
# folder -> (limit, reason)
CROWDED = {}


def file_limit(path):
    if path.startswith("runtime/include/"):
        return PUBLIC_HEADER_LINES
    if path.startswith("examples/") and path.count("/") == 1 and path.endswith((".c", ".cpp")):
        return EXAMPLE_LINES
    return FILE_LINES


def blank_literals(text):
    """Replaces comments and literals by spaces, so that braces inside them do not count."""
    pattern = re.compile(
        r'R"([^(\s]*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-zA-Z_])\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def kind_of(head):
    """Returns what a '{' opens, judged by the text since the last ';', '{' or '}'."""
    head = re.sub(r"^\s*#.*$", "", head, flags=re.M).strip()
    if re.search(r"\b(namespace\b|extern\s+)", head) and "(" not in head:
        return "scope"
    if re.match(r"(template\s*<.*>\s*)?(typedef\s+)?(class|struct|union|enum)\b", head, re.S) and not re.search(
            r"\)\s*(const|noexcept|override|\s)*$", head):
        return "scope"
    if "(" in head and not re.search(r"=\s*$", head):
        return "function"
    return "other"


def functions(text):
    """(name, first line, length, is_kernel) of every outermost function body."""
    text = blank_literals(text)
    stack, start, line = [], 0, 1
    for position, char in enumerate(text):
        if char == "\n":
            line += 1
        elif char == "{":
            head = text[start:position]
            inside = any(kind == "function" for kind, *_ in stack)
            kind = "other" if inside else kind_of(head)
            first = line - head.lstrip().count("\n")
            stack.append((kind, head, first))
            start = position + 1
        elif char == "}":
            if stack:
                kind, head, first = stack.pop()
                if kind == "function":
                    name = re.search(r"([~\w:]+)\s*\(", re.sub(r"__launch_bounds__\s*\([^)]*\)+", "", head))
                    yield (name.group(1) if name else "?"), first, line - first + 1, "__global__" in head
            start = position + 1
        elif char == ";" and not (stack and stack[-1][0] == "function"):
            start = position + 1


def oversized(path, text):
    lines = text.count("\n")
    if lines > file_limit(path):
        yield path, 0, lines, file_limit(path)
    if pathlib.Path(path).suffix not in CODE:
        return
    for name, first, length, is_kernel in functions(text):
        limit = KERNEL_LINES if is_kernel else FUNCTION_LINES
        if length > limit:
            yield f"{path}:{name}", first, length, limit


def crowded(paths, limits=None):
    """Yields a sentence for each folder that directly holds too many of `paths`, and for each entry that is not needed.
    """
    limits = CROWDED if limits is None else limits
    held = collections.Counter(path.rpartition("/")[0] for path in paths if not path.startswith(RESULTS))
    for folder, count in sorted(held.items()):
        limit = limits.get(folder, (FOLDER_FILES, ""))[0]
        if count > limit:
            yield f"{folder}: {count} files, at most {limit}"
    for folder, (limit, _) in limits.items():
        if held[folder] <= FOLDER_FILES or held[folder] < limit:
            yield f"{folder}: {held[folder]} files; lower or remove its limit {limit} in CROWDED of check_sizes.py"


def kind_of_lines(path):
    """Returns the budget that the lines of a file count for; None for pages, published results and what is at the root.
    """
    is_code = pathlib.Path(path).suffix in CODE | SCRIPTS | {".bash", ".js", ".css"} or path.endswith("CMakeLists.txt")
    if path.startswith(PRODUCT):
        return "product" if is_code else None
    if not path.startswith("tests/") or path.startswith(RESULTS) or path.endswith(".md"):
        return None
    return "tests" if is_code and not path.startswith("tests/golden/") else "data"


def over_budget(sizes, budgets=None):
    """Yields a sentence for each total over its budget. sizes: pairs of a path and its number of lines."""
    totals = collections.Counter()
    for path, lines in sizes:
        totals[kind_of_lines(path)] += lines
    for kind, budget in (BUDGETS if budgets is None else budgets).items():
        if totals[kind] > budget:
            yield f"{kind}: {totals[kind]} lines in all, at most {budget}"


def crumbs(sizes):
    """Returns a sentence with the share of product files that are crumbs, the crumbs, and True if there are too many.

    sizes: pairs of a path and its number of lines.
    """
    lines_of = {
        path: lines for path, lines in sizes
        if path.startswith(PRODUCT) and "/none/" not in path and pathlib.Path(path).suffix in CODE | {".py"}}
    short = sorted(path for path, lines in lines_of.items() if lines < CRUMB_LINES)
    share = len(short) / max(len(lines_of), 1)
    return (f"{len(short)} of {len(lines_of)} product files ({share:.1%}) have under {CRUMB_LINES} lines, at most "
            f"{CRUMB_SHARE:.0%}"), short, share > CRUMB_SHARE


def main():
    used, failures = set(), []
    paths = check_repo.files()
    failures += crowded(paths)
    sizes = [(path, (ROOT / path).read_bytes().count(b"\n")) for path in paths]
    failures += over_budget(sizes)
    said, short, too_many = crumbs(sizes)
    if "--crumbs" in sys.argv[1:]:
        print("\n".join(short))
    if too_many:
        failures.append(f"{said}; merge a file with its only user (--crumbs lists them)")
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix not in CODE | SCRIPTS or "golden" in file.parts:
                continue
            path = file.relative_to(ROOT).as_posix()
            for key, first, size, limit in oversized(path, file.read_text(errors="replace")):
                used.add(key)
                if size > ALLOWED.get(key, (limit, ""))[0]:
                    failures.append(f"{key} (line {first or 1}): {size} lines, at most {limit}")
    failures += [
        f"{key}: in the allow-list of check_sizes.py, but within the limits now" for key in ALLOWED.keys() - used]
    print("\n".join(failures) or f"sizes: all files, functions, folders and totals within their limits; {said}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
