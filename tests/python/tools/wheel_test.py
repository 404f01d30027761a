#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wheels: built by runtime/python/wheels.sh, installed into bare virtual environments, used there without compiler,
without CUDA, without and with PyTorch (where this interpreter has it), and built against from C. Skips aloud (status
77) where pip's index is not to be had.
    wheel_test.py [FOLDER]      wheels that are there already, in place of new ones"""
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import venv

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUTSIDE = ROOT / "tests/capi/outside"
MAX_WHEEL_BYTES = {"attune_kernels": 5e6, "attune_kernels_cpu": 60e6}
SYSTEM_LIBRARIES = {
    "libc.so.6", "libgcc_s.so.1", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1"}
ATTENTION = """
import sys, attune
assert not {"torch", "numpy"} & set(sys.modules)
import numpy as np
q, k, v = np.random.default_rng(0).standard_normal((3, 1, 70, 4, 64), dtype=np.float32)
o = attune.attention(q, k, v, "causal", context="cpu:1")
scores = np.where(np.tril(np.ones((70, 70), bool)), np.einsum("bqhd,bkhd->bhqk", q, k, dtype=np.float64) / 8, -np.inf)
weights = np.exp(scores - scores.max(-1, keepdims=True))
want = np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)
assert np.abs(o - want).max() < 2e-5, np.abs(o - want).max()
print(attune.why(q, k, v, "causal", context="cpu:1"))
"""
TORCH = """
import sys, attune
assert "torch" not in sys.modules
import torch
q, k, v = torch.randn(3, 1, 70, 4, 64)
o = attune.attention(q, k, v, "causal", context="cpu:1")
wide = (x.transpose(1, 2).double() for x in (q, k, v))
want = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True).transpose(1, 2)
assert (o - want).abs().max() < 2e-5
print(torch.__file__)
"""


def output(*command, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=3600, check=False,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def new_environment(folder, name, *packages):
    """Returns the Python of a new environment with these packages. Our wheels are installed from files only, since
    pip's index may have other packages of these names."""
    venv.create(folder / name, symlinks=True, with_pip=True)
    python = folder / name / "bin/python"
    ours = [package for package in packages if str(package).endswith(".whl")]
    if others := [package for package in packages if package not in ours]:
        output(python, "-m", "pip", "install", "--quiet", *others)
    if ours:
        output(python, "-m", "pip", "install", "--quiet", "--no-index", *ours)
    return python


class Wheels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        made = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else cls.folder / "wheels"
        if len(sys.argv) < 2:
            output("bash", ROOT / "runtime/python/wheels.sh", made)
        cls.wheels = {path.name.split("-")[0]: path for path in made.glob("*.whl")}
        cls.sdist, = made.glob("*.tar.gz")
        cls.bare = new_environment(cls.folder, "bare", cls.wheels["attune_kernels"])
        cls.numpy = new_environment(cls.folder, "numpy", "numpy", *cls.wheels.values())

    def run_in(self, python, *arguments, **more):
        """Runs Python without a compiler on PATH and without this process's variables."""
        environment = {"HOME": str(self.folder / "home"), "PATH": str(python.parent)}
        return output(*arguments, env=environment
                      | more) if str(arguments[0]).startswith("/") else output(python, *arguments, env=environment
                                                                               | more)

    def test_tags_sizes_and_needs(self):
        self.assertEqual(set(self.wheels), set(MAX_WHEEL_BYTES))
        for name, path in self.wheels.items():
            print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")
            self.assertLessEqual(path.stat().st_size, MAX_WHEEL_BYTES[name])
            self.assertRegex(path.name, r"-py3-none-(manylinux_2_\d+_\w+\.)?manylinux_2_28_\w+\.whl$")
        packages = next((self.numpy.parents[1] / "lib").glob("python3*/site-packages")) / "attune"
        objects = [*packages.glob("*.so"), packages / "attune"]
        self.assertLessEqual({"libattune.so", "libattune_clang.so", "attune"}, {path.name for path in objects})
        for path in objects:
            needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", path)))
            self.assertLessEqual(needed, SYSTEM_LIBRARIES, path.name)
            versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output("readelf", "--version-info", "--wide", path))
            self.assertLessEqual(max(tuple(map(int, version)) for version in versions), (2, 28), path.name)

    def test_sums_and_licences(self):
        folder = self.sdist.parent
        checked = output("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder)
        self.assertEqual({line.split(":")[0] for line in checked.splitlines()},
                         {path.name for path in (*self.wheels.values(), self.sdist)} | {"LICENSES.txt"})
        text = (folder / "LICENSES.txt").read_text()
        cmake = (ROOT / "runtime/cmake/wheel.cmake").read_text()
        for name, packages in zip(("attune_kernels", "attune_kernels_cpu"),
                                  re.findall(r"set\(attune_linked (.*)\)", cmake), strict=True):
            listed = text.split(f"{self.wheels[name].name}\n")[1].split("\n\n")[0]
            self.assertEqual([line.split()[0] for line in listed.splitlines()], sorted(packages.split()))
            self.assertNotIn("see the text", listed)

    def test_one_command_installs_both_from_a_checkout(self):
        """pip asks no index for either of them."""
        python = new_environment(self.folder, "checkout", "scikit-build-core", "ninja")
        found = output(python, "-m", "pip", "install", "--dry-run", "--no-index", "--no-build-isolation", ROOT,
                       ROOT / "runtime/python/cpu")
        self.assertRegex(found, r"Would install attune-kernels-[0-9.]+ attune-kernels-cpu-[0-9.]+")

    def test_without_cpu_target_without_numpy(self):
        self.run_in(self.bare, "-c",
                    "import attune, sys; assert not {'numpy', 'torch'} & set(sys.modules); print(attune.version())")
        kernel = self.run_in(self.bare, self.bare.parent / "attune", "emit", "--arch", "sm_90a", "--problem",
                             "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096")
        self.assertIn("attune_kernel", kernel)
        with self.assertRaisesRegex(AssertionError, "pip install ./runtime/python/cpu"):
            self.run_in(self.bare, "-c",
                        "import attune; attune.Context('cpu').plan('dtype=fp32,head_dim=64,heads=4,seqlen=70')",
                        ATTUNE_STORE="")

    def test_cpu_target_without_compiler_then_without_compiling(self):
        store = {"ATTUNE_STORE": str(self.folder / "own/store.db")}
        self.assertIn("from the compiler clang", self.run_in(self.numpy, "-c", ATTENTION, **store))
        self.assertIn("from the store", self.run_in(self.numpy, "-c", ATTENTION, ATTUNE_NO_JIT="1", **store))
        self.run_in(self.numpy, self.numpy.parent / "attune", "tune", "--target", "cpu:1", "--effort", "quick",
                    "--problem", "dtype=fp32,head_dim=64,heads=4,seqlen=70,mask=causal_bottom_right", **store)
        self.assertIn("rung       exact", self.run_in(self.numpy, "-c", ATTENTION, ATTUNE_NO_JIT="1", **store))

    def test_what_the_cpu_target_throws_is_caught_in_the_library(self):
        """A bundle whose object has the right digest but no kernel is ignored, with the plugin's message."""
        bundle = self.folder / "bundle"
        store = ["--store", self.folder / "private/store.db"]
        (self.folder / "private").mkdir(mode=0o700)
        program = self.numpy.parent / "attune"
        problem = ["--target", "cpu:1", "--problem", "dtype=fp32,head_dim=32,heads=2,seqlen=16"]
        self.run_in(self.numpy, program, "tune", *problem, "--effort", "quick", *store)
        self.run_in(self.numpy, program, "export", bundle, *store)
        kernel, = bundle.glob("*.o")
        whole = kernel.read_bytes()
        hollow = whole[:64] + bytes(len(whole) - 64)
        kernel.write_bytes(hollow)
        manifest = (bundle / "manifest.json").read_text()
        (bundle / "manifest.json").write_text(
            manifest.replace(hashlib.sha256(whole).hexdigest(),
                             hashlib.sha256(hollow).hexdigest()))
        said = self.run_in(self.numpy, program, "explain", *problem, ATTUNE_BUNDLE=str(bundle), ATTUNE_STORE="")
        self.assertIn("from a bundle is not used: object is not code for this machine", said)

    def test_programs_are_built_against_it(self):
        folder = {
            name: self.run_in(self.numpy, "-m", "attune", f"--{name}").strip()
            for name in ("cmakedir", "pkgconfigdir", "library")}
        build = self.folder / "outside"
        output("cmake", "-S", OUTSIDE, "-B", build, f"-Dattune_DIR={folder['cmakedir']}")
        output("cmake", "--build", build)
        for program in ("outside_c", "outside_cpp"):
            output(build / program)
        flags = output("pkg-config", "--cflags", "--libs", "attune",
                       env=os.environ | {"PKG_CONFIG_PATH": folder["pkgconfigdir"]}).split()
        output("cc", "-std=c11", OUTSIDE / "outside.c", *flags, "-o", self.folder / "by_pkg_config")
        output(self.folder / "by_pkg_config", env={"LD_LIBRARY_PATH": os.path.dirname(folder["library"])})

    def test_beside_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("this interpreter has no PyTorch")
        packages = pathlib.Path(torch.__file__).parents[1]
        python = new_environment(self.folder, "torch", *self.wheels.values())
        own = next((python.parents[1] / "lib").glob("python3*/site-packages"))
        (own / "torch.pth").write_text(f"{packages}\n")
        self.assertIn(str(packages), self.run_in(python, "-c", TORCH))
        if list(packages.glob("nvidia/*/lib/libnvrtc.so.1[23]")):
            report = self.run_in(python, "-m", "attune", "doctor")
            self.assertRegex(
                report,
                rf"found    nvrtc .* in {packages}/nvidia/\w+/lib/libnvrtc.so.1[23], from ATTUNE_NVRTC_FOLDERS; "
                rf"compiled"
            )

    def test_sdist_holds_what_the_build_reads(self):
        self.assertLess(self.sdist.stat().st_size, 3e6)
        with tarfile.open(self.sdist) as archive:
            archive.extractall(self.folder / "sdist")
        source, = (self.folder / "sdist").iterdir()
        build = self.folder / "from_sdist"
        output("cmake", "-S", source, "-B", build, "-G", "Ninja", "-DATTUNE_WHEEL=attune", "-DATTUNE_CPU=OFF",
               "-DATTUNE_TESTS=OFF")
        inputs = output("ninja", "-C", build, "-t", "inputs", "all").splitlines()
        sources = [pathlib.Path(path) for path in inputs if path.startswith(str(source))]
        self.assertGreater(len(sources), 200)
        self.assertEqual([path for path in sources if not path.exists()], [])


if __name__ == "__main__":
    if len(sys.argv) < 2 and subprocess.run([
            sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest",
            tempfile.mkdtemp(), "scikit-build-core"], capture_output=True, check=False).returncode != 0:
        print("SKIP: pip finds no index here")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
