#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module on NumPy arrays and the CPU, against float64. Skips aloud (status 77) without NumPy or the CPU
target."""
import copy
import pathlib
import pickle
import tempfile
import threading
import unittest
import warnings

from skips import np, run
import attune


def expected(q, k, v, mask="none", window=(-1, -1), scale=None):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = np.repeat(k, group, axis=2), np.repeat(v, group, axis=2)
    scores = np.einsum("bihd,bjhd->bhij", q, k) * (scale or q.shape[3] ** -0.5)
    offset = 0 if mask == "causal_top_left" else k.shape[1] - q.shape[1]
    diagonal = np.arange(q.shape[1])[:, None] + offset
    column = np.arange(k.shape[1])[None, :]
    hidden = np.zeros((q.shape[1], k.shape[1]), bool)
    if mask != "none":
        hidden |= column > diagonal
    if window[0] >= 0:
        hidden |= column < diagonal - window[0]
    if window[1] >= 0:
        hidden |= column > diagonal + window[1]
    weights = np.where(hidden, 0, np.exp(scores))
    total = weights.sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        o = np.einsum("bhij,bjhd->bihd", np.where(total[..., None] > 0, weights / total[..., None], 0), v)
        return o, np.log(total)


def operands(batch=2, seqlen_q=33, seqlen_kv=47, heads=4, heads_kv=2, head_dim=64, head_dim_v=64, dtype=np.float32):
    random = np.random.default_rng(7)
    draw = lambda *shape: random.standard_normal(shape).astype(dtype)
    return draw(batch, seqlen_q, heads, head_dim), draw(batch, seqlen_kv, heads_kv, head_dim), draw(
        batch, seqlen_kv, heads_kv, head_dim_v)


class NumpyTest(unittest.TestCase):
    def compare(self, operands_, tolerance=2e-5, **choices):
        o, lse = attune.attention(*operands_, return_lse=True, **choices)
        want_o, want_lse = expected(*operands_, **choices)
        self.assertLess(np.abs(o.astype(np.float64) - want_o).max(), tolerance)
        np.testing.assert_allclose(lse, want_lse, atol=max(tolerance, 1e-4))

    def test_plain(self):
        self.compare(operands())

    def test_subclasses_that_report_other_shapes(self):
        class Longer(np.ndarray):
            shape = property(lambda self: (2, 3300, 4, 64))

        class Wider(np.ndarray):
            strides = property(lambda self: (1 << 30, 1 << 20, 256, 4))

        class Plain(np.ndarray):
            pass

        q, k, v = operands()
        for kind in (Longer, Wider):
            with self.assertRaisesRegex(ValueError,
                                        f"q is a {kind.__name__} that shows shape .*; must be those of its memory, "):
                attune.attention(q.view(kind), k, v)
        np.testing.assert_array_equal(attune.attention(q.view(Plain), k, v), attune.attention(q, k, v))

    def test_a_copied_context_is_the_context(self):
        """A shallow copy once held the same handle and outlived it."""
        context = attune.Context("cpu:1", store="")
        for again in (copy.copy(context), copy.deepcopy(context)):
            self.assertIs(again, context)
        with self.assertRaisesRegex(TypeError, "cannot be pickled; make one with attune.Context"):
            pickle.dumps(context)

    def test_masks_and_windows(self):
        self.compare(operands(), mask="causal_bottom_right")
        self.compare(operands(seqlen_q=50), mask="causal_top_left", window=(8, 0))
        self.compare(operands(), window=(4, -1), scale=0.2)

    def test_unequal_head_dims_and_fp16(self):
        self.compare(operands(head_dim=48, head_dim_v=80))
        self.compare(operands(dtype=np.float16), tolerance=2e-3)

    # Missing columns are filled with zeros: scale and o stay the same, and one warning is given.
    def test_head_dims_between_those_of_kernels(self):
        for head_dim, head_dim_v in ((59, 59), (111, 40), (64, 7), (9, 300)):
            q, k, v = operands(head_dim=head_dim, head_dim_v=head_dim_v)
            with self.assertWarnsRegex(UserWarning, f"head dims {head_dim} and {head_dim_v}"):
                self.compare((q, k, v), mask="causal_bottom_right")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                self.compare((q, k, v), scale=0.3)  # the warning came before
            out = np.full((*q.shape[:3], head_dim_v), np.nan, q.dtype)
            o = attune.attention(q, k, v, out=out, pad_head_dim=True)
            self.assertIs(o, out)
            self.assertLess(np.abs(out - expected(q, k, v)[0]).max(), 2e-5)
            with self.assertRaisesRegex(ValueError, "multiples of 8 from 16 on.*pad_head_dim=True"):
                attune.attention(q, k, v, pad_head_dim=False)
            with self.assertRaisesRegex(ValueError, "out is fp32 of shape"):
                attune.attention(q, k, v, out=out[:1], pad_head_dim=True)
        with self.assertRaisesRegex(TypeError, "pad_head_dim is 1"):
            attune.attention(q, k, v, pad_head_dim=1)
        with self.assertRaisesRegex(ValueError, "k has shape"):
            attune.attention(q, k[..., :8], v)

    def test_out_of_padded_head_dims_in_memory_of_others(self):
        q, k, v = operands(seqlen_kv=33, heads_kv=4, head_dim=20, head_dim_v=20)
        want = attune.attention(q, k, v, pad_head_dim=True)
        for name, out in (("k", k), ("v", v)):
            with self.assertRaisesRegex(ValueError,
                                        f"out and {name} overlap in memory; out must have memory of its own"):
                attune.attention(q, k, v, out=out, pad_head_dim=True)
        self.assertTrue((attune.attention(q, k, v, out=q, pad_head_dim=True) == want).all())  # in place

    def test_wide_heads(self):
        for head_dim, head_dim_v in ((320, 320), (512, 512), (576, 512), (32, 392)):
            self.compare(operands(head_dim=head_dim, head_dim_v=head_dim_v), mask="causal_bottom_right")

    def test_long_rows_of_scores_that_are_nearly_equal(self):
        """If the weights were added one by one, each addition would lose the same bits."""
        keys, random = 1 << 16, np.random.default_rng(1)
        k, v = np.zeros((2, 1, keys, 1, 16), np.float32)
        k[0, :, 0, 0], v[0, keys // 2:] = 1e-3 * random.standard_normal(keys), 1
        weights = np.exp(k[0, :, 0, 0].astype(np.float64))
        for rows in (1, 40):
            q = np.zeros((1, rows, 1, 16), np.float32)
            q[..., 0] = 1
            o, lse = attune.attention(q, k, v, scale=1.0, return_lse=True)
            self.assertLess(np.abs(lse - np.log(weights.sum())).max(), 3e-6)
            self.assertLess(np.abs(o - weights[keys // 2:].sum() / weights.sum()).max(), 1e-6)

    def test_strided_views(self):
        q, k, v = operands()
        self.compare((q.transpose(0, 2, 1, 3).copy().transpose(0, 2, 1, 3), k, v))
        packed = np.random.default_rng(3).standard_normal((2, 30, 12, 64)).astype(np.float32)
        self.compare((packed[:, :, :4], packed[:, :, 4:8], packed[:, :, 8:]))

    def test_broadcast_keys(self):
        q, k, v = operands(heads=4, heads_kv=4)
        self.compare((q, np.broadcast_to(k[:, :, :1], k.shape), np.broadcast_to(v[:, :, :1], v.shape)))

    def test_plans_explain_themselves(self):
        context = attune.Context("cpu", store="")
        self.assertTrue(context.device.startswith("cpu:"))
        plan = context.plan("dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen_q=33,seqlen_kv=47")
        self.assertEqual(plan.rung, "default_config")
        self.assertIn(plan.config, plan.explain())
        self.assertIn("prefill_cpu: serves this problem", context.check("dtype=fp32,head_dim=64,heads=4,seqlen=64"))
        q, k, v = operands()
        o = np.empty_like(q)
        plan.run(q, k, v, o)
        self.assertLess(np.abs(o - expected(q, k, v)[0]).max(), 2e-5)
        again = np.empty_like(q)
        plan.launcher(q, k, v, again)()
        np.testing.assert_array_equal(o, again)

    def test_threads_share_a_plan(self):
        context = attune.Context("cpu", store="")
        plan = context.plan("dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen_q=33,seqlen_kv=47")
        q, k, v = operands()
        want = expected(q, k, v)[0]
        worst = []

        def work():
            o = np.empty_like(q)
            for _ in range(10):
                plan.run(q, k, v, o)
                worst.append(np.abs(o - want).max())

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(worst), 40)
        self.assertLess(max(worst), 2e-5)

    def test_errors_name_what_is_wrong(self):
        q, k, v = operands()
        with self.assertRaisesRegex(attune.Error, "head_dim_qk is 600") as caught:
            attune.attention(*(np.zeros((1, 4, 2, 600), np.float32) for _ in range(3)))
        self.assertEqual(caught.exception.status, "invalid_argument")
        with self.assertRaisesRegex(ValueError, "k has shape"):
            attune.Context("cpu", store="").plan("dtype=fp32,head_dim=64,heads=4/2,seqlen=8").run(q[:1, :8], k, v, q)
        with self.assertRaisesRegex(ValueError, "stride 2 in head_dim"):
            attune.attention(np.zeros((2, 33, 4, 128), np.float32)[..., ::2], k, v)
        with self.assertRaisesRegex(ValueError, "policy is 'fast'"):
            attune.Context("cpu", policy="fast")
        with self.assertRaises(attune.Error) as caught:
            attune.Context("cpu", store="", policy="strict").plan("dtype=fp32,head_dim=64,heads=4,seqlen=8")
        self.assertEqual(caught.exception.status, "not_tuned")

    def test_capture_notes_each_problem_once(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "problems.jsonl"
            context = attune.Context("cpu", store="", capture_file=file)
            for _ in range(3):
                context.plan("dtype=fp32,head_dim=64,heads=4,seqlen=8")
            self.assertEqual(len(file.read_text().splitlines()), 1)


if __name__ == "__main__":
    run()
