#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attention_backward() on NumPy's arrays against a float64 reference written from the definition: masks, groups of
heads, unequal head dims and lengths, layouts, single gradients, outputs, refusals. autograd_test.py covers PyTorch's
tensors. Skips aloud (status 77) without NumPy or the CPU target."""
import unittest

from skips import np, run
import attune

PLACE = {"context": "cpu:1"}


def draw(*shape, dtype=np.float32):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def wanted(q, k, v, dout, dlse=None, seen=None):
    """Returns (dq, dk, dv) in float64, by the formulas of the op."""
    q, k, v, dout = (np.moveaxis(x.astype(np.float64), 2, 1) for x in (q, k, v, dout))
    group, scale = q.shape[1] // k.shape[1], q.shape[3] ** -0.5
    keys, values = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = scale * q @ np.swapaxes(keys, 2, 3)
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * (1 if seen is None else seen)
    sums = weights.sum(-1, keepdims=True)
    p = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    delta = (dout * (p @ values)).sum(-1, keepdims=True) - (0 if dlse is None else dlse[..., None])
    ds = p * (dout @ np.swapaxes(values, 2, 3) - delta)
    of_group = lambda x: x.reshape(k.shape[0], k.shape[1], group, *x.shape[2:]).sum(2)
    found = scale * ds @ keys, of_group(scale * np.swapaxes(ds, 2, 3) @ q), of_group(np.swapaxes(p, 2, 3) @ dout)
    return [np.moveaxis(x, 1, 2) for x in found]


class NumpyTest(unittest.TestCase):
    def compare(self, found, want, allowed=1e-4):
        for name, x, y in zip(("dq", "dk", "dv"), found, want):
            if x is not None:
                self.assertLess(np.abs(x - y).max(), allowed, name)

    def test_masks_and_shapes(self):
        i, j = np.arange(33)[:, None], np.arange(40)[None]
        for keywords, seen in (({}, None), ({"mask": "causal_top_left"}, j <= i), ({
                "mask": "causal_bottom_right", "window": (6, 0)}, (j <= i + 7) & (j >= i + 1)), ({
                    "mask_tensor": (i * j) % 3 != 0}, (i * j) % 3 != 0)):
            with self.subTest(keywords=list(keywords)):
                q, k, v = draw(2, 33, 6, 32), draw(2, 40, 2, 32), draw(2, 40, 2, 24)
                o, lse = attune.attention(q, k, v, return_lse=True, **keywords, **PLACE)
                dout, dlse = draw(*o.shape), draw(*lse.shape)
                dlse[lse == -np.inf] = 0
                self.compare(attune.attention_backward(dout, q, k, v, o, lse, dlse=dlse, **keywords, **PLACE),
                             wanted(q, k, v, dout, dlse, seen))
                self.compare(
                    attune.attention_backward(dout.astype(np.float32), q, k, v, o, lse, gradients="k", **keywords,
                                              **PLACE), wanted(q, k, v, dout, None, seen))

    def test_half_precision_and_layouts(self):
        q, k, v = np.swapaxes(draw(2, 4, 33, 32, dtype=np.float16), 1, 2), draw(2, 40, 3, 2, 32,
                                                                                dtype=np.float16)[:, :, 1], draw(
                                                                                    2, 40, 2, 32, dtype=np.float16)
        o, lse = attune.attention(q, k, v, return_lse=True, **PLACE)
        dout = np.broadcast_to(np.float16(0.5), o.shape)  # strides of 0
        found = attune.attention_backward(dout, q, k, v, o, lse, **PLACE)
        self.compare(found, wanted(q, k, v, dout), 2e-2)
        self.assertEqual([x.dtype for x in found], [np.float16] * 3)
        self.assertLess(found[0].strides[1], found[0].strides[2])  # heads first, as q

    def test_out_and_refusals(self):
        q, k, v = draw(2, 33, 4, 32), draw(2, 40, 2, 32), draw(2, 40, 2, 32)
        o, lse = attune.attention(q, k, v, return_lse=True, **PLACE)
        dout = draw(*o.shape)
        out = tuple(np.full_like(x, np.nan) for x in (q, k, v))
        found = attune.attention_backward(dout, q, k, v, o, lse, out=out, **PLACE)
        self.assertTrue(all(x is y for x, y in zip(found, out)))
        self.compare(out, wanted(q, k, v, dout))
        for kind, sentence, given, keywords in ((TypeError, "dout is of type list", (dout.tolist(), q, k, v, o, lse),
                                                 {}), (ValueError, "dout is float64; must be fp32", (dout.astype(
                                                     np.float64), q, k, v, o, lse),
                                                       {}), (ValueError, r"o has shape \(2, 33, 4, 16\)",
                                                             (dout, q, k, v, o[..., :16], lse), {}),
                                                (ValueError, "lse has 4 dimensions", (dout, q, k, v, o, o),
                                                 {}), (ValueError, "gradients is 'x'", (dout, q, k, v, o, lse), {
                                                     "gradients": "x"}),
                                                (ValueError, "dv and dout overlap", (dout, q, k, v, o, lse), {
                                                    "out": (*out[:2], dout.reshape(-1)[:5120].reshape(2, 40, 2, 32))})):
            with self.assertRaisesRegex(kind, sentence):
                attune.attention_backward(*given, **keywords)
        frozen = np.zeros_like(q)
        frozen.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "dq is read-only"):
            attune.attention_backward(dout, q, k, v, o, lse, out=(frozen, *out[1:]), **PLACE)

    def test_plans_of_the_op(self):
        plan = attune.Context(
            "cpu:1", store="").plan("op=attention_backward,dtype=fp32,head_dim=32,heads=4,seqlen=33,gradients=kv")
        with self.assertRaisesRegex(
                ValueError,
                r"this plan is of op attention_backward; must be of op attention \(attune.attention_backward\(\) runs"
        ):
            plan.run(*(draw(1, 33, 4, 32) for _ in range(4)))


if __name__ == "__main__":
    run()
