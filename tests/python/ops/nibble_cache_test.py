#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""4-bit caches: append_kv() writes codes and factors, attention_kvcache() reads them. Codes are compared with rows, and
results with float64 over the cache's content. Uses PyTorch on the device named by the first argument, or NumPy without
an argument. Skips aloud (status 77) without the libraries or that device."""
import unittest

import attune
from caches import expected, ints, numbers, run_tests
from library_and_device import DEVICE, np, torch
from narrow_values import values_of_codes

KEYS, HEADS, PAGE, PAGES, WIDTH = (37, 1, 16), 2, 8, 20, 5  # keys per request; page size; pages; columns of the table
TABLE = np.random.default_rng(1).permutation(PAGES)[:len(KEYS) * WIDTH].reshape(len(KEYS), WIDTH)
VALUES = {
    "int4": np.where(np.arange(16) < 8, np.arange(16), np.arange(16) - 16.0),
    "e2m1": np.array([1, -1])[:, None].repeat(8, 1).reshape(-1) * np.tile([0, 0.5, 1, 1.5, 2, 3, 4, 6], 2)}
MOST = {"int4": 7, "e2m1": 6}


def half(values):
    values = np.asarray(values, np.float32)
    return values.astype(np.float16) if torch is None else torch.from_numpy(values).to(DEVICE, torch.float16)


def bytes_of(shape):
    return np.full(shape, 0xee, np.uint8) if torch is None else torch.full(shape, 0xee, dtype=torch.uint8,
                                                                          device=DEVICE)


def raw(x):
    return x if torch is None else x.cpu().numpy()


def values_of(codes, factors, dtype, columns, of_head):
    """Returns the values of a cache, [.., head_dim] in float64."""
    codes, factors = raw(codes), values_of_codes("e4m3")[np.ascontiguousarray(raw(factors))]
    both = np.stack([VALUES[dtype][codes & 15], VALUES[dtype][codes >> 4]], -1).reshape(*codes.shape[:-1], -1)
    return both * factors.repeat(columns, -1) * of_head


class NibbleCacheTest(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(3)

    def caches(self, d, columns, by_head=True):
        """Returns codes and factors. by_head: the keys of a head are side by side."""
        codes = bytes_of((PAGES, PAGE, HEADS, d // 2))
        if not by_head:  # both in the same pages
            row = d // 2 + 16
            page = bytes_of((PAGES, PAGE, HEADS, row))
            return page[..., :d // 2], page[..., d // 2:d // 2 + d // columns]
        factors = bytes_of((PAGES, HEADS, PAGE, d // columns))
        return codes, factors.transpose(0, 2, 1, 3) if torch is None else factors.transpose(1, 2)

    def test_append_and_attend(self):
        for dtype, columns, d, scale, by_head in (("int4", 16, 128, 1.0, True), ("e2m1", 32, 128, 0.25, False),
                                                  ("int4", 16, 64, None, False), ("e2m1", 16, 256, 2.0, True)):
            with self.subTest(dtype=dtype, columns=columns, d=d):
                (k_cache, k_factors), (v_cache, v_factors) = (self.caches(d, columns, by_head) for _ in "kv")
                length, of_head = max(KEYS), 1.0 if scale is None else scale
                k, v = (self.random.standard_normal((len(KEYS), length, HEADS, d)) for _ in "kv")
                begins = np.cumsum((0, *KEYS))
                rows = [half(np.concatenate([x[b, :n] for b, n in enumerate(KEYS)])) for x in (k, v)]
                cache = dict(page_table=ints(TABLE), kv_lengths=ints(KEYS), k_scale=scale, v_scale=scale,
                             k_factors=k_factors, v_factors=v_factors, dtype_kv=dtype)
                attune.append_kv(*rows, k_cache, v_cache, q_begins=ints(begins), seqlen_q=length, **cache)
                keys, values = (values_of(*of, dtype, columns, of_head)[TABLE].reshape(len(KEYS), -1, HEADS, d)
                                for of in ((k_cache, k_factors), (v_cache, v_factors)))
                for made, given in ((keys, rows[0]), (values, rows[1])):
                    wanted = numbers(given)
                    for b, n in enumerate(KEYS):
                        self.check_rounding(made[b, :n], wanted[begins[b]:begins[b + 1]], dtype, columns)
                q = half(self.random.standard_normal((len(KEYS), 1, 2 * HEADS, d)))
                o, lse = attune.attention_kvcache(q, k_cache, v_cache, return_lse=True, **cache)
                for b, n in enumerate(KEYS):
                    want, want_lse = expected(numbers(q)[b], keys[b, :n], values[b, :n])
                    np.testing.assert_allclose(numbers(o)[b], want, atol=4e-3, rtol=4e-3)
                    np.testing.assert_allclose(numbers(lse)[b], want_lse, atol=4e-3)

    def check_rounding(self, made, wanted, dtype, columns):
        """Each value is within half a step of the largest code that its group has, or the group was clamped."""
        groups = wanted.reshape(*wanted.shape[:-1], -1, columns)
        step = np.abs(groups).max(-1, keepdims=True) / MOST[dtype] * (1 if dtype == "int4" else 2)
        error = np.abs(made.reshape(groups.shape) - groups)
        self.assertLess((error / step).max(), 0.5 * 1.07 + 1e-3)  # the factor is rounded to 4 bits
        self.assertGreater((error / step).max(), 0.3)

    def test_refusals(self):
        (k_cache, k_factors), (v_cache, v_factors) = (self.caches(128, 16) for _ in "kv")
        q = half(np.zeros((len(KEYS), 1, HEADS, 128)))
        given = dict(page_table=ints(TABLE), kv_lengths=ints(KEYS), dtype_kv="int4")
        for text, more in (("k_factors is None", {}), ("given alone", dict(k_factors=k_factors)),
                           ("must be 8 or 4", dict(k_factors=k_factors[..., :5], v_factors=v_factors)),
                           ("v_factors has shape", dict(k_factors=k_factors, v_factors=v_factors[..., :4])),
                           ("must be None", dict(k_factors=k_factors, v_factors=v_factors, dtype_kv="e4m3"))):
            with self.subTest(text), self.assertRaisesRegex(ValueError, text):
                attune.attention_kvcache(q, k_cache, v_cache, **{**given, **more})
        with self.assertRaisesRegex(ValueError, "make_scales is True with k_factors"):
            attune.append_kv(q[:, :, :HEADS], q[:, :, :HEADS], k_cache, v_cache, **given, k_factors=k_factors,
                             v_factors=v_factors, make_scales=True)
        with self.assertRaisesRegex((ValueError, attune.Error), "must be aligned|multiple of 8"):
            attune.attention_kvcache(q, k_cache, v_cache, **given, k_factors=bytes_of(
                (PAGES, PAGE, HEADS, 9))[..., 1:], v_factors=v_factors)

    def test_compiled_graphs(self):
        if torch is None or DEVICE != "cpu":
            self.skipTest("compares a traced call with an eager one, on a CPU")
        (k_cache, k_factors), (v_cache, v_factors) = (self.caches(64, 32) for _ in "kv")
        k_factors, v_factors = (x.new_zeros((PAGES, PAGE, HEADS, 4))[..., :2] for x in (k_factors, v_factors))
        rows, q = (half(self.random.standard_normal((len(KEYS), 1, heads, 64))) for heads in (HEADS, 2 * HEADS))
        cache = dict(page_table=ints(TABLE), kv_lengths=ints(KEYS), dtype_kv="e2m1", k_factors=k_factors,
                     v_factors=v_factors)

        def step(q, rows):
            attune.append_kv(rows, rows, k_cache, v_cache, **cache)
            return attune.attention_kvcache(q, k_cache, v_cache, **cache)

        want = step(q, rows)
        before = k_cache.clone(), k_factors.clone()
        k_cache.fill_(0), k_factors.fill_(0)
        step(q, rows)
        got = torch.compile(step, backend="aot_eager", fullgraph=True)(q, rows)
        self.assertEqual(got.shape, want.shape)
        at = TABLE[0, (KEYS[0] - 1) // PAGE], (KEYS[0] - 1) % PAGE
        self.assertTrue(torch.equal(k_cache[at], before[0][at]) and torch.equal(k_factors[at], before[1][at]))


run_tests()
