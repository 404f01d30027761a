#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds how many files an addition touches. Each *.patch in this folder is one addition as a contributor would write
it. The test applies it to a copy of the sources, counts its files, compiles those that it changes, and runs its Python.

Usage: additions_test.py BUILD. BUILD is the build tree, for its compile commands and its library. Needs NumPy.
"""
import json
import os
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
PRODUCT = ("cache/", "generator/", "runtime/", "templates/", "tuner/")


PYTHON = """
import attune, numpy
q = numpy.random.default_rng(1).random((1, 5, 2, 16), "float32")
"""


def touched(patch):
    return re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.M)


def patched_copy(patch, folder):
    for name in (*PRODUCT, "examples/", "tests/generator/"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(["git", "apply", "-C1", "--recount", str(patch)], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{patch.name} does not apply any more; make it again from the sources as they are:\n{done.stderr}")


class Build:
    """The compile commands of a build tree, without precompiled headers and outputs."""

    def __init__(self, folder):
        cache = (folder / "CMakeCache.txt").read_text()
        self.folder = folder
        self.root = re.search(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", cache, re.M)[1]
        self.commands = {}
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            words, skip = [], False
            for word in shlex.split(entry["command"]):
                if skip or word in ("-o", "-include"):
                    skip = not skip
                elif word not in ("-c", "-fpch-preprocess") and not word.endswith("ccache"):
                    words.append(word)
            self.commands[entry["file"].removeprefix(f"{self.root}/")] = entry["directory"], words

    def compile(self, folder, name):
        """Compiles a file of a copy of the sources; a new file like one of its neighbours."""
        parent = pathlib.Path(name).parent
        like = name if name in self.commands else next(x for x in self.commands if pathlib.Path(x).parent == parent)
        where, words = self.commands[like]
        own = re.compile(rf"^(-I|-isystem)?{re.escape(self.root)}(?=$|/(?!build))")
        words = [own.sub(rf"\g<1>{folder}", word.replace(like, name)) for word in words]
        done = subprocess.run([*words, "-fsyntax-only"], cwd=where, capture_output=True, text=True)
        assert done.returncode == 0, f"{name}: {done.stderr}"


class Additions(unittest.TestCase):
    build = None

    def check(self, name, most, python=None):
        """Checks that a patch touches at most so many product files, that they compile, and that `python` runs."""
        files = touched(HERE / name)
        self.assertLessEqual(len([file for file in files if file.startswith(PRODUCT)]), most, files)
        with tempfile.TemporaryDirectory() as folder:
            patched_copy(HERE / name, pathlib.Path(folder))
            for file in {"runtime/c_api/c_problem.cpp", *files}:
                if file.endswith(".cpp"):
                    self.build.compile(folder, file)
            if python is not None:
                environment = {
                    **os.environ, "PYTHONPATH": f"{folder}/runtime/python", "ATTUNE_STORE": "",
                    "ATTUNE_LIBRARY": f"{self.build.folder}/lib/libattune.so"}
                done = subprocess.run([sys.executable, "-c", PYTHON + python], env=environment, capture_output=True,
                                      text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_field_of_a_problem(self):
        self.check("field.patch", 4)

    def test_a_score_feature(self):
        # The library of this build does not know the field, which shows that Python sends it.
        self.check("score_feature.patch", 9, """
for call in (attune.attention, attune.attention_kvcache):
    try:
        call(q, q, q, score_clip=3.0)
    except attune.Error as error:
        assert "score_clip" in str(error), error
    else:
        raise SystemExit(f"{call.__name__} did not send score_clip")
""")

    def test_a_keyword_of_python(self):
        self.check("python_keyword.patch", 2, """
found = attune.attention(q, q, q, base_2=True)
assert abs(found - attune.attention(q, q, q, scale=0.25 * numpy.log(2))).max() == 0
assert abs(found - attune.attention(q, q, q)).max() > 0
""")


if __name__ == "__main__":
    Additions.build = Build(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
