#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""top_k() against a stable sort, and index_scores() against float64, with NumPy on the CPU and with PyTorch on the
device named by the first argument; and both with attention over the chosen keys. Skips aloud (status 77) without NumPy,
or without PyTorch and that device."""
import unittest

import attune
from library_and_device import DEVICE, np, torch
from skips import skip

INF = float("inf")
TYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


def tensor(values, dtype="fp32"):
    """Returns a tensor of the library under test."""
    if torch is None:
        return np.asarray(values, TYPES.get(dtype, dtype))
    return torch.from_numpy(np.ascontiguousarray(values)).to(DEVICE, getattr(torch, TYPES.get(dtype, dtype)))


def numbers(x):
    if torch is None:
        return np.asarray(x)
    return (x.float() if x.is_floating_point() else x).cpu().numpy()


def chosen_list(scores, k):
    """Returns the list of one row by the definition, in Python: a stable sort by descending score."""
    keys = [key for key in range(len(scores)) if scores[key] != -INF]
    keys.sort(key=lambda key: (not np.isnan(scores[key]), 0 if np.isnan(scores[key]) else -scores[key]))
    return sorted(keys[:k])


class TopK(unittest.TestCase):
    def hold(self, scores, k, lengths=None, mask=None, like=None):
        """Compares each list with the definition. like: the tensor to give; default: scores itself."""
        values = numbers(scores)
        given = None if lengths is None else tensor(np.asarray(lengths), "int32")
        indices, counts = attune.top_k(scores if like is None else like, k, given, mask=mask)
        self.assertEqual(tuple(indices.shape), (*values.shape[:-1], k))
        self.assertEqual(tuple(counts.shape), values.shape[:-1])
        indices, counts = numbers(indices), numbers(counts)
        self.assertEqual((str(indices.dtype), str(counts.dtype)), ("int32", "int32"))
        for place in np.ndindex(counts.shape):
            row = place[0] if len(place) == 1 else place[1]
            rows, keys = values.shape[min(len(place) - 1, 1)], values.shape[-1]
            end = keys if lengths is None else max(0, min(keys, np.asarray(lengths)[place[:2]]))
            if mask is not None:
                end = max(0, min(end, row + 1 + (keys - rows if mask == "causal_bottom_right" else 0)))
            want = chosen_list(values[place][:end], k)
            self.assertEqual(counts[place], len(want), place)
            self.assertEqual(indices[place].tolist(), want + [-1] * (k - len(want)), place)

    def test_drawn_scores(self):
        random = np.random.default_rng(1)
        for dtype in ("fp32", "fp16") if torch is None else ("fp32", "fp16", "bf16"):
            for rows, keys, k in ((1, 1, 1), (3, 7, 3), (5, 64, 64), (4, 1001, 33), (2, 5000, 512), (1, 40000, 2048)):
                with self.subTest(dtype=dtype, rows=rows, keys=keys, k=k):
                    self.hold(tensor(random.standard_normal((rows, keys)), dtype), k)

    def test_ties_go_to_the_lower_index(self):
        random = np.random.default_rng(2)
        for values in (2, 5, 300):
            self.hold(tensor(random.integers(0, values, (3, 3000)) / 4), 500)
        self.hold(tensor(np.full((2, 3000), 1.5)), 7)
        self.hold(tensor(np.where(np.arange(3000) % 3 == 0, 0.0, -0.0)[None]), 900)  # 0 equals -0

    def test_infinities_and_nan(self):
        random = np.random.default_rng(3)
        some = np.array([INF, -INF, np.nan, -np.nan, 0, -0.0, 1, -1, 1e-40, 3e38])
        for k in (1, 150, 400, 1000):
            self.hold(tensor(some[random.integers(0, len(some), (4, 1000))]), k)
        self.hold(tensor(np.full((2, 50), -INF)), 8)  # empty lists
        self.hold(tensor(np.full((2, 50), np.nan)), 8)

    def test_more_wanted_than_there_are(self):
        self.hold(tensor(np.arange(10.0)[None]), 16)
        self.hold(tensor(np.arange(10.0)[None]), 10)

    def test_lengths_and_masks(self):
        random = np.random.default_rng(4)
        scores = tensor(random.standard_normal((5, 600)))
        self.hold(scores, 50, lengths=[0, 1, 49, 300, 600])
        self.hold(scores, 50, lengths=[-5, 2 ** 31 - 1, 601, 2, 51])
        self.hold(scores, 597, mask="causal_bottom_right")
        self.hold(scores, 3, mask="causal_top_left", lengths=[4, 1, 1, 5, 5])
        wide = tensor(random.standard_normal((9, 4)))  # the first rows see nothing
        self.hold(wide, 2, mask="causal_bottom_right")

    def test_axes_and_strides(self):
        random = np.random.default_rng(5)
        self.hold(tensor(random.standard_normal((2, 3, 500))), 20, lengths=random.integers(0, 500, (2, 3)))
        self.hold(tensor(random.standard_normal((2, 3, 2, 500))), 20, lengths=random.integers(0, 500, (2, 3)))
        wide = tensor(random.standard_normal((6, 1010)))
        self.hold(wide[::2, 3:900], 20)  # a copy
        self.hold(wide[:, ::2], 20)  # another
        self.hold(wide[1:5, 8:1000], 20)

    def test_no_elements(self):
        indices, counts = attune.top_k(tensor(np.zeros((3, 0))), 5)
        self.assertEqual((numbers(indices).tolist(), numbers(counts).tolist()), ([[-1] * 5] * 3, [0] * 3))
        indices, counts = attune.top_k(tensor(np.zeros((0, 4))), 5)
        self.assertEqual((tuple(indices.shape), tuple(counts.shape)), ((0, 5), (0,)))

    def test_refusals_name_the_argument(self):
        scores = tensor(np.zeros((2, 8)))
        for words, call in (
            (r"k is 0; must be at least 1", lambda: attune.top_k(scores, 0)),
            (r"k is True; must be a whole number", lambda: attune.top_k(scores, True)),
            (r"scores has 1 dimensions, shape \(8,\); must be", lambda: attune.top_k(scores[0], 2)),
            (r"scores is int32; must be fp32, bf16 or fp16",
             lambda: attune.top_k(tensor(np.zeros((2, 8)), "int32"), 2)),
            (r"lengths has shape \(3,\); must be \(2,\)",
             lambda: attune.top_k(scores, 2, tensor(np.zeros(3), "int32"))),
            (r"lengths is fp32; must be int32", lambda: attune.top_k(scores, 2, tensor(np.zeros(2)))),
            (r"scores is of type list; must be", lambda: attune.top_k([[1.0]], 2)),
            (r"mask is \"sliding\"", lambda: attune.top_k(scores, 2, mask="sliding")),
            (r"mask is causal, with 2 queries and 8 keys", lambda: attune.top_k(scores, 2, mask="causal"))):
            with self.subTest(words=words), self.assertRaisesRegex((ValueError, TypeError, attune.Error), words):
                call()

    def test_prepare_writes_nothing(self):
        plan = attune.prepare(attune.top_k, tensor(np.zeros((2, 640))), 64)
        self.assertIn("top_k", plan.explain())


class IndexScores(unittest.TestCase):
    def draw(self, random, batch, rows, keys, heads, heads_kv, head_dim, dtype):
        q, k = (tensor(random.standard_normal(shape), dtype)
                for shape in ((batch, rows, heads, head_dim), (batch, keys, heads_kv, head_dim)))
        return q, k, tensor(random.standard_normal((batch, rows, heads)))

    def hold(self, q, k, weights, lengths=None, mask=None, **more):
        """Compares scores with float64, within the error of sums in fp32."""
        given = None if lengths is None else tensor(lengths, "int32")
        got = numbers(attune.index_scores(q, k, weights, given, mask=mask, **more))
        q, k, weights = (numbers(x).astype(np.float64) for x in (q, k, weights))
        (batch, rows, heads, _), (keys, heads_kv) = q.shape, k.shape[1:3]
        products = np.einsum("brhd,bkhd->brhk", q, np.repeat(k, heads // heads_kv, 2))
        terms = weights[..., None] * np.maximum(products, 0)
        grouped = terms.reshape(batch, rows, heads_kv, heads // heads_kv, keys)
        want, allowed = grouped.sum(3), 1e-5 * (1 + np.abs(grouped).sum(3))
        end = np.full((batch, rows), keys) if lengths is None else np.asarray(lengths)
        if mask is not None:
            end = np.minimum(end, np.arange(1, rows + 1) + (keys - rows if mask == "causal_bottom_right" else 0))
        hidden = np.broadcast_to((np.arange(keys) >= end[..., None])[:, :, None], want.shape)
        if heads_kv == 1:
            self.assertEqual(got.shape, (batch, rows, keys))
            got = got[:, :, None]
        self.assertTrue((got[hidden] == -INF).all())
        self.assertTrue((np.abs(got - want) <= allowed)[~hidden].all())

    def test_drawn_operands(self):
        random = np.random.default_rng(1)
        types = {"": ("fp32", "fp16"), "cpu": ("fp32", "bf16", "fp16"), "cuda": ("bf16", "fp16")}[DEVICE]
        for dtype in types:
            for shape in ((1, 1, 1, 1, 1, 32), (2, 5, 300, 8, 1, 64), (1, 70, 257, 12, 3, 128), (3, 2, 33, 64, 1, 96)):
                with self.subTest(dtype=dtype, shape=shape):
                    self.hold(*self.draw(random, *shape, dtype))

    def test_lengths_and_masks(self):
        random = np.random.default_rng(2)
        operands = self.draw(random, 2, 6, 300, 4, 1, 64, "fp16")
        self.hold(*operands, lengths=np.array([[0, 1, 16, 17, 300, 999], [-1, 64, 255, 256, 257, 299]]))
        self.hold(*operands, mask="causal_bottom_right")
        self.hold(*operands, mask="causal_top_left", lengths=np.full((2, 6), 4))

    def test_nan_stays_and_does_not_spread(self):
        q, k, weights = self.draw(np.random.default_rng(3), 1, 2, 40, 4, 1, 64, "fp16")
        k[0, 7, 0, 3] = float("nan")
        got = numbers(attune.index_scores(q, k, weights))
        self.assertTrue(np.isnan(got[:, :, 7]).all())
        self.assertEqual(np.isnan(got).sum(), 2)

    def test_strides(self):
        q, k, weights = self.draw(np.random.default_rng(4), 2, 8, 64, 8, 2, 64, "fp16")
        self.hold(q[:, ::2, 2:6], k[:, 8:48, 1:], weights[:, ::2, 2:6])

    def test_factors_of_8_bit_keys(self):
        random = np.random.default_rng(5)
        q, k, weights = self.draw(random, 2, 5, 90, 4, 1, 64, "fp32")
        (q8, q_scale), (k8, k_scale) = (attune.quantise(x, "e4m3") for x in (q, k))
        factors = tensor(1 + random.random((2, 90)))
        named = dict(dtype="e4m3") if torch is None else {}
        got = attune.index_scores(q8, k8, weights, k_scale=factors, **named)
        whole = attune.index_scores(q8, k8, weights, **named)
        np.testing.assert_allclose(numbers(got), numbers(whole) * numbers(factors)[:, None], rtol=1e-6)
        shown = numbers(whole) * (numbers(q_scale).max() * numbers(k_scale).max())  # near scores of whole numbers
        self.assertGreater(np.corrcoef(shown.ravel(), numbers(attune.index_scores(
            *(tensor(numbers(x), "fp16") for x in (q, k)), weights)).ravel())[0, 1], 0.99)

    def test_refusals_name_the_argument(self):
        q, k, weights = self.draw(np.random.default_rng(6), 1, 2, 16, 4, 1, 32, "fp16")
        for words, call in (
            (r"weights has shape \(1, 2, 3\); must be \(1, 2, 4\)",
             lambda: attune.index_scores(q, k, weights[..., :3])),
            (r"weights is fp16; must be fp32", lambda: attune.index_scores(q, k, tensor(numbers(weights), "fp16"))),
            (r"k has shape", lambda: attune.index_scores(q, k[..., :16], weights)),
            (r"k_scale is given and k is fp16", lambda: attune.index_scores(q, k, weights,
                                                                            k_scale=tensor(np.ones((1, 16))))),
            (r"num_heads_kv is 3", lambda: attune.index_scores(q, tensor(np.zeros((1, 16, 3, 32)), "fp16"), weights))):
            with self.subTest(words=words), self.assertRaisesRegex((ValueError, TypeError, attune.Error), words):
                call()


class SparseLayer(unittest.TestCase):
    def test_attention_over_chosen_keys_equals_float64(self):
        random = np.random.default_rng(7)
        batch, rows, keys, chosen = 2, 3, 200, 32
        q, k, v = (tensor(random.standard_normal(shape), "fp16")
                   for shape in ((batch, rows, 8, 64), (batch, keys, 2, 64), (batch, keys, 2, 64)))
        index = IndexScores().draw(random, batch, rows, keys, 4, 1, 32, "fp16")
        lengths = np.array([[150, 151, 152], [198, 199, 200]])
        scores = attune.index_scores(*index, tensor(lengths, "int32"))
        indices, counts = attune.top_k(scores, chosen, tensor(lengths, "int32"))
        o = numbers(attune.attention_kvcache(q, k, v, tensor(np.array([152, 200]), "int32"), key_indices=indices,
                                             key_counts=counts)).astype(np.float64)
        scores, q, k, v = numbers(scores), *(numbers(x).astype(np.float64) for x in (q, k, v))
        for b, r, h in np.ndindex(batch, rows, 8):
            best = chosen_list(scores[b, r, :lengths[b, r]], chosen)
            self.assertEqual(numbers(indices)[b, r].tolist(), best)
            s = k[b, best, h // 4] @ q[b, r, h] / 8
            p = np.exp(s - s.max())
            np.testing.assert_allclose(o[b, r, h], p @ v[b, best, h // 4] / p.sum(), atol=4e-3)


if __name__ == "__main__":
    if torch is None:
        try:
            attune.Context("cpu:1")
        except attune.Error as error:
            skip(error)
    unittest.main()
