#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fails if clang finds errors in a file of templates/, read as an editor reads it (templates/.clangd): with every
include and the default constants, whatever the conditions of lines say. Exit code 77, aloud, without libclang. Run by
CTest.
  templates_parse_test.py LIBCLANG [PATH...]   prints all errors of the files named instead; LIBCLANG: a file
"""
import concurrent.futures
import ctypes
import os
import pathlib
import re
import sys

TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "templates"
SUFFIXES = {"kernels": {".cu", ".cpp"}, "headers": {".cuh", ".h", ".hpp"}}
# Errors at different places: in kernels with all they include, and in headers that are read alone. Limits only go down.
LIMITS = {"kernels": 0, "headers": 0}
ERROR = 3  # CXDiagnostic_Error; only fatal errors have a greater number


class String(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("flags", ctypes.c_uint)]


def load(path):
    """Returns libclang with the types of the functions used here."""
    clang = ctypes.CDLL(path)
    pointer, words = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
    for name, result, arguments in [
        ("createIndex", pointer, [ctypes.c_int, ctypes.c_int]),
        ("parseTranslationUnit", pointer,
         [pointer, ctypes.c_char_p, words, ctypes.c_int, pointer, ctypes.c_uint, ctypes.c_uint]),
        ("getNumDiagnostics", ctypes.c_uint, [pointer]), ("getDiagnostic", pointer, [pointer, ctypes.c_uint]),
        ("getDiagnosticSeverity", ctypes.c_int, [pointer]),
        ("formatDiagnostic", String, [pointer, ctypes.c_uint]), ("getCString", ctypes.c_char_p, [String]),
        ("disposeTranslationUnit", None, [pointer])]:
        function = getattr(clang, "clang_" + name)
        function.restype, function.argtypes = result, arguments
    return clang


def fragments(text):
    """Yields (pattern, pattern of exceptions, flags) for each fragment of a .clangd file: one list of flags each."""
    for fragment in text.split("\n---\n"):
        paths, exceptions = (re.search(rf'{word}: "(.*?)"', fragment) for word in ("PathMatch", "PathExclude"))
        flags = re.search(r"Add: \[(.*)\]", fragment).group(1).split(", ")
        yield paths.group(1) if paths else ".*", exceptions.group(1) if exceptions else "", flags


def errors_of(clang, path, table):
    """Returns the errors of reading one file, each as "path:line:column: error: text"."""
    folder = (TEMPLATES / path).parent
    flags = [
        flag for pattern, exceptions, flags in table
        if re.fullmatch(pattern, path) and not re.fullmatch(exceptions, path) for flag in flags]
    words = [os.fsencode(word) for word in [f"-working-directory={folder}", "-w", *flags]]
    unit = clang.clang_parseTranslationUnit(
        clang.clang_createIndex(0, 0), os.fsencode(TEMPLATES / path), (ctypes.c_char_p * len(words))(*words),
        len(words), None, 0, 0)
    if not unit:
        return [f"{path}:1:1: error: clang does not take the flags {flags}"]
    found = []
    for number in range(clang.clang_getNumDiagnostics(unit)):
        diagnostic = clang.clang_getDiagnostic(unit, number)
        if clang.clang_getDiagnosticSeverity(diagnostic) >= ERROR:
            place, text = clang.clang_getCString(clang.clang_formatDiagnostic(diagnostic, 3)).decode().split(": ", 1)
            found.append(f"{os.path.relpath(folder / place, TEMPLATES)}: {text}")
    clang.clang_disposeTranslationUnit(unit)
    return found


def errors(clang, paths):
    """Returns the errors of reading each of the files, each error once."""
    table = list(fragments((TEMPLATES / ".clangd").read_text()))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return {text for found in pool.map(lambda path: errors_of(clang, path, table), paths) for text in found}


def main():
    if len(sys.argv) < 2 or not os.path.exists(sys.argv[1]):
        print("SKIP: there is no libclang here (package libclang-19-dev); whether templates parse is not checked")
        return 77
    clang = load(sys.argv[1])
    if sys.argv[2:]:
        print("\n".join(sorted(errors(clang, sys.argv[2:]))))
        return 0
    paths = [path.relative_to(TEMPLATES).as_posix() for path in TEMPLATES.rglob("*")]
    found = {
        kind: errors(clang, [path for path in paths if pathlib.PurePath(path).suffix in suffixes])
        for kind, suffixes in SUFFIXES.items()}
    found["headers"] -= found["kernels"]
    status = 0
    for kind, limit in LIMITS.items():
        count = len(found[kind])
        if count > limit:
            print("\n".join(sorted(found[kind])))
            status = 1
        print(f"{kind}: {count} errors, at most {limit}" + ("; lower the limit" if count < limit else ""))
    return status


if __name__ == "__main__":
    sys.exit(main())
