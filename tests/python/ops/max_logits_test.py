#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The largest logit of each head against float64, with NumPy and PyTorch on the device named by the first argument:
masks, windows, documents, ratios of heads, negative and equal scores, rows without keys, autograd, torch.compile, and
what is refused. Skips aloud (status 77) without NumPy, or without PyTorch and that device."""
import unittest

import attune
from caches import ints, numbers, run_tests, tensor
from library_and_device import DEVICE, np, torch

# batch, rows, keys, heads, heads_kv, head_dim, keywords
CASES = ((2, 70, 70, 6, 2, 64, dict(mask="causal")), (1, 5, 300, 4, 4, 128, {}),
         (3, 130, 90, 8, 1, 80, dict(window=(20, 5))),
         (1, 200, 200, 2, 2, 256, dict(mask="causal_bottom_right", window=(50, 0), scale=0.5)),
         (1, 65, 129, 16, 2, 64, dict(mask="causal_top_left")))


class MaxLogitsTest(unittest.TestCase):
    def operands(self, seed, batch, rows, keys, heads, heads_kv, d):
        random = np.random.default_rng(seed)
        return [tensor(random.standard_normal((batch, n, h, d)))
                for n, h in ((rows, heads), (keys, heads_kv), (keys, heads_kv))]

    def expected(self, q, k, mask=None, window=(-1, -1), scale=None, shown=True):
        q, k = numbers(q), numbers(k)
        rows, keys = q.shape[1], k.shape[1]
        scores = np.einsum("bqhd,bkhd->bhqk", q, np.repeat(k, q.shape[2] // k.shape[2], 2))
        at = np.arange(keys)[None] - np.arange(rows)[:, None] - (0 if mask == "causal_top_left" else keys - rows)
        shown = shown & (at <= (0 if mask else window[1] if window[1] >= 0 else keys)) & (
            at >= -(window[0] if window[0] >= 0 else keys + rows))
        scores = np.where(shown, scores * (q.shape[3]**-0.5 if scale is None else scale), -np.inf)
        return scores.max((0, 2, 3))

    def compare(self, got, want):
        self.assertEqual((tuple(got.shape), str(got.dtype).rpartition(".")[2]), (want.shape, "float32"))
        np.testing.assert_allclose(numbers(got), want, rtol=2e-5, atol=1e-5)

    def test_cases(self):
        for seed, (*shape, keywords) in enumerate(CASES):
            with self.subTest(shape=shape, **keywords):
                q, k, v = self.operands(seed, *shape)
                want_o, want_lse = attune.attention(q, k, v, return_lse=True, **keywords)
                for return_lse in (False, True):
                    for _ in range(3):  # the second call is repeated by the C module
                        o, *lse, logits = attune.attention(q, k, v, return_lse=return_lse, return_max_logits=True,
                                                           **keywords)
                        self.compare(logits, self.expected(q, k, **keywords))
                        np.testing.assert_array_equal(numbers(o), numbers(want_o))
                        for one in lse:
                            np.testing.assert_array_equal(numbers(one), numbers(want_lse))

    def test_negative_and_equal_scores(self):
        q, k, v = self.operands(1, 2, 40, 50, 4, 2, 64)
        low = abs(q) * -1
        self.compare(attune.attention(low, abs(k), v, return_max_logits=True)[1], self.expected(low, abs(k)))
        self.compare(attune.attention(q * 0, k, v, return_max_logits=True)[1], np.zeros(4))

    def test_documents_sinks_and_dropout(self):
        q, k, v = self.operands(3, 2, 90, 90, 4, 2, 64)
        ids = np.arange(90)[None] // 37 + np.zeros((2, 1), int)
        shown = (ids[:, :, None] == ids[:, None])[:, None]
        given = dict(documents=ints(ids), sinks=tensor(np.full(4, 50.0)), dropout_p=0.2, seed=5)
        self.compare(attune.attention(q, k, v, return_max_logits=True, **given)[1], self.expected(q, k, shown=shown))

    def test_no_rows_and_no_keys(self):
        q, k, v = self.operands(4, 1, 6, 6, 2, 1, 64)
        for given in ((q, k[:, :0], v[:, :0]), (q[:, :0], k, v)):
            np.testing.assert_array_equal(numbers(attune.attention(*given, return_max_logits=True)[1]), [-np.inf] * 2)
        logits = attune.attention(q, k, v, return_max_logits=True, key_lengths=ints([0]))[1]
        np.testing.assert_array_equal(numbers(logits), [-np.inf] * 2)

    def test_padded_head_dim_and_out(self):
        q, k, v = (x[..., :60] for x in self.operands(5, 1, 20, 30, 4, 2, 64))
        o, logits = attune.attention(q, k, v, return_max_logits=True, pad_head_dim=True)
        self.assertEqual(tuple(o.shape), tuple(q.shape))
        self.compare(logits, self.expected(q, k))
        q, k, v = self.operands(5, 1, 20, 30, 4, 2, 64)
        out = q * 0
        o, logits = attune.attention(q, k, v, out=out, return_max_logits=True)
        self.assertIs(o, out)
        self.compare(logits, self.expected(q, k))

    def test_autograd_and_graphs(self):
        if torch is None:
            self.skipTest("NumPy has neither")
        q, k, v = self.operands(6, 2, 50, 60, 4, 2, 64)
        want, found = self.expected(q, k, "causal_bottom_right"), []
        attend = lambda leaf, **given: attune.attention(leaf, k, v, "causal_bottom_right", return_lse=True, **given)
        compiled = torch.compile(lambda leaf: attend(leaf, return_max_logits=True), fullgraph=True, backend="aot_eager")
        for call in (attend, lambda leaf: attend(leaf, return_max_logits=True), compiled):
            leaf = q.clone().requires_grad_()
            o, lse, *logits = call(leaf)
            for one in logits:
                self.assertFalse(one.requires_grad)
                self.compare(one, want)
            (o.float().square().sum() + lse.sum()).backward()
            found.append(numbers(leaf.grad))
        for other in found[1:]:
            np.testing.assert_allclose(other, found[0], rtol=1e-3, atol=1e-3)
        given = dict(spec="mask=causal_bottom_right", return_lse=False)
        o, lse, logits = torch.ops.attune.attention_max_logits(q, k, v, **given)
        self.assertEqual(lse.numel(), 0)
        self.compare(logits, want)
        if DEVICE == "cpu":
            torch.library.opcheck(torch.ops.attune.attention_max_logits.default, (q, k, v), given)

    def test_refused(self):
        q, k, v = self.operands(7, 1, 8, 8, 2, 1, 64)
        bias = tensor(np.zeros((2, 8, 8)))
        slopes = tensor(np.ones(2)) if torch is None else torch.ones(2, device=DEVICE)
        for name, value in (("softcap", 20.0), ("bias", bias), ("alibi_slopes", slopes)):
            with self.assertRaisesRegex(attune.Error, "max_logits is 1 and (softcap|bias|alibi) is given"):
                attune.attention(q, k, v, return_max_logits=True, **{name: value})
        with self.assertRaisesRegex(TypeError, "return_max_logits is 1; must be True or False"):
            attune.attention(q, k, v, return_max_logits=1)


if __name__ == "__main__":
    run_tests()
