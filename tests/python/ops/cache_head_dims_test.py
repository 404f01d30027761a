#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attention_kvcache() and append_kv() with head dims above 256 or that kernels do not serve directly, and angles whose
rows have any alignment, against float64. With NumPy on the CPU and with PyTorch on the device named by the first
argument. Skips aloud (status 77) without NumPy, or without PyTorch and that device."""
import unittest
import warnings

import attune
import attune.ops.padding
from caches import DTYPE, LIMIT, Cache, expected, ints, numbers, run_tests, tensor, turned
from library_and_device import DEVICE, np, torch

DIMS = ((8, 8), (59, 59), (20, 8), (16, 12), (8, 64))


class HeadDimsTest(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(3)
        warnings.simplefilter("ignore", UserWarning)
        self.addCleanup(warnings.resetwarnings)

    def draw(self, *shape):
        return tensor(self.random.standard_normal(shape))

    def close(self, found, want, times=4):
        np.testing.assert_allclose(numbers(found), want, rtol=times * LIMIT, atol=times * LIMIT)

    def test_attention(self):
        lengths, heads, heads_kv = [20, 1, 32], 4, 2
        for d, dv in DIMS:
            for page in (0, 8):
                cache, q = Cache(1, lengths, 32, heads_kv, d, dv, page), self.draw(3, 2, heads, d)
                for choices in ({}, {"is_causal": True}, {"window": (5, 1), "softcap": 4.0}):
                    with self.subTest(d=d, dv=dv, page=page, choices=choices):
                        out = self.draw(3, 2, heads, dv)
                        o, lse = attune.attention_kvcache(q, cache.k, cache.v, **cache.given, **choices,
                                                          return_lse=True)
                        into = attune.attention_kvcache(q, cache.k, cache.v, **cache.given, **choices, out=out)
                        self.assertIs(into, out)
                        np.testing.assert_array_equal(numbers(into), numbers(o))
                        for b in range(3):
                            named = {
                                "causal" if name == "is_causal" else name: value
                                for name, value in choices.items()}
                            want, want_lse = expected(numbers(q[b]), numbers(tensor(cache.keys[b])),
                                                      numbers(tensor(cache.values[b])), **named)
                            self.close(o[b], want)
                            self.close(lse[b], want_lse)

    def test_wide_heads(self):
        lengths = [20, 0, 71]
        for d, dv, page, heads, heads_kv in ((512, 512, 0, 8, 2), (576, 512, 1, 7, 1), (320, 272, 3, 6, 2)):
            cache, q = Cache(9, lengths, 72, heads_kv, d, dv, page), self.draw(3, 2, heads, d)
            for values in (cache.v, cache.k[..., :dv]):  # the second as in latent attention
                o, lse = attune.attention_kvcache(q, cache.k, values, **cache.given, is_causal=True, return_lse=True)
                for b in range(3):
                    keys = numbers(tensor(cache.keys[b]))
                    own = numbers(tensor(cache.values[b])) if values is cache.v else keys[..., :dv]
                    want, want_lse = expected(numbers(q[b]), keys, own, causal=True)
                    with self.subTest(d=d, dv=dv, page=page, latent=values is not cache.v, request=b):
                        self.close(o[b], want)
                        self.close(lse[b], want_lse)

    def test_packed_rows_and_programs(self):
        d, lengths, rows = 8, [20, 1, 32], [2, 0, 3]
        cache, q, ends = Cache(2, lengths, 32, 2, d, d, 8), self.draw(5, 4, d), ints([0, 2, 2, 5])
        o, lse = attune.attention_kvcache(q, cache.k, cache.v, **cache.given, q_begins=ends, seqlen_q=3, is_causal=True,
                                          return_lse=True)
        k, v = (tensor(np.concatenate([numbers(tensor(x)) for x in of])) for of in (cache.keys, cache.values))
        again = attune.attention_kvcache(q, k, v, kv_begins=ints(np.cumsum([0, *lengths])), seqlen_kv=32, q_begins=ends,
                                         seqlen_q=3, is_causal=True)
        scaled = attune.attention_kvcache(q, cache.k, cache.v, **cache.given, q_begins=ends, seqlen_q=3, is_causal=True,
                                          score_mod="return score * sqrt(float(head_dim));", scale=1 / d)
        for b, (first, n) in enumerate(zip([0, 2, 2], rows)):
            want, want_lse = expected(numbers(q[first:first + n]), numbers(tensor(cache.keys[b])),
                                      numbers(tensor(cache.values[b])), causal=True)
            self.close(o[first:first + n], want)
            self.close(again[first:first + n], want)
            self.close(scaled[first:first + n], want)
            self.close(lse[:, first:first + n], want_lse)

    def test_appended_rows(self):
        lengths, new = [20, 5, 32], 2
        for d, dv in DIMS:
            for pairs in (0, 2, d // 2):
                cache = Cache(4, [n - new for n in lengths], 32, 2, d, dv)
                q, k, v = self.draw(3, new, 4, d), self.draw(3, new, 2, d), self.draw(3, new, 2, dv)
                before = [np.array(numbers(x)) for x in (cache.k, cache.v)]
                angles = {}
                if pairs:
                    angles = dict(zip(("cos", "sin"), (tensor(self.random.standard_normal((40, pairs))) for _ in "cs")),
                                  q=q, interleaved=pairs == 2)
                made = attune.append_kv(k, v, cache.k, cache.v, ints(lengths), slots=cache.given["slots"], **angles)
                turn = lambda x, n: turned(numbers(x), *(numbers(angles[name])[n - new:n] for name in ("cos", "sin")),
                                           pairs == 2) if pairs else numbers(x)  # noqa: E731
                slots = [int(slot) for slot in cache.given["slots"]]
                for b, (slot, n) in enumerate(zip(slots, lengths)):
                    before[0][slot, n - new:n], before[1][slot, n - new:n] = turn(k[b], n), numbers(v[b])
                    if pairs:
                        self.close(made[b], turn(q[b], n))
                with self.subTest(d=d, dv=dv, pairs=pairs):
                    self.close(cache.k, before[0])
                    self.close(cache.v, before[1])
                    if pairs:
                        own = self.draw(3, new, 4, d)
                        self.assertIs(
                            attune.append_kv(k, v, cache.k, cache.v, ints(lengths), slots=cache.given["slots"],
                                             q_out=own, **angles), own)
                        np.testing.assert_array_equal(numbers(own), numbers(made))
                        own = q + 0
                        self.assertIs(
                            attune.append_kv(k, v, cache.k, cache.v, ints(lengths), slots=cache.given["slots"],
                                             q_out=own, **{**angles, "q": own}), own)
                        np.testing.assert_array_equal(numbers(own), numbers(made))

    def test_caches_of_8_bits(self):
        """Rows of 8-bit elements begin at aligned addresses only if the head dim is a multiple of 16. Results are those
        of caches with zero columns."""
        def narrow(*shape):
            made = self.random.integers(-127, 128, shape).astype(np.int8)
            return made if torch is None else torch.from_numpy(made).to(DEVICE)

        def wide(x):
            made = np.zeros((*x.shape[:-1], 64), x.dtype) if torch is None else x.new_zeros((*x.shape[:-1], 64))
            made[..., :x.shape[-1]] = x
            return made

        of_16_bits = (lambda x: x.astype(np.float16)) if torch is None else (lambda x: x.half())
        lists = dict(kv_lengths=ints([9, 5]), k_scale=0.01, v_scale=0.02)
        for d, dv in ((24, 24), (20, 12), (40, 16), (16, 24), (24, 64)):
            caches, q = [narrow(2, 12, 2, x) for x in (d, dv)], of_16_bits(self.draw(2, 1, 4, d))
            with self.subTest(d=d, dv=dv):
                o = attune.attention_kvcache(q, *caches, **lists, scale=0.25)
                want = attune.attention_kvcache(*(wide(x) for x in (q, *caches)), **lists, scale=0.25)
                np.testing.assert_array_equal(numbers(o), numbers(want)[..., :dv])
                rows = [of_16_bits(self.draw(2, 2, 2, x)) for x in (d, dv)]
                into = [wide(x) for x in caches]
                attune.append_kv(*rows, *caches, **lists)
                attune.append_kv(*(wide(x) for x in rows), *into, **lists)
                for found, other in zip(caches, into):
                    np.testing.assert_array_equal(numbers(found), numbers(other)[..., :found.shape[-1]])

    def test_angles_of_any_alignment(self):
        """Rows of 8 bytes, and views of every second column, give the same results as tables of rotary_table(), in
        every call."""
        k, v, at = self.draw(1, 3, 2, 64), self.draw(1, 3, 2, 64), ints([9])
        for pairs in (2, 1, 5, 32):
            good = attune.rotary_table(40, 2 * pairs, like=None if torch is None else k)
            packed = [x + 0 for x in good]
            strided = [tensor(np.zeros((40, 2 * pairs)))[:, ::2] for _ in good]
            if torch is not None:
                packed, strided = [x.contiguous() for x in good], [
                    torch.zeros(40, 2 * pairs, device=DEVICE)[:, ::2] for _ in good]
            for to, x in zip(strided, good):
                to[...] = x
            want = [self.draw(1, 16, 2, 64) * 0 for _ in "kv"]
            attune.append_kv(k, v, *want, at, cos=good[0], sin=good[1])
            for tables in (packed, strided, packed):
                found = [x * 0 for x in want]
                attune.append_kv(k, v, *found, at, cos=tables[0], sin=tables[1])
                for one, other in zip(found, want):
                    np.testing.assert_array_equal(numbers(one), numbers(other))

    def test_preparing(self):
        cache, q = Cache(5, [4, 9], 16, 2, 8, 8), self.draw(2, 1, 2, 8)
        plan = attune.prepare(attune.attention_kvcache, q, cache.k, cache.v, **cache.given)
        self.assertEqual(plan.problem.head_dim_qk, 16)
        k = self.draw(2, 1, 2, 8)
        before = numbers(cache.k).copy()
        attune.prepare(attune.append_kv, k, k, cache.k, cache.v, **cache.given)
        np.testing.assert_array_equal(numbers(cache.k), before)

    def test_refusals_and_the_warning(self):
        cache, q = Cache(6, [4, 9], 16, 2, 8, 8), self.draw(2, 1, 2, 8)
        attune.ops.padding._told.clear()
        warnings.simplefilter("always", UserWarning)
        with self.assertWarnsRegex(
                UserWarning, "attune copies caches of head dims 8 and 8 into wider tensors at each call") as caught:
            attune.attention_kvcache(q, cache.k, cache.v, **cache.given)
        self.assertTrue(caught.filename.endswith("cache_head_dims_test.py"))
        k, kind = self.draw(2, 1, 2, 8), {"float32": "fp32", "float16": "fp16"}[DTYPE]
        wide = tensor(np.zeros((40, 5)))
        for message, call in (
            (rf"out is {kind} of shape \(2, 1, 2, 16\); must be {kind} of shape \(2, 1, 2, 8\)",
             lambda: attune.attention_kvcache(q, cache.k, cache.v, **cache.given, out=self.draw(2, 1, 2, 16))),
            ("out and q overlap in memory",
             lambda: attune.attention_kvcache(q, cache.k, cache.v, **cache.given, out=q)),
            (r"cos has shape \(40, 5\); must have 1 to 4 columns",
             lambda: attune.append_kv(k, k, cache.k, cache.v, **cache.given, cos=wide, sin=wide)),
            ("k_cache and v overlap in memory",
             lambda: attune.append_kv(k, cache.k[:2, :1], cache.k, cache.v, **cache.given)),
            ("k_cache has shape .* q ",
             lambda: attune.attention_kvcache(self.draw(2, 1, 2, 4), cache.k, cache.v, **cache.given))):
            with self.subTest(message), self.assertRaisesRegex((ValueError, attune.Error), message):
                call()

    @unittest.skipIf(torch is None, "of PyTorch's types")
    def test_eight_bits(self):
        if DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
            self.skipTest("e4m3 starts with sm_89")
        q, k = self.draw(2, 1, 2, 8).half(), self.draw(2, 3, 2, 8).half()
        caches = [torch.zeros(2, 16, 2, 8, device=DEVICE).to(torch.float8_e4m3fn) for _ in "kv"]
        attune.append_kv(k, k, *caches, ints([3, 5]), k_scale=0.5, v_scale=0.5)
        o = attune.attention_kvcache(q, *caches, ints([3, 5]), k_scale=0.5, v_scale=0.5)
        for b, n in enumerate((3, 5)):
            rounded = (numbers(k[b] / 0.5), (k[b].float() / 0.5).to(torch.float8_e4m3fn).double().cpu().numpy())
            np.testing.assert_allclose(caches[0][b, n - 3:n].double().cpu().numpy(), rounded[1])
            keys = caches[0][b, :n].double().cpu().numpy() * 0.5
            want, _ = expected(numbers(q[b]), keys, keys)
            np.testing.assert_allclose(numbers(o[b]), want, rtol=3e-3, atol=3e-3)

    @unittest.skipIf(DEVICE != "cpu", "compiled once is enough")
    def test_in_graphs(self):
        cache, q, k = Cache(7, [4, 9], 16, 2, 8, 8), self.draw(2, 1, 2, 8), self.draw(2, 1, 2, 8)

        def step(q, k, k_cache, v_cache, lengths, slots):
            attune.append_kv(k, k, k_cache, v_cache, lengths, slots=slots)
            return attune.attention_kvcache(q, k_cache, v_cache, lengths, slots=slots)
        given = [cache.given["kv_lengths"], cache.given["slots"]]
        mine, theirs = ([cache.k.clone(), cache.v.clone()] for _ in range(2))
        found = torch.compile(step, backend="aot_eager", fullgraph=True)(q, k, *mine, *given)
        np.testing.assert_array_equal(numbers(found), numbers(step(q, k, *theirs, *given)))
        for one, other in zip(mine, theirs):
            np.testing.assert_array_equal(numbers(one), numbers(other))


if __name__ == "__main__":
    run_tests()
