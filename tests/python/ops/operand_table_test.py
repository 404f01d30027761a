#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every pair of variants (operand_variants.py) of every two operands, through every entry of the Python module. Valid
pairs run and equal a float64 reference, others are refused with a message, and no byte around the outputs changes. Uses
NumPy's arrays, a test double of PyTorch's tensors on the CPU and "on CUDA", and PyTorch's tensors if installed. Cases
run in a child process, so that a crash fails one case only. Skips aloud (status 77) without NumPy or the CPU target.

    operand_table_test.py LIBRARY [START]     the tables of all entries, in this process"""
import itertools
import os
import re
import subprocess
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)

import fake_torch
import operand_variants as variants

LIBRARIES = ("numpy", "fake", "fake_cuda", "torch")
ENTRIES = ("attention", "run", "operands", "launcher", "factors", "quantise")
NAMES = ("q", "k", "v", "out", "lse")
ROLES = {"q": "in", "k": "in", "v": "in", "out": "out", "lse": "lse"}
SHAPES = {"q": (2, 5, 4, 16), "k": (2, 7, 2, 16), "v": (2, 7, 2, 16), "out": (2, 5, 4, 16), "lse": (2, 4, 5)}
PROBLEM = "dtype=fp32,head_dim=16,heads=4/2,batch=2,seqlen_q=5,seqlen_kv=7"
OTHER_NAMES = {"out": ("out", "o"), "lse": ("lse",)}


def values_of(name):
    return np.random.default_rng(NAMES.index(name)).standard_normal(SHAPES[name]).astype(np.float32)


def expected(q, k, v):
    q, k, v = (x.astype(np.float64) for x in (q, np.repeat(k, 2, axis=2), np.repeat(v, 2, axis=2)))
    scores = np.einsum("bihd,bjhd->bhij", q, k) / q.shape[3] ** 0.5
    weights = np.exp(scores)
    return np.einsum("bhij,bjhd->bihd", weights / weights.sum(-1, keepdims=True), v), np.log(weights.sum(-1))


def another_problem(case):
    """True if both variants fit each other: fewer rows of both q and out, or of both k and v, or fewer columns, which
    are computed in wider copies."""
    less, narrow = ([name for name in NAMES if case[name].name == text]
                    for text in ("a row less", "half of the last dimension"))
    return less in (["q", "out"], ["k", "v"]) or narrow in (["q", "k"], ["v", "out"])


class Library:
    """Makes and reads one library's tensors."""

    def __init__(self, name):
        self.name, self.target, self.elsewhere = name, "cpu", ()
        if name == "numpy":
            self.make, self.variants, self.factors = lambda a: a, variants.NUMPY, variants.NUMPY_FACTORS
            return
        if name == "torch":
            import torch
            make = self.real
            self.torch = torch
        else:
            fake_torch.install()
            self.target = "cuda:0" if name == "fake_cuda" else "cpu"
            self.elsewhere = ("cpu", "cuda:1") if name == "fake_cuda" else ("cuda:0",)
            make = self.fake
        self.make = make
        self.variants, self.factors = variants.torch_variants(make, self.elsewhere), variants.torch_factors(
            make, self.elsewhere)

    def fake(self, array, **keywords):
        return fake_torch.Tensor(array, keywords.pop("on", self.target), **keywords)

    def real(self, array, on="cpu", requires_grad=False, layout=None, negative=False, memory=True):
        tensor = self.torch.from_numpy(array)
        if requires_grad:
            return tensor.requires_grad_()
        if not memory:
            from torch._subclasses.fake_tensor import FakeTensorMode
            return FakeTensorMode().from_tensor(tensor)
        if layout:
            return tensor.to_sparse()
        return self.torch._neg_view(tensor) if negative else tensor.to(on)

    def array(self, tensor):
        return tensor if self.name == "numpy" else tensor.array if self.name.startswith("fake") else tensor.numpy()

    def choices(self):
        return variants.LAYOUTS + variants.DTYPES + self.variants


def context_of(library):
    import attune
    if library.name == "fake_cuda":
        fake_torch.CudaLibrary().install()
    return attune.Context(library.target, store="")


def call(entry, plan, context, given):
    """Runs one entry and returns (o, lse) as tensors. attention() makes lse itself."""
    import attune
    q, k, v, o, lse = (given[name] for name in NAMES)
    if entry == "attention":
        return attune.attention(q, k, v, out=o, return_lse=True, context=context)
    if entry == "operands":
        plan.enqueue(plan.operands(q, k, v, o, lse), 0)
    elif entry == "launcher":
        plan.launcher(q, k, v, o, lse)()
    else:
        plan.run(q, k, v, o, lse)
    return o, lse


class Table:
    """The cases of one library and entry; `faults` are sentences."""

    def __init__(self, library, context, entry):
        self.library, self.context, self.entry, self.faults = library, context, entry, []
        self.plan = self.context.plan(PROBLEM)
        self.inputs = {}

    def cases(self):
        if self.entry == "factors":
            choices = variants.FACTORS + self.library.factors
            return [
                triple for a, b in itertools.product(choices, repeat=2)
                for triple in ((a, b, choices[0]), (a, choices[0], b), (choices[0], a, b))]
        if self.entry == "quantise":
            return [(choice, ) for choice in self.library.choices()
                    if choice.name != "a NumPy array"]  # valid if the library is NumPy
        names = NAMES[:4] if self.entry == "attention" else NAMES
        plain, every = variants.LAYOUTS[0], self.library.choices()
        return [{**dict.fromkeys(NAMES, plain), a: x, b: y} for a, b in itertools.combinations(names, 2) for x in every
                for y in every]

    def run(self, case):
        if self.entry == "factors":
            return self.run_factors(case)
        if self.entry == "quantise":
            return self.run_quantise(case[0])
        fits = all(ROLES[name] in choice.ok
                   for name, choice in case.items()) or (self.entry == "attention" and another_problem(case))
        given = {name: self.operand(name, choice) for name, choice in case.items()}
        names = [
            alias for name, choice in case.items() if choice.name != "plain"
            for alias in OTHER_NAMES.get(name, (name, ))]
        names += ["q"] * (case["q"].name == "plain")  # other operands are compared with q
        o_before = self.memory(given["out"]), self.memory(given["lse"])
        result = self.outcome(lambda: call(self.entry, self.plan, self.context, given), fits, names)
        if result is None:
            if (self.memory(given["out"]), self.memory(given["lse"])) != o_before:
                self.faults.append("refused, and an output was written")
            return
        inputs = [np.array(self.library.array(given[name])) for name in "qkv"]
        for got, want in zip(result, expected(*inputs)):
            self.compare(self.library.array(got), want, 2e-5)

    def operand(self, name, choice):
        if ROLES[name] != "in":
            return choice.build(np.full(SHAPES[name], 7, np.float32), self.library.make)
        if (name, choice) not in self.inputs:
            self.inputs[name, choice] = choice.build(values_of(name), self.library.make)
        return self.inputs[name, choice]

    def run_factors(self, case):
        from attune import attention
        heads = (4, 2, 2)
        fits = all(choice[2] for choice in case)
        q, k, v = (np.random.default_rng(i).integers(0x28, 0x40, SHAPES[name]).astype(np.uint8)
                   for i, name in enumerate("qkv"))
        given = {name: self.library.make(variants.placed(x)) for name, x in zip("qkv", (q, k, v))}
        scales = {f"{name}_scale": choice[1](h, self.library.make) for name, choice, h in zip("qkv", case, heads)}
        result = self.outcome(
            lambda: attention(**given, **scales, dtype="e4m3", out_dtype="fp16", context=self.context), fits,
            list(scales))
        if result is not None:
            decoded = [(8 + (x & 7)) * 2.0 ** ((x >> 3).astype(int) - 10) for x in (q, k, v)]
            self.compare(self.library.array(result), expected(*decoded)[0], 0.2)

    def run_quantise(self, choice):
        from attune import quantise
        x = choice.build(values_of("k"), self.library.make)
        shaped = choice.name in (
            "a row less", "empty", "float16", "half of the last dimension")  # any shape is valid, except head_dim 8
        fits = "in" in choice.ok or (shaped and choice.name != "half of the last dimension")
        result = self.outcome(lambda: quantise(x, context=self.context), fits, ["x", "q"])
        if result is not None and self.library.name != "torch":
            codes, scale = (np.array(self.library.array(part)) for part in result)
            sign, size = np.where(codes < 128, 1, -1), codes & 127
            decoded = sign * np.where(size < 8, size * 2.0**-9, (8 + (size & 7)) * 2.0**((size >> 3).astype(int) - 10))
            self.compare(decoded * scale[:, None, :, None], np.array(self.library.array(x), np.float64), 0.2)

    def outcome(self, body, fits, names):
        """Returns the result of body(); None if it refused."""
        import attune
        try:
            result = body()
        except (ValueError, TypeError, attune.Error) as error:
            if fits:
                self.faults.append(f"refused: {error}")
            elif not re.search(rf"\b({'|'.join(names)})\b|dtype_o|head_dim", str(error)):
                self.faults.append(f"the sentence names none of {names}: {error}")
            return None
        if not fits:
            self.faults.append("accepted")
        return result

    def memory(self, tensor):
        """Returns the bytes around an operand, if there are any."""
        array = getattr(tensor, "array", tensor)
        base = array
        while isinstance(getattr(base, "base", None), np.ndarray):
            base = base.base
        return base.tobytes() if isinstance(base, np.ndarray) and base.dtype != object else None

    def compare(self, got, want, tolerance):
        if got.size and not np.abs(got.astype(np.float64) - want).max() < tolerance:
            self.faults.append(f"wrong by {np.abs(got.astype(np.float64) - want).max()}")


def name_of(case):
    if isinstance(case, dict):
        return ", ".join(f"{name}: {choice.name}" for name, choice in case.items() if choice.name != "plain")
    return ", ".join(choice[0] for choice in case)


def run_tables(name, start):
    """Runs in a child, from case `start` of all entries' cases: writes each case's number to descriptor 3 before it
    runs, and faults to the output."""
    library, number = Library(name), 0
    context = context_of(library)
    for entry in ENTRIES:
        table = Table(library, context, entry)
        for case in table.cases():
            if number >= start:
                os.pwrite(3, b"%10d" % number, 0)
                table.faults = []
                table.run(case)
                for fault in table.faults:
                    print(f"{entry}: {name_of(case)}: {fault}", flush=True)
            number += 1
    os.pwrite(3, b"%10d" % number, 0)


class OperandTable(unittest.TestCase):
    def check(self, library):
        self.assertEqual(self.faults_of(library), [])

    def faults_of(self, library):
        faults, start = [], 0
        for _ in range(10):  # children
            read = os.memfd_create("number")
            child = subprocess.run([
                "bash", "-c", f'exec "$0" "$@" 3<>/proc/{os.getpid()}/fd/{read}', sys.executable, __file__, library,
                str(start)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            number = int(os.pread(read, 10, 0) or -1)
            os.close(read)
            faults += child.stdout.splitlines()
            if child.returncode == 0:
                return faults
            faults.append(
                f"case {number} of {library} ended the process with {child.returncode}: {child.stderr[-2000:]}")
            start = number + 1
        return faults

    def test_numpy(self):
        self.check("numpy")

    def test_test_double(self):
        self.check("fake")

    def test_test_double_on_cuda(self):
        self.check("fake_cuda")

    def test_pytorch(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("there is no PyTorch here")
        self.check("torch")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in LIBRARIES:
        run_tables(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
        sys.exit(0)
    import attune
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    unittest.main()
