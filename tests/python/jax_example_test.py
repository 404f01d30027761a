#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds examples/jax_ffi.cpp and runs examples/jax_attention.py on the CPU, with the JAX of this interpreter, else with one that pip puts
into an environment that goes again. Skips aloud (status 77) without JAX and index, or without the CPU target.
    jax_example_test.py CXX"""
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def output(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout.strip()


def python_with_jax(folder):
    if subprocess.run([sys.executable, "-c", "import jax"], capture_output=True, check=False).returncode == 0:
        return sys.executable
    venv.create(folder / "jax", symlinks=True, with_pip=True)
    python = folder / "jax/bin/python"
    if subprocess.run([python, "-m", "pip", "install", "--quiet", "jax"], capture_output=True, check=False).returncode != 0:
        skip("this interpreter has no JAX, and pip cannot install it")
    return python


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ.update(ATTUNE_STORE="", JAX_PLATFORMS="cpu")
        if "libattune_cpu" in (why := output(sys.executable, "-c", "import attune\ntry: attune.Context('cpu')\nexcept attune.Error as e: print(e)")):
            skip(why)
        python = python_with_jax(folder)
        include = output(python, "-c", "import jax; print(jax.ffi.include_dir())")
        module = folder / "libattune_jax.so"
        output(sys.argv[1], "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", ROOT / "examples/jax_ffi.cpp", "-o", module,
               "-I", ROOT / "runtime/include", "-isystem", include, output(python, "-m", "attune", "--library"))
        said = output(python, ROOT / "examples/jax_attention.py", module)
        print(said)
        if not said.startswith("cpu: largest difference"):
            sys.exit("the example did not run on the CPU")


if __name__ == "__main__":
    main()
