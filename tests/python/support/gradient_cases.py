# SPDX-License-Identifier: Apache-2.0
"""Shared by tests of gradients: tensors on one device, gradients in float64, tolerances. Used by autograd_test.py,
training_test.py and others. Reads the script's arguments: cuda, whole."""
import os
import sys
import time
import unittest

import attune
from skips import skip, torch
import published_grids as grids

DEVICE = "cuda" if "cuda" in sys.argv and sys.argv.remove("cuda") is None else "cpu"
if DEVICE == "cuda" and not torch.cuda.is_available():
    skip("there is no GPU here")
WHOLE = "whole" in sys.argv and sys.argv.remove("whole") is None
CASES = 60 if WHOLE else 5
PLACE = {"context": "cpu:1"} if DEVICE == "cpu" else {}
ALLOWED = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}  # error over the norm of a gradient


def draw(*shape, dtype=torch.float32):
    made = torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + len(shape)))
    return made.to(DEVICE, dtype)


def leaf(x):
    return x.detach().requires_grad_()


def wanted(q, k, v, dout, dlse=None, **of_reference):
    """Returns (dq, dk, dv) in float64."""
    leaves = [leaf(x.double()) for x in (q, k, v)]
    o, lse = grids.reference(*leaves, **of_reference)
    lse = torch.where(lse == -torch.inf, 0.0, lse)  # rows that see no key
    total = (o.nan_to_num(0.0) * dout.double()).sum()
    if dlse is not None:
        total = total + (lse * dlse.double()).sum()
    return torch.autograd.grad(total, leaves)


class GradientsTest(unittest.TestCase):
    def assertNear(self, found, want, allowed, what=""):
        for name, x, y in zip(("dq", "dk", "dv"), found, want):
            if x is None:
                continue
            self.assertTrue(x.isfinite().all(), f"{name} {what}")
            # If gradients cancel to 0 (one key in sight), only the rounding of the terms is left, about 1 each.
            error = (x.double() - y).norm() / max(y.norm().item(), 0.03 * y.numel() ** 0.5)
            self.assertLess(error.item(), allowed, f"{name} {what}")


TABLE = draw(4)
SLOPES = TABLE.abs()
BIAS, RELATIVE = draw(4, 33, 40), draw(4, 72)


def let_backwards_end():
    """Waits before the interpreter ends. After a backward PyTorch's GPU thread releases objects, for which it takes the
    GIL. If the interpreter is ending, the process aborts instead ("terminate called without an active exception"), also
    without attune. PyTorch offers nothing to wait for, so this thread releases the GIL for longer than the other thread
    needs."""
    if DEVICE == "cuda":
        time.sleep(0.2)


def main():
    """Runs the tests of the program, or skips."""
    os.environ["ATTUNE_STORE"] = ""
    try:
        attune.Context(DEVICE, store="")
    except attune.Error as error:
        skip(error)
    torch.set_num_threads(1)
    try:
        unittest.main()
    finally:
        let_backwards_end()
