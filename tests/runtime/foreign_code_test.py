#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that foreign code is not loaded through the current folder, argv[0], or a setuid program's environment.
Usage: foreign_code_test.py ATTUNE LIBATTUNE FOREIGN_LIBRARY PYTHON_FOLDER"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ATTUNE, LIBRARY, FOREIGN, PYTHON = sys.argv[1:5]
FOREIGN_TEXT = "FOREIGN CODE RUNS"
NOBODY = 65534
OPEN_CONTEXT = """
import os, sys, attune
os.chdir(sys.argv[1])
try:
    attune.Context("cpu:1", store="").plan("dtype=fp32,head_dim=32,heads=2,seqlen=32")
    print("opened")
except attune.Error as error:
    print(error)
"""


def output(*command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60,
                          **options).stdout


class ForeignCode(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.folder.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.folder)
        self.evil = self.folder / "evil"
        for folder in (self.evil, self.evil / "lib"):
            folder.mkdir()
            for name in ("libattune_clang.so",):
                shutil.copy(FOREIGN, folder / name)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}

    def test_the_foreign_library_reports_when_it_is_loaded(self):
        said = output(ATTUNE, "doctor",
                      env=self.environment | {"ATTUNE_CPU_PLUGIN": str(self.evil / "libattune_clang.so")})
        self.assertIn(FOREIGN_TEXT, said)

    def test_argv0_does_not_choose_the_plugin_folder(self):
        for name in ("./attune", "bin/attune", "attune", str(self.evil / "attune")):
            said = output(name, "doctor", executable=ATTUNE, cwd=self.evil, env=self.environment)
            self.assertNotIn(FOREIGN_TEXT, said, name)

    def test_a_library_loaded_by_a_relative_name(self):
        modules = list(pathlib.Path(LIBRARY).parent.glob("_attune.*.so"))
        if not modules:
            self.skipTest("SKIPPED: there is no C module, because it was built without Python's headers")
        for plugins in (True, False):
            own = self.folder / f"own-{plugins}"
            (own / "lib").mkdir(parents=True)
            shutil.copy(LIBRARY, own / "lib" / "libattune.so")
            for module in modules:
                shutil.copy(module, own / "lib")
            for plugin in pathlib.Path(LIBRARY).resolve().parent.glob("libattune_clang.so") if plugins else ():
                (own / "lib" / plugin.name).symlink_to(plugin)
            for loader_path in ("lib", "", "/usr/lib:", None):
                environment = self.environment | {"ATTUNE_LIBRARY": "lib/libattune.so", "PYTHONPATH": PYTHON}
                if loader_path is not None:
                    environment["LD_LIBRARY_PATH"] = loader_path
                said = output(sys.executable, "-c", OPEN_CONTEXT, str(self.evil), cwd=own, env=environment)
                self.assertNotIn(FOREIGN_TEXT, said, (plugins, loader_path))
                self.assertIn(
                    "opened" if plugins and pathlib.Path(LIBRARY).with_name("libattune_clang.so").exists() else
                    "no CPU kernel can be compiled here", said)

    def test_a_setuid_program_ignores_its_callers_environment(self):
        if os.geteuid() != 0:
            self.skipTest("SKIPPED: a setuid program of another user needs root")
        program = self.folder / "attune"
        shutil.copy(ATTUNE, program)
        program.chmod(0o4755)
        foreign = str(self.evil / "libattune_clang.so")
        nobody = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        if FOREIGN_TEXT in output(program, "version", env=self.environment | {"LD_PRELOAD": foreign}, **nobody):
            self.skipTest("SKIPPED: setuid has no effect here")
        said = output(program, "doctor", "--json", **nobody, env=self.environment | {
            "ATTUNE_CPU_PLUGIN": foreign, "ATTUNE_NVRTC": foreign, "ATTUNE_STORE": str(self.folder / "mine.db")})
        self.assertIn("cpu_target_found", said)
        self.assertNotIn(FOREIGN_TEXT, said)
        self.assertNotIn("mine.db", said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
