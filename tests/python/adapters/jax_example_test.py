#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds examples/jax_ffi.cpp and runs examples/jax_attention.py on the CPU, with the JAX of this interpreter, or else
with a JAX that pip installs into a temporary environment. Then checks that wrong arguments are refused. Skips aloud
(status 77) without JAX and a package index, or without the CPU target.
    jax_example_test.py CXX"""
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

ROOT = pathlib.Path(__file__).resolve().parents[3]

# attention() names wrong arguments. The handler, called directly, refuses buffers that do not fit the problem.
REFUSED = """
import sys
sys.path.insert(0, sys.argv[1])
import jax, jax.numpy as jnp, jax_attention
jax_attention.register(sys.argv[2])
zeros = lambda *shape, dtype=jnp.float32: jnp.zeros(shape, dtype)
q, k = zeros(2, 10, 4, 64), zeros(2, 10, 2, 64)

def refused(call, *words):
    try:
        jax.block_until_ready(call())
    except Exception as error:
        assert all(word in str(error) for word in words), error
    else:
        raise SystemExit(f"nothing was refused, but {words}")

for changed, words in ((dict(k=zeros(1, 10, 2, 64), v=zeros(1, 10, 2, 64)), ("k has shape (1, 10, 2, 64)", "must be")),
                       (dict(k=zeros(2, 10, 2, 32), v=zeros(2, 10, 2, 32)), ("k has shape (2, 10, 2, 32)", "must be")),
                       (dict(k=zeros(2, 10, 3, 64), v=zeros(2, 10, 3, 64)), ("k has shape (2, 10, 3, 64)", "must be")),
                       (dict(v=zeros(2, 5, 2, 64)), ("v has shape (2, 5, 2, 64)", "must be")),
                       (dict(v=zeros(2, 10, 2, 64, dtype=jnp.bfloat16)), ("v is bfloat16", "must be")),
                       (dict(q=zeros(2, 10, 4, 64, dtype=jnp.int32)),
                        ("q is int32", "must be float32, bfloat16, float16")),
                       (dict(k=zeros(2, 10, 64)), ("k has shape (2, 10, 64)", "must be"))):
    given = {**dict(q=q, k=k, v=k), **changed}
    refused(lambda: jax_attention.attention(**given), *words)
    refused(lambda: jax.jit(jax_attention.attention)(**given), *words)

problem = "dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen_q=10,seqlen_kv=10,mask=none"
room = jax_attention.workspace_bytes(problem, "cpu") + 255

def called(q=q, k=k, v=k, o=(2, 10, 4, 64), o_dtype=jnp.float32, room=room, problem=problem):
    results = jax.ShapeDtypeStruct(o, o_dtype), jax.ShapeDtypeStruct((room,), jnp.uint8)
    return jax.ffi.ffi_call("attune_attention", results)(q, k, v, problem=problem)

called()
for changed, word in ((dict(q=zeros(2, 9, 4, 64)),
                       "q is of type 11 x 2 x 9 x 4 x 64, not as the problem says; problem: dtype=fp32"),
                       (dict(k=zeros(1, 10, 2, 64)), "k is of type 11 x 1 x 10 x 2 x 64"),
                       (dict(v=zeros(2, 5, 2, 64)), "v is of type 11 x 2 x 5 x 2"),
                       (dict(v=zeros(2, 10, 2, 64, dtype=jnp.bfloat16)), "v is of type 16 x 2 x 10 x 2"),
                       (dict(o=(2, 5, 4, 64)), "o is of type 11 x 2 x 5 x 4"),
                       (dict(o_dtype=jnp.bfloat16), "o is of type 16 x"),
                       (dict(room=100), "the workspace is too small"),
                       (dict(problem=problem + ",dtype_o=bf16"), "; problem: "),
                       (dict(problem="op=append_kv," + problem), "; problem: "),
                       (dict(problem=problem + ",sinks=fp32"), "sinks")):
    refused(lambda: called(**changed), word)
print("what does not fit is refused")
"""


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
    if subprocess.run([python, "-m", "pip", "install", "--quiet", "jax"], capture_output=True,
                      check=False).returncode != 0:
        skip("this interpreter has no JAX, and pip cannot install it")
    return python


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ.update(ATTUNE_STORE="", JAX_PLATFORMS="cpu")
        if "libattune_clang" in (why := output(
                sys.executable, "-c",
                "import attune\ntry: attune.Context('cpu').plan('dtype=fp32,head_dim=64,heads=4,seqlen=128')\nexcept "
                "attune.Error as e: print(e)"
        )):
            skip(why)
        python = python_with_jax(folder)
        include = output(python, "-c", "import jax; print(jax.ffi.include_dir())")
        module = folder / "libattune_jax.so"
        output(sys.argv[1], "-std=c++17", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror",
               ROOT / "examples/jax_ffi.cpp", "-o", module, "-I", ROOT / "runtime/include", "-isystem", include,
               output(python, "-m", "attune", "--library"))
        said = output(python, ROOT / "examples/jax_attention.py", module)
        print(said)
        if not said.startswith("cpu: largest difference"):
            sys.exit("the example did not run on the CPU")
        print(output(python, "-c", REFUSED, ROOT / "examples", module))


if __name__ == "__main__":
    main()
