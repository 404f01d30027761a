#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheels for ARM64: built by `runtime/python/wheels.sh --aarch64` on a machine of another kind, and run by an
emulator with Debian's Python and NumPy for ARM64. Skips aloud (status 77) without the cross compiler or the emulator.
    wheel_aarch64_test.py [FOLDER]      wheels that are there already, in place of new ones"""
import pathlib
import platform
import re
import shutil
import sys
import tempfile
import unittest
import zipfile

from wheel_test import ATTENTION, MAX_WHEEL_BYTES, ROOT, SYSTEM_LIBRARIES, output

EMULATOR = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


class Aarch64(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        made = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else cls.folder / "wheels"
        if len(sys.argv) < 2:
            output("bash", ROOT / "runtime/python/wheels.sh", "--aarch64", made)
        cls.wheels = {path.name.split("-")[0]: path for path in made.glob("*_aarch64.whl")}
        cls.packages = cls.folder / "packages"
        for path in cls.wheels.values():
            with zipfile.ZipFile(path) as archive:
                archive.extractall(cls.packages)
        (cls.packages / "attune/attune").chmod(0o755)
        cls.system = cls.folder / "system"
        output("bash", ROOT / "runtime/cmake/aarch64_sysroot.sh", cls.system, "python3", "python3-numpy")

    def emulate(self, program, *arguments, **variables):
        libraries = self.system / "usr/lib/aarch64-linux-gnu"
        variables = {"LD_LIBRARY_PATH": f"{libraries}/blas:{libraries}/lapack", "PYTHONPATH": self.packages,
                     "ATTUNE_STORE": ""} | variables
        pairs = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
        return output(EMULATOR, "-cpu", "neoverse-n1", "-L", self.system, *pairs, program, *arguments)

    def test_tags_sizes_and_needs(self):
        self.assertEqual(set(self.wheels), set(MAX_WHEEL_BYTES))
        for name, path in self.wheels.items():
            self.assertLessEqual(path.stat().st_size, MAX_WHEEL_BYTES[name])
            self.assertRegex(path.name, r"-py3-none-manylinux_2_2[0-8]_aarch64\.whl$")
        objects = [*self.packages.glob("attune/*.so"), self.packages / "attune/attune"]
        self.assertLessEqual({"libattune.so", "libattune_clang.so", "_attune.abi3.so", "attune"},
                             {path.name for path in objects})
        for path in objects:
            self.assertIn("AArch64", output("readelf", "--file-header", path), path.name)
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--dynamic", path)))
            self.assertLessEqual(needed, SYSTEM_LIBRARIES, path.name)
            versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output("readelf", "--version-info", "--wide", path))
            self.assertLessEqual(max(tuple(map(int, version)) for version in versions), (2, 28), path.name)
        self.assertTrue(list(self.packages.glob("attune/licenses/attune-cpu-llvm-19-dev.txt")))

    def test_the_program_renders_a_kernel_for_a_gpu(self):
        kernel = self.emulate(self.packages / "attune/attune", "emit", "--arch", "sm_90a", "--problem",
                              "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096")
        self.assertIn("attune_kernel", kernel)

    def test_attention_on_the_emulated_cpu(self):
        """The kernel is compiled for ARM64 by the wheel's clang, loaded and run."""
        said = self.emulate(self.system / "usr/bin/python3", "-c", ATTENTION)
        self.assertIn("from the compiler clang", said)


if __name__ == "__main__":
    if platform.machine() == "aarch64":
        print("SKIP: this machine is ARM64; wheel_test.py tests its wheels")
        sys.exit(77)
    if EMULATOR is None or shutil.which("aarch64-linux-gnu-g++") is None:
        print("SKIP: no ARM64 emulator or cross compiler (packages qemu-user-static, crossbuild-essential-arm64)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
