#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LICENSES.txt and SHA256SUMS beside wheels, which runtime/python/release_files.py writes: every package inside a wheel
is listed with its licence and text, and sha256sum accepts the sums. The wheels here are archives with licences alone;
wheel_test.py does the same with real ones."""
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "runtime/python/release_files.py"
FMT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: doc/*
License: Python

Files: *
Copyright: 2012 Somebody
License: Expat
 The words of the licence.
"""


class ReleaseFilesTest(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def make(self, name, **files):
        with zipfile.ZipFile(self.folder / name, "w") as archive:
            archive.writestr("attune/libattune.so", b"code")
            for package, text in files.items():
                archive.writestr(f"attune/licenses/{package.replace('_', '-')}.txt", text)

    def run_script(self):
        return subprocess.run([sys.executable, SCRIPT, self.folder], capture_output=True, text=True, check=False)

    def test_every_package_is_listed(self):
        self.make("attune_kernels-1.whl", attune_libfmt_dev=FMT, attune_libgcc_12_dev="GCC Runtime Library Exception")
        self.make("attune_kernels_cpu-1.whl", attune_cpu_llvm_19_dev="Files: *\nLicense: APACHE-2-LLVM-EXCEPTIONS\n")
        (self.folder / "attune_kernels-1.tar.gz").write_bytes(b"sources")
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        text = (self.folder / "LICENSES.txt").read_text()
        gpu, cpu = text.split("attune_kernels_cpu-1.whl")
        self.assertRegex(
            gpu, r"attune_kernels-1.whl\n  libfmt-dev( \S+)? +Expat\n  libgcc-12-dev( \S+)? +GPL-3 with GCC")
        self.assertRegex(cpu, r"\A\n  llvm-19-dev( \S+)? +APACHE-2-LLVM-EXCEPTIONS\n\n")
        self.assertIn("The words of the licence.", cpu)
        checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=self.folder,
                                 capture_output=True, text=True, check=False)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertEqual(checked.stdout.split(": OK\n"), [
            "attune_kernels-1.whl", "attune_kernels_cpu-1.whl", "attune_kernels-1.tar.gz", "LICENSES.txt", ""])
        (self.folder / "attune_kernels-1.whl").write_bytes(b"another")
        self.assertNotEqual(
            subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=self.folder, capture_output=True,
                           check=False).returncode, 0)

    def test_wheels_without_licences_are_refused(self):
        self.assertIn("no wheel is there", self.run_script().stderr)
        self.make("attune_kernels-1.whl")
        self.assertIn("it has no attune/licenses/*.txt", self.run_script().stderr)
        self.assertFalse((self.folder / "SHA256SUMS").exists())


if __name__ == "__main__":
    unittest.main()
