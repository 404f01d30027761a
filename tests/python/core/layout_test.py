#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the package's layout as in a wheel, in a virtual environment with nothing else: it finds its library and
program, needs no NumPy, imports nothing large, and passes the interpreter's NVRTC to the program. Also `python -m
attune` in a tree of `cmake --install`. wheel_test.py tests real wheels. Usage: layout_test.py BUILD_FOLDER PACKAGE
LIBRARY PROGRAM HEADERS"""
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import unittest
import venv

BUILD, PACKAGE, LIBRARY, PROGRAM, HEADERS = (pathlib.Path(argument).resolve() for argument in sys.argv[1:6])
IMPORT_TIME = "import time\nbegin = time.process_time()\nimport attune\nprint(time.process_time() - begin)"
LARGE = ("torch", "numpy", "transformers", "subprocess", "inspect", "json", "importlib.metadata", "ctypes")
MAX_IMPORT_S = 0.060


def output(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120, check=False,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Installed:
    """A Python with the package; without this process's environment."""

    def __init__(self, folder, python, packages):
        self.python, self.packages = python, packages
        self.environment = {
            "HOME": str(folder), "PATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "ATTUNE_STORE": ""}

    def run(self, *arguments, **more):
        return output(self.python, *arguments, env=self.environment | more)


class AsWheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        venv.create(cls.folder / "venv", symlinks=True)
        packages = next((cls.folder / "venv/lib").glob("python3*/site-packages"))
        shutil.copytree(PACKAGE, packages / "attune", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(LIBRARY, packages / "attune/libattune.so")
        shutil.copy(PROGRAM, packages / "attune/attune")
        shutil.copytree(HEADERS, packages / "attune/include")
        for plugin in (*LIBRARY.parent.glob("*attune_*.so"), *LIBRARY.parent.glob("_attune.*.so")):
            (packages / "attune" / plugin.name).symlink_to(plugin)
        cls.installed = Installed(cls.folder, cls.folder / "venv/bin/python", packages)
        cls.installed.run("-c", "import compileall, sys; compileall.compile_dir(sys.argv[1], quiet=1)", packages)

    def test_finds_its_parts(self):
        own = self.installed.packages / "attune"
        for option, want in (("--library", own / "libattune.so"), ("--program", own / "attune"), ("--includedir",
                                                                                                  own / "include")):
            self.assertEqual(self.installed.run("-m", "attune", option).strip(), str(want.resolve()), option)
        self.assertIn("--cmakedir", self.installed.run("-m", "attune"))
        self.assertRegex(self.installed.run("-m", "attune", "--version"), r"^\d+\.\d+\.\d+\n$")
        failed = subprocess.run([self.installed.python, "-m", "attune", "--cmakedir"], env=self.installed.environment,
                                capture_output=True, text=True, check=False)
        self.assertEqual(failed.returncode, 1)
        self.assertIn("attuneConfig.cmake is not near", failed.stderr)

    def test_an_unknown_option_is_named(self):
        failed = subprocess.run([self.installed.python, "-m", "attune", "--foo"], env=self.installed.environment,
                                capture_output=True, text=True, check=False)
        self.assertEqual((failed.returncode, failed.stdout), (1, ""))
        self.assertIn("--foo is not an option; must be --cmakedir, ", failed.stderr)

    def test_other_arguments_go_to_the_program(self):
        self.assertEqual(self.installed.run("-m", "attune", "version"), output(PROGRAM, "version"))
        entry = "import sys; sys.argv = ['attune', 'version']; from attune.core.program import main; main()"
        self.assertEqual(self.installed.run("-c", entry), output(PROGRAM, "version"))

    def test_imports_nothing_large(self):
        found = self.installed.run("-c",
                                   f"import sys, attune; print(*[name for name in {LARGE} if name in sys.modules])")
        self.assertEqual(found.split(), [])

    def test_import_time(self):
        times = [float(self.installed.run("-c", IMPORT_TIME)) for _ in range(5)]
        print(f"import attune: {statistics.median(times) * 1e3:.1f} ms of processor time")
        if os.environ.get("ATTUNE_TEST_TIMING") == "1":
            self.assertLess(statistics.median(times), MAX_IMPORT_S)

    def test_nvrtc_of_the_interpreter_comes_first(self):
        for place in ("nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib"):
            (self.installed.packages / place).mkdir(parents=True, exist_ok=True)
        script = "from attune.core.program import nvrtc_folders; print(*nvrtc_folders())"
        folders = self.installed.run("-c", script).split()
        self.assertEqual(
            folders, [str(self.installed.packages / place) for place in ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")])
        report = subprocess.run([self.installed.python, "-m", "attune", "doctor"], env=self.installed.environment,
                                capture_output=True, text=True, check=False).stdout
        self.assertIn(f"python   folders that may hold NVRTC: {', '.join(folders)}", report)
        self.assertIn(f"ATTUNE_NVRTC_FOLDERS={':'.join(folders)}", report)


class AsInstalledTree(unittest.TestCase):
    def test_finds_its_parts(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder).resolve() / "prefix"
            output("cmake", "--install", BUILD, "--prefix", prefix)
            installed = Installed(folder, sys.executable, None)
            installed.environment["PYTHONPATH"] = str(prefix / "share/attune/python")
            for option, want in (("--library", "libattune.so"), ("--program", "bin/attune"),
                                 ("--includedir", "include/attune/attune.h"), ("--cmakedir", "attuneConfig.cmake"),
                                 ("--pkgconfigdir", "attune.pc")):
                found = pathlib.Path(installed.run("-m", "attune", option).strip())
                self.assertEqual(found.parts[:len(prefix.parts)], prefix.parts, option)
                self.assertTrue(found.exists() and str(want).split("/")[-1] in str(sorted(found.glob("**/*")) or found),
                                (option, found))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
