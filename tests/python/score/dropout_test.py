#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dropout with NumPy: rates and masks, and attention(), attention_backward(), prepare(), why() and Plan.run() with
seeds. dropout_torch_test.py has PyTorch.

Skips aloud (status 77) without NumPy or the CPU target."""
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)

import attune
import skips

SHAPE = (2, 4, 19, 45)
P = 0.25


def inputs():
    random = np.random.default_rng(1)
    return [
        random.standard_normal((2, length, heads, 32)).astype(np.float32)
        for length, heads in ((19, 4), (45, 2), (45, 2))]


def weights_of(q, k, v, keep, dropout_p):
    """Returns, in float64, the softmax, its dropped weights, and k and v with all heads, heads first."""
    q, k, v = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = k.repeat(2, 1), v.repeat(2, 1)
    scores = q @ k.swapaxes(2, 3) * 32 ** -0.5
    weights = np.exp(scores - scores.max(3, keepdims=True))
    weights /= weights.sum(3, keepdims=True)
    return q, k, v, weights, keep / (1 - attune.dropout_rate(dropout_p))


def of_groups(x):
    """Returns sums over the query heads that share a KV head, with rows first."""
    return x.reshape(2, 2, 2, *x.shape[2:]).sum(2).transpose(0, 2, 1, 3)


class RateAndMaskTest(unittest.TestCase):
    def test_rates(self):
        for given, rate in ((0, 0), (0.5, 0.5), (0.1, 26 / 256), (0.001, 0), (0.9999, 255 / 256),
                            (np.float32(0.25), 0.25), (1 - 1e-12, 255 / 256), (1 - 2e-8,
                                                                               255 / 256)):  # which float32 rounds to 1
            self.assertEqual(attune.dropout_rate(given), rate)
        q, k, v = inputs()
        most = attune.attention(q, k, v, dropout_p=0.9999, seed=1)
        self.assertTrue((attune.attention(q, k, v, dropout_p=1 - 2e-8, seed=1) == most).all())
        for bad in (1, -0.1, float("nan"), float("inf")):
            with self.assertRaisesRegex(ValueError, "dropout_p is .*; must be in \[0, 1\)"):
                attune.dropout_rate(bad)

    def test_masks(self):
        mask = attune.dropout_mask(SHAPE, P, 5, 7)
        self.assertEqual((mask.dtype, mask.shape), (np.dtype(bool), SHAPE))
        self.assertLess(abs(mask.mean() - 0.75), 0.02)
        self.assertTrue((mask == attune.dropout_mask(SHAPE, P, np.array([5]), np.int64(7))).all())
        # A part of a mask is a mask.
        self.assertTrue((mask[:1, :, :7] == attune.dropout_mask((1, 4, 7, 45), P, 5, 7)).all())
        # A higher rate drops all that a lower one drops.
        self.assertFalse((attune.dropout_mask(SHAPE, 0.5, 5, 7) & ~mask).any())
        self.assertTrue(attune.dropout_mask(SHAPE, 0.0, 5).all())
        self.assertEqual(attune.dropout_mask((0, 4, 3, 5), P, 5).shape, (0, 4, 3, 5))
        for other in ((6, 7), (5, 8), (5 + 2**32, 7), (5, 7 + 2**32)):
            self.assertFalse((mask == attune.dropout_mask(SHAPE, P, *other)).all())

    def test_refusals(self):
        for arguments, sentence in ((((2, 4, 3), P, 5), "shape is"),
                                    (((2, 4, 3, -1), P, 5), "extents must be at least 0"), ((SHAPE, 1.5, 5),
                                                                                               "dropout_p is 1.5"),
                                    ((SHAPE, P, 2**64), "seed is 18446744073709551616"), ((SHAPE, P, 1, 0.5),
                                                                                          "offset is 0.5")):
            with self.assertRaisesRegex(ValueError, sentence):
                attune.dropout_mask(*arguments)


class CallTest(unittest.TestCase):
    def test_attention_and_its_gradients(self):
        q, k, v = inputs()
        given = dict(dropout_p=P, seed=5, offset=7)
        o, lse = attune.attention(q, k, v, return_lse=True, **given)
        qd, kd, vd, weights, kept = weights_of(q, k, v, attune.dropout_mask(SHAPE, P, 5, 7), P)
        wanted = (weights * kept @ vd)
        self.assertLess(np.abs(o - wanted.transpose(0, 2, 1, 3)).max(), 1e-5)
        self.assertTrue((lse == attune.attention(q, k, v, return_lse=True)[1]).all())
        dout = np.random.default_rng(2).standard_normal(o.shape).astype(np.float32)
        dq, dk, dv = attune.attention_backward(dout, q, k, v, o, lse, **given)
        d = dout.astype(np.float64).transpose(0, 2, 1, 3)
        ds = weights * (d @ vd.swapaxes(2, 3) * kept - (d * wanted).sum(3, keepdims=True)) * 32 ** -0.5
        for found, want in ((dq, (ds @ kd).transpose(0, 2, 1, 3)), (dk, of_groups(ds.swapaxes(2, 3) @ qd)),
                            (dv, of_groups((weights * kept).swapaxes(2, 3) @ d))):
            self.assertLess(np.abs(found - want).max(), 2e-5)

    def test_seeds_in_arrays(self):
        q, k, v = inputs()
        run = lambda seed, offset: attune.attention(q, k, v, dropout_p=P, seed=seed, offset=offset)
        wanted = run(5, 7)
        seed = np.array(5, np.uint64)
        self.assertTrue((run(seed, np.array([7])) == wanted).all())
        seed += np.uint64(1)
        self.assertTrue((run(seed, 7) == run(6, 7)).all())
        self.assertFalse((run(seed, 7) == wanted).all())

    def test_plans(self):
        q, k, v = inputs()
        self.assertEqual(attune.prepare(attune.attention, q, k, v, dropout_p=P).kernel_template, "prefill_cpu")
        self.assertIn("dropout=0.25", attune.why(q, k, v, dropout_p=P).problem)
        plan = attune.Context("cpu", store="").plan(f"{attune.problem_text(q, k, v)},dropout={P}")
        o = np.empty_like(q)
        plan.run(q, k, v, o, seed=5, offset=7)
        self.assertTrue((o == attune.attention(q, k, v, dropout_p=P, seed=5, offset=7)).all())
        launch = plan.launcher(q, k, v, o, seed=np.array(6), offset=7)
        launch()
        self.assertTrue((o == attune.attention(q, k, v, dropout_p=P, seed=6, offset=7)).all())

    def test_refusals(self):
        q, k, v = inputs()
        with self.assertRaisesRegex(ValueError, "seed is missing"):
            attune.attention(q, k, v, dropout_p=P)
        with self.assertRaisesRegex(ValueError, "dropout_p is 1.0"):
            attune.attention(q, k, v, dropout_p=1.0, seed=1)
        with self.assertRaisesRegex(ValueError, r"seed is int32 of shape \(\); must be"):
            attune.attention(q, k, v, dropout_p=P, seed=np.array(1, np.int32))
        with self.assertRaisesRegex(attune.Error, "operands->dropout is null"):
            attune.Context("cpu", store="").plan(f"{attune.problem_text(q, k, v)},dropout={P}").run(
                q, k, v, np.empty_like(q))


if __name__ == "__main__":
    skips.run()
