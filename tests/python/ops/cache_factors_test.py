#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""8-bit caches with factors per page, or per key and head: append_kv() computes them, and attention_kvcache() reads
them through any strides. Compared with float64 over the cache's content. Uses PyTorch on the device named by the first
argument, or NumPy without an argument. Skips aloud (status 77) without the libraries or that device."""
import unittest

import attune
from caches import expected, ints, numbers
from library_and_device import DEVICE, np, torch
from narrow_values import values_of_codes

LARGEST = {"int8": 127.0, "e4m3": 448.0, "e5m2": 57344.0}
LIMIT = 4e-3
KEYS, HEADS, PAGE, PAGES, WIDTH = (37, 1, 16), 2, 8, 20, 5  # keys per request; page size; pages; columns of the table
TABLE = np.random.default_rng(1).permutation(PAGES)[:len(KEYS) * WIDTH].reshape(len(KEYS), WIDTH)


def half(values):
    values = np.asarray(values, np.float32)
    return values.astype(np.float16) if torch is None else torch.from_numpy(values).to(DEVICE, torch.float16)


def floats(values):
    values = np.ascontiguousarray(values, np.float32)
    return values if torch is None else torch.from_numpy(values).to(DEVICE)


def filled(shape, dtype, byte=0x7f):
    """A cache of 8 bits."""
    if torch is None:
        return np.full(shape, byte, np.int8 if dtype == "int8" else np.uint8)
    made = torch.full(shape, byte, dtype=torch.uint8, device=DEVICE)
    return made.view({"int8": torch.int8, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[dtype])


def codes(cache, dtype):
    """Returns the values of a cache, in float64."""
    if torch is not None:
        return cache.float().double().cpu().numpy()
    if dtype == "int8":
        return cache.astype(np.float64)
    return values_of_codes(dtype)[cache]


def of_request(b, cache, scale):
    """Returns the [keys, heads, d] of a request in a paged cache. scale: [pages, keys, heads]; an axis of size 1
    broadcasts."""
    pages = TABLE[b]
    values = (cache * np.broadcast_to(scale, cache.shape[:3])[..., None])[pages]
    return values.reshape(-1, *values.shape[2:])[:KEYS[b]]


class CacheFactorsTest(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(3)
        if DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
            self.skipTest("GPUs before sm_89 convert int8 alone")

    def draw(self, *shape):
        return self.random.normal(size=shape)

    def types(self):
        return ("int8", "e4m3") if torch is None else ("int8", "e4m3", "e5m2")

    def attend(self, q, k, v, k_scale, v_scale, dtype, **keywords):
        return attune.attention_kvcache(q, k, v, ints(KEYS), page_table=ints(TABLE), k_scale=k_scale, v_scale=v_scale,
                                        is_causal=True, return_lse=True, dtype_kv=dtype if torch is None else None,
                                        **keywords)

    def check(self, q, k, v, k_scale, v_scale, dtype):
        """Compares with float64 over the cache's content. Scales are [pages, keys, heads], or have axes of size 1."""
        o, lse = self.attend(q, k, v, k_scale, v_scale, dtype)
        for b in range(len(KEYS)):
            keys, values = (of_request(b, codes(x, dtype), numbers(s)) for x, s in ((k, k_scale), (v, v_scale)))
            rows = min(q.shape[1], KEYS[b])
            want, want_lse = expected(numbers(q)[b], keys, values, causal=True)
            np.testing.assert_allclose(
                numbers(o)[b][-rows:], want[-rows:], atol=LIMIT * np.abs(values).max(), rtol=LIMIT)
            np.testing.assert_allclose(numbers(lse)[b][:, -rows:], want_lse[:, -rows:], atol=1e-2)
        return o

    def test_factors_that_appending_makes(self):
        for dtype in self.types():
            with self.subTest(dtype=dtype):
                rows, d, dv = max(KEYS), 64, 48
                magnitudes = np.exp(
                    self.random.normal(size=(len(KEYS), rows, HEADS, 1)) * 2)  # rows of very different sizes
                new_k, new_v = self.draw(len(KEYS), rows, HEADS, d), self.draw(len(KEYS), rows, HEADS, dv) * magnitudes
                new_v[0, -2, 1] = 0
                k, v = filled((PAGES, PAGE, HEADS, d), dtype), filled((PAGES, PAGE, HEADS, dv), dtype)
                scales = [floats(np.full((PAGES, PAGE, HEADS), np.nan)) for _ in "kv"]
                attune.append_kv(half(new_k), half(new_v), k, v, ints(KEYS), page_table=ints(TABLE), k_scale=scales[0],
                                 v_scale=scales[1], make_scales=True, dtype_kv=dtype if torch is None else None)
                for cache, scale, new in ((k, scales[0], new_k), (v, scales[1], new_v)):
                    for b, length in enumerate(KEYS):
                        given = np.float16(new[b, rows - length:]).astype(np.float64)
                        factor = np.abs(given).max(-1) / LARGEST[dtype]
                        found = numbers(scale)[TABLE[b]].reshape(-1, HEADS)
                        np.testing.assert_allclose(found[:length], np.maximum(factor, 2.0 ** -126), rtol=1e-6)
                        self.assertTrue(np.isnan(found[length:]).all())  # no other place is written
                        held = of_request(b, codes(cache, dtype), numbers(scale))
                        step = {"int8": 0.5, "e4m3": 16, "e5m2": 4096}[dtype]  # step between the largest codes
                        self.assertTrue((np.abs(held - given) <= 1.001 * step * factor[..., None]).all())
                self.check(half(self.draw(len(KEYS), 3, 3 * HEADS, d)), k, v, *scales,
                           dtype)  # factors after the last key are NaN

    def test_factors_of_pages_and_of_part_of_the_axes(self):
        for dtype in self.types():
            for shape in ((PAGES, 1, 1), (PAGES, 1, HEADS), (1, PAGE, 1), (PAGES, PAGE, 1)):
                with self.subTest(dtype=dtype, shape=shape):
                    d = 80
                    k, v = (filled((PAGES, PAGE, HEADS, d), dtype) for _ in "kv")
                    k_scale, v_scale = (floats(np.exp(self.draw(*shape)) / LARGEST[dtype] * 3) for _ in "kv")
                    new = [half(self.draw(len(KEYS), max(KEYS), HEADS, d)) for _ in "kv"]
                    attune.append_kv(*new, k, v, ints(KEYS), page_table=ints(TABLE), k_scale=k_scale, v_scale=v_scale,
                                     dtype_kv=dtype if torch is None else None)
                    self.check(half(self.draw(len(KEYS), 2, 4 * HEADS, d)), k, v, k_scale, v_scale, dtype)
                    if shape == (PAGES, 1, HEADS):  # the other tensor has one factor for all
                        plain = floats(np.full((1, 1, 1), 0.03))
                        self.check(half(self.draw(len(KEYS), 2, 4 * HEADS, d)), k, v, k_scale, plain, dtype)

    def test_factors_between_the_rows(self):
        """Each row of the cache is followed by its factor and 12 idle bytes."""
        for dtype in self.types():
            with self.subTest(dtype=dtype):
                d, caches, scales = 64, [], []
                for _ in "kv":
                    memory = np.zeros((PAGES, PAGE, HEADS, d + 16), np.uint8)
                    memory = memory if torch is None else torch.from_numpy(memory).to(DEVICE)
                    native = np.int8 if dtype == "int8" else np.uint8
                    whole = memory.view(native if torch is None else filled((1,), dtype).dtype)
                    caches.append(whole[..., :d])
                    scales.append(memory[..., d:d + 4].view(np.float32 if torch is None else torch.float32)[..., 0])
                new = [half(self.draw(len(KEYS), max(KEYS), HEADS, d)) for _ in "kv"]
                attune.append_kv(*new, *caches, ints(KEYS), page_table=ints(TABLE), k_scale=scales[0],
                                 v_scale=scales[1], make_scales=True, dtype_kv=dtype if torch is None else None)
                self.check(half(self.draw(len(KEYS), 1, 2 * HEADS, d)), *caches, *scales, dtype)

    def test_rows_do_not_change_other_rows(self):
        """The factor of a row of zeros is below all others. A row that is not finite only affects rows that see its
        key. -0 counts as 0."""
        d, length = 64, 37
        k, v = (filled((PAGES, PAGE, HEADS, d), "int8", 0) for _ in "kv")
        scales = [floats(np.full((PAGES, PAGE, HEADS), np.nan)) for _ in "kv"]
        new = [self.draw(len(KEYS), max(KEYS), HEADS, d) * size for size in (1, 1e-3)]
        new[1][0, 5:7] = 0
        attune.append_kv(*(half(x) for x in new), k, v, ints(KEYS), page_table=ints(TABLE), k_scale=scales[0],
                         v_scale=scales[1], make_scales=True, dtype_kv="int8" if torch is None else None)
        self.check(half(self.draw(len(KEYS), 3, 3 * HEADS, d)), k, v, *scales, "int8")
        q = half(self.draw(len(KEYS), 3, HEADS, d))
        good, _ = self.attend(q, k, v, *scales, "int8")
        last, row = (int(TABLE[0][(length - 1) // PAGE]), (length - 1) % PAGE)
        for bad in (np.nan, np.inf, -0.0):
            held = float(numbers(scales[1])[last, row, 0])
            scales[1][last, row, 0] = bad
            o, _ = self.attend(q, k, v, *scales, "int8")
            scales[1][last, row, 0] = held
            np.testing.assert_array_equal(numbers(o)[0, :2], numbers(good)[0, :2])  # rows that do not see the key
            self.assertEqual(bool(np.isfinite(numbers(o)[0, 2, 0]).any()), bad == 0)

    def test_packed_keys_and_slots(self):
        begins, d = np.concatenate([[0], np.cumsum(KEYS)]), 64
        total = begins[-1]
        k, v = (self.random.integers(-127, 128, (total, HEADS, d)).astype(np.int8) for _ in "kv")
        k_scale, v_scale = (np.exp(self.draw(total, HEADS)).astype(np.float32) * 0.02 for _ in "kv")
        q = half(self.draw(len(KEYS), HEADS * 2, d))

        def native(x):
            return x if torch is None else torch.from_numpy(x).to(DEVICE)

        o = attune.attention_kvcache(q, native(k), native(v), q_begins=ints(range(len(KEYS) + 1)), seqlen_q=1,
                                     kv_begins=ints(begins), seqlen_kv=max(KEYS), k_scale=floats(k_scale),
                                     v_scale=floats(v_scale))
        slots = [np.zeros((len(KEYS), max(KEYS), *x.shape[1:]), x.dtype) for x in (k, v, k_scale, v_scale)]
        for b, length in enumerate(KEYS):
            here = slice(begins[b], begins[b + 1])
            for slot, x in zip(slots, (k, v, k_scale, v_scale)):
                slot[b, :length] = x[here]
            want, _ = expected(
                numbers(q)[b][None], k[here] * k_scale[here][..., None].astype(np.float64),
                v[here] * v_scale[here][..., None].astype(np.float64))
            np.testing.assert_allclose(numbers(o)[b], want[0], atol=LIMIT * np.abs(want).max(), rtol=LIMIT)
        for wrong in (k_scale[..., None], k_scale[None]):
            with self.assertRaisesRegex(ValueError,
                                        r"k_scale has shape .*; must be .*\[keys of all requests, num_heads_kv\]"):
                attune.attention_kvcache(q[:1],
                                         native(k), native(v), q_begins=ints([0, 1]), seqlen_q=1, kv_begins=ints([
                                             0, total]), seqlen_kv=int(total), k_scale=floats(wrong), v_scale=1.0)
        none = attune.attention_kvcache(q[:1], native(k[:0]), native(v[:0]), q_begins=ints([0, 1]), seqlen_q=1,
                                        kv_begins=ints([0, 0]), seqlen_kv=0, k_scale=floats(k_scale[:0]),
                                        v_scale=floats(v_scale[:0]))
        self.assertTrue((numbers(none) == 0).all())
        of_slots = attune.attention_kvcache(q[:, None], native(slots[0]), native(slots[1]), ints(KEYS),
                                            k_scale=floats(slots[2]), v_scale=floats(slots[3]))
        np.testing.assert_allclose(numbers(of_slots)[:, 0], numbers(o), atol=2e-3 * np.abs(numbers(o)).max())

    def test_laws(self):
        """Equal factors equal one common factor. A power of two on V's factors multiplies the results, although weights
        have 16 bits."""
        d = 128
        k, v = (filled((PAGES, PAGE, HEADS, d), "int8", 0) for _ in "kv")
        ones = floats(np.full((1, 1, 1), 0.02))
        attune.append_kv(*(half(self.draw(len(KEYS), max(KEYS), HEADS, d)) for _ in "kv"), k, v, ints(KEYS),
                         page_table=ints(TABLE), k_scale=ones, v_scale=ones, dtype_kv="int8" if torch is None else None)
        q, alike = half(self.draw(len(KEYS), 1, HEADS, d)), floats(np.full((PAGES, PAGE, HEADS), 0.02))
        each, lse = self.attend(q, k, v, alike, alike, "int8")
        one, one_lse = self.attend(q, k, v, 0.02, 0.02, "int8")
        np.testing.assert_allclose(numbers(each), numbers(one), atol=2e-3)
        np.testing.assert_allclose(numbers(lse), numbers(one_lse), atol=1e-4)
        scales = np.exp2(np.round(self.draw(PAGES, PAGE, HEADS) * 3))
        for factor in (2.0 ** -60, 2.0 ** -12):
            small, _ = self.attend(q, k, v, alike, floats(scales * 2.0 ** -8), "int8")
            scaled, _ = self.attend(q, k, v, alike, floats(scales * 2.0 ** -8 * factor), "int8")
            if factor == 2.0 ** -12:  # fp16 rounds results that small
                np.testing.assert_allclose(
                    numbers(scaled) / factor, numbers(small), atol=1e-3 * np.abs(numbers(small)).max())
            else:
                self.assertTrue(np.isfinite(numbers(scaled)).all())
        zero, _ = self.attend(q, k, v, floats(np.zeros((PAGES, PAGE, 1))), floats(np.zeros((PAGES, PAGE, 1))), "int8")
        self.assertTrue((numbers(zero) == 0).all())

    def test_factors_that_do_not_fit_are_refused(self):
        d = 64
        k, v = (filled((PAGES, PAGE, HEADS, d), "int8", 0) for _ in "kv")
        q, new = half(self.draw(len(KEYS), 1, HEADS, d)), half(self.draw(len(KEYS), 1, HEADS, d))
        good = floats(np.ones((PAGES, PAGE, HEADS)))
        for scale, error in ((floats(np.ones(
            (PAGES + 1, 1,
             1))), r"k_scale has shape \(21, 1, 1\); must be \[num_pages, page_size, num_heads_kv\]"), (floats(
                 np.ones(2)), r"k_scale has shape \(2,\); must be \[\], \[1, num_heads_kv\] for"), (floats(
                     np.ones(
                         (2, HEADS))), r"k_scale has shape \(2, .\); must be \[\], \[1, num_heads_kv\] for"), (floats(
                             np.ones((PAGES, PAGE, HEADS + 1))), "a divisor of the number of heads"), (half(
                                 np.ones((PAGES, PAGE, 1))), "k_scale is fp16")):
            with self.assertRaisesRegex(ValueError, error):
                self.attend(q, k, v, scale, 1.0, "int8")
        append = dict(page_table=ints(TABLE), make_scales=True, dtype_kv="int8" if torch is None else None)
        with self.assertRaisesRegex(ValueError,
                                    "v_scale has shape .* and make_scales is True; must be a float32 tensor"):
            attune.append_kv(new, new, k, v, ints(KEYS), k_scale=good, v_scale=1.0, **append)
        with self.assertRaisesRegex(ValueError, "v_scale and k_scale overlap in memory"):
            attune.append_kv(new, new, k, v, ints(KEYS), k_scale=good, v_scale=good, **append)
        for small in (floats(np.ones((PAGES, 1, HEADS))), floats(np.ones((PAGES, PAGE, 1)))):
            with self.assertRaisesRegex(ValueError, "k_scale has shape .*, and the call writes it; must be"):
                attune.append_kv(new, new, k, v, ints(KEYS), k_scale=small, v_scale=good, **append)
        shape, strides = (PAGES, PAGE, HEADS), (HEADS, HEADS, 1)
        small = floats(np.ones(shape))
        small = np.lib.stride_tricks.as_strided(
            small, shape, [4 * n for n in strides]) if torch is None else small.as_strided(shape, strides)
        with self.assertRaisesRegex(attune.Error, "k_scale.*stride is .* elements and overlaps"):
            attune.append_kv(new, new, k, v, ints(KEYS), k_scale=small, v_scale=good, **append)
        with self.assertRaisesRegex(ValueError,
                                    "k_scale is given, and the cache is fp16; only caches of 8 or 4 bits have factors"):
            wide = half(self.draw(PAGES, PAGE, HEADS, d))
            attune.append_kv(new, new, wide, half(self.draw(PAGES, PAGE, HEADS, d)), ints(KEYS), page_table=ints(TABLE),
                             k_scale=good, v_scale=good, make_scales=True)


if __name__ == "__main__":
    unittest.main()
