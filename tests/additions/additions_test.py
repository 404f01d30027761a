#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds how many files an addition touches. Each *.patch in this folder is one addition as a contributor would write
it. The test applies it to a copy of the sources, counts its files, compiles those that it changes and runs its Python.

Usage: additions_test.py BUILD [--whole]. BUILD is the build tree, for its compile commands. --whole also builds the
library of each patched copy, and runs the addition.
"""
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COPIED = ("cache", "generator", "runtime", "templates", "tuner", "examples", "CMakeLists.txt", "CHANGELOG.md", "README.md")
PRODUCT = ("cache/", "generator/", "runtime/", "templates/", "tuner/")
# patch -> the most product files that it may touch
LIMITS = {"field.patch": 4, "score_feature.patch": 9, "python_keyword.patch": 2}


def touched(patch):
    return re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)


def patched_copy(patch, folder):
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    done = subprocess.run(["git", "apply", "-C1", "--recount", str(patch)], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{patch.name} does not apply any more; make it again from the sources as they are:\n{done.stderr}")


def compile_commands(build):
    """Returns {file relative to the root: (folder, words)} without precompiled headers and outputs."""
    commands = {}
    root = pathlib.Path(re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)[1])
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["file"])
        if not path.is_relative_to(root):
            continue
        words, skip = [], False
        for word in shlex.split(entry["command"]):
            if skip or word in ("-o", "-include"):
                skip = not skip
            elif word not in ("-c", "ccache", "-fpch-preprocess") and not word.endswith("ccache"):
                words.append(word)
        commands[str(path.relative_to(root))] = (entry["directory"], words)
    return root, commands


def check_compiles(root, commands, folder, name):
    # A new file is compiled like its neighbours.
    like = name if name in commands else next(other for other in commands
                                              if pathlib.Path(other).parent == pathlib.Path(name).parent)
    where, words = commands[like]
    words = [word.replace(str(root / like), str(folder / name)) for word in words]
    words = [re.sub(rf"^(-I|-isystem)?{re.escape(str(root))}(?=$|/(?!build))", rf"\g<1>{folder}", word) for word in words]
    done = subprocess.run([*words, "-fsyntax-only"], cwd=where, capture_output=True, text=True)
    assert done.returncode == 0, f"{name}: {done.stderr}"


class Additions(unittest.TestCase):
    build = None

    def check(self, name):
        patch = HERE / name
        files = touched(patch)
        product = [file for file in files if file.startswith(PRODUCT)]
        self.assertLessEqual(len(product), LIMITS[name], product)
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            patched_copy(patch, folder)
            root, commands = compile_commands(self.build)
            sources = [file for file in files if file.endswith(".cpp")]
            if any(file.startswith("runtime/") and file.endswith((".h", ".hpp")) for file in files):
                sources.append("runtime/c_api/c_problem.cpp")
            for file in sources:
                check_compiles(root, commands, folder, file)
            yield folder

    def test_a_field_of_a_problem(self):
        for _ in self.check("field.patch"):
            pass

    def test_a_score_feature(self):
        for _ in self.check("score_feature.patch"):
            pass


if __name__ == "__main__":
    Additions.build = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
