#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attention_kvcache() against float64, with NumPy on the CPU and with PyTorch on the device named by the first
argument: pages, slots, packed rows, lengths that change under a captured graph, data after the last key, and the
FlashAttention functions built on it. Skips aloud (status 77) without NumPy, or without PyTorch and that device."""
import unittest

import attune
from caches import DTYPE, LIMIT, Cache, close, expected, ints, numbers, tensor
from library_and_device import DEVICE, np, torch
from narrow_values import values_of_codes


class KvCacheTest(unittest.TestCase):
    def compare(self, cache, q, *, return_also=None, **keywords):
        """q: [batch, rows, heads, d] in the library's tensors."""
        o, lse = attune.attention_kvcache(q, cache.k, cache.v, return_lse=True, **cache.given, **keywords)
        for request in range(len(cache.lengths)):
            want = expected(
                numbers(q)[request], cache.keys[request], cache.values[request], causal=keywords.get(
                    "is_causal", False), window=keywords.get("window") or (None, None), slopes=return_also,
                softcap=keywords.get("softcap"))
            close(o[request], want[0])
            close(lse[request], want[1])
        return o

    def test_pages_and_slots(self):
        random = np.random.default_rng(1)
        for number, (page, heads, heads_kv, rows, d, dv, hnd) in enumerate(
            ((16, 8, 2, 1, 64, 64, False), (1, 7, 1, 1, 128, 128, False), (3, 12, 2, 4, 80, 64, True),
             (64, 4, 4, 2, 128, 128, True), (0, 8, 2, 1, 128, 128, False), (0, 6, 1, 3, 64, 96, True))):
            lengths = [200, 0, 1, 17, 199, 64]
            cache = Cache(number, lengths, 200, heads_kv, d, dv, page, hnd)
            q = tensor(random.standard_normal((len(lengths), rows, heads, d)))
            with self.subTest(page=page, heads=heads, rows=rows, hnd=hnd):
                self.compare(cache, q, is_causal=rows > 1)

    def test_values_in_keys(self):
        """Latent attention: one head of K with 576 columns, the first 512 are V. On a GPU one family serves it."""
        random = np.random.default_rng(8)
        for page, heads, rows, lengths in ((64, 16, 1, [130, 0, 64, 1]), (16, 20, 3, [90, 33]), (0, 128, 2, [70, 3]),
                                           (1, 16, 1, [130, 0, 64, 1]), (3, 20, 3, [90, 33]), (12, 128, 2, [70, 3])):
            cache = Cache(page, lengths, 144, 1, 576, 512, page)
            cache.values = [keys[..., :512] for keys in cache.keys]
            cache.v = cache.k[..., :512]
            q = tensor(random.standard_normal((len(lengths), rows, heads, 576)))
            with self.subTest(page=page, heads=heads):
                self.compare(cache, q, is_causal=rows > 1)
                plan = attune.prepare(attune.attention_kvcache, q, cache.k, cache.v, is_causal=rows > 1, **cache.given)
                self.assertEqual(plan.problem.v_in_k, 1)
                if DEVICE == "cuda":
                    self.assertEqual(plan.kernel_template, "mla_sm90")
                else:  # equal to values in separate memory
                    own = attune.attention_kvcache(q, cache.k, tensor(numbers(cache.v)), is_causal=rows > 1,
                                                   **cache.given)
                    close(own, numbers(attune.attention_kvcache(q, cache.k, cache.v, is_causal=rows > 1,
                                                                **cache.given)))
        shifted = cache.k[..., 64:576]
        if DEVICE != "cuda":
            plan = attune.prepare(attune.attention_kvcache, q, cache.k, shifted, is_causal=True, **cache.given)
            self.assertEqual(plan.problem.v_in_k, 0)

    def test_masks_and_scores(self):
        random = np.random.default_rng(2)
        cache = Cache(3, [150, 90, 5], 160, 2, 64, 64, 16)
        q = tensor(random.standard_normal((3, 3, 8, 64)))
        self.compare(cache, q, window=(20, 0))
        self.compare(cache, q, is_causal=True, window=(20, None))
        self.compare(cache, q, softcap=5.0)
        slopes = 2.0 ** -np.arange(1, 9)
        given = slopes.astype(np.float32) if torch is None else torch.tensor(slopes, dtype=torch.float32, device=DEVICE)
        self.compare(cache, q, is_causal=True, alibi_slopes=given, return_also=slopes)

    def test_bits_of_a_request_do_not_depend_on_the_batch(self):
        """With batch_invariant: alone, with longer, shorter or empty requests, and on any number of threads."""
        random = np.random.default_rng(12)
        keys, values = random.standard_normal((2, 2777, 2, 64))
        q = random.standard_normal((3, 8, 64))
        contexts = [None] if DEVICE == "cuda" else [attune.Context(f"cpu:{n}", store="") for n in (1, 2, 5)]
        cuts = {}
        for number, others in enumerate(([], [1, 9000], [0, 0, 5, 77], [300] * 40)):
            lengths = [*others[:1], 2777, *others[1:]]
            at = min(1, len(others))
            cache = Cache(20 + number, lengths, 9008, 2, 64, 64, 16)
            own = cache.given["page_table"][at]
            for page in range(-(-2777 // 16)):
                rows = slice(16 * page, min(16 * page + 16, 2777))
                for stored, new in ((cache.k, keys), (cache.v, values)):
                    stored[int(own[page]), :rows.stop - rows.start] = tensor(new[rows])
            rows = random.standard_normal((len(lengths), 3, 8, 64))
            rows[at] = q
            for window in (None, (1000, 0)):
                for context in contexts:
                    o, lse = attune.attention_kvcache(tensor(rows), cache.k, cache.v, return_lse=True, is_causal=True,
                                                      window=window, context=context, batch_invariant=True,
                                                      **cache.given)
                    got = (numbers(o[at]), numbers(lse[at]))
                    want = cuts.setdefault(window, got)
                    for mine, first in zip(got, want):
                        np.testing.assert_array_equal(mine, first)
        want = expected(numbers(tensor(q)), numbers(tensor(keys)), numbers(tensor(values)), causal=True)
        close(cuts[None][0], want[0])
        close(cuts[None][1], want[1])

    def test_drafts_that_are_a_tree(self):
        random = np.random.default_rng(3)
        lengths, parents = [150, 90, 6], [[-1, 0, 0, 1, 2, 2], [-1, 0, 1, 2, 3, 4], [-1, 0, 0, 0, 0, 0]]
        rows = 6
        tree = np.zeros((3, rows, rows), bool)
        for request, of in enumerate(parents):
            for node in range(rows):
                above = node
                while above >= 0:
                    tree[request, node, above] = True
                    above = of[above]
        cache = Cache(3, lengths, 160, 2, 64, 64, 16)
        q = tensor(random.standard_normal((3, rows, 8, 64)))
        given = tree if torch is None else torch.from_numpy(tree).to(DEVICE)
        o, lse = attune.attention_kvcache(q, cache.k, cache.v, return_lse=True, mask_mod=attune.tree_mask(
            given, cache.given["kv_lengths"]), **cache.given)
        for request, length in enumerate(lengths):
            for node in range(rows):
                own = np.flatnonzero(np.concatenate([np.ones(length - rows, bool), tree[request, node]]))
                want = expected(
                    numbers(q)[request, node:node + 1], cache.keys[request][own], cache.values[request][own])
                close(o[request, node:node + 1], want[0])
                close(lse[request][:, node:node + 1], want[1])
        for message, call in (("tree is int32 of shape",
                               lambda: attune.tree_mask(ints(tree), cache.given["kv_lengths"])),
                              (r"must be int32 \[3\]", lambda: attune.tree_mask(given, cache.given["kv_lengths"][:2]))):
            with self.assertRaisesRegex(ValueError, message):
                call()

    def test_pages_elsewhere_give_the_same_bits(self):
        random = np.random.default_rng(6)
        q = tensor(random.standard_normal((2, 1, 8, 64)))
        results = []
        for page in (16, 16):
            cache = Cache(7, [300, 100], 304, 2, 64, 64, page)
            if results:  # every page at another place
                order = random.permutation(cache.k.shape[0])
                place = np.argsort(order)
                table = numbers(cache.given["page_table"]).astype(np.int64)
                cache.given["page_table"] = ints(np.where(table < 0, -1, place[table]))
                index = order if torch is None else torch.from_numpy(order).to(DEVICE)
                cache.k, cache.v = cache.k[index], cache.v[index]
            results.append(numbers(attune.attention_kvcache(q, cache.k, cache.v, **cache.given)))
        np.testing.assert_array_equal(*results)

    def test_long_requests_are_split(self):
        """Items have several parts, and every run gives equal bits."""
        random = np.random.default_rng(8)
        cache = Cache(9, [3000, 40], 3008, 1, 64, 64, 16)
        q = tensor(random.standard_normal((2, 2, 5, 64)))
        first = self.compare(cache, q, is_causal=True)
        for _ in range(5):
            again = attune.attention_kvcache(q, cache.k, cache.v, is_causal=True, **cache.given)
            np.testing.assert_array_equal(numbers(first), numbers(again))

    def test_caches_of_8_bits(self):
        """Every code but NaN and infinity, with a factor per head; unused values are NaN."""
        random = np.random.default_rng(20)
        for name, page, rows, d, dv, dtype in (("e4m3", 16, 1, 128, 128, "float16"), ("e5m2", 0, 2, 64, 80, "float16"),
                                               ("e4m3", 3, 3, 80, 64, "bfloat16")):
            if torch is None and dtype == "bfloat16":
                continue  # NumPy has none
            lengths, heads_kv = [200, 0, 1, 17], 2
            values = values_of_codes(name)
            used = np.flatnonzero(np.abs(values) <= 8.0)
            k_factors, v_factors = random.uniform(0.1, 0.4, (1, heads_kv)).astype(np.float32), random.uniform(
                0.5, 2, (1, heads_kv)).astype(np.float32)
            size = page or 200
            per = -(-200 // size)
            order = random.permutation(len(lengths) * per).reshape(len(lengths), per)
            caches, of_requests = [], []
            for columns in (d, dv):
                held = np.full((len(lengths) * per, size, heads_kv, columns), 0x7F, np.uint8)
                rows_of = [random.choice(used, (n, heads_kv, columns)).astype(np.uint8) for n in lengths]
                for request, n in enumerate(lengths):
                    for at in range(n):
                        held[order[request, at // size], at % size] = rows_of[request][at]
                caches.append(held)
                of_requests.append([values[codes] for codes in rows_of])
            q = random.standard_normal((len(lengths), rows, 8, d))
            keywords = {
                "kv_lengths": ints(lengths), "is_causal": rows > 1,
                **({"page_table": ints(order)} if page else {"slots": ints(order[:, 0])})}
            if torch is None:
                q = q.astype(dtype)
                scales = {"k_scale": k_factors, "v_scale": v_factors, "dtype_kv": name}
            else:
                q = torch.from_numpy(q).to(DEVICE, getattr(torch, dtype))
                native = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[name]
                caches = [torch.from_numpy(cache).to(DEVICE).view(native) for cache in caches]
                scales = {
                    "k_scale": torch.from_numpy(k_factors).to(DEVICE),
                    "v_scale": torch.from_numpy(v_factors).to(DEVICE)}
            with self.subTest(name, page=page, dtype=dtype):
                limit = 2e-2 if dtype == "bfloat16" else 3e-3
                o, lse = attune.attention_kvcache(q, *caches, return_lse=True, **keywords, **scales)
                one = attune.attention_kvcache(q, *caches, **keywords, **{**scales, "k_scale": 0.25, "v_scale": 1.5})
                plain = attune.attention_kvcache(q, *caches, **keywords, **{**scales, "k_scale": 0.25, "v_scale": 1.0})
                np.testing.assert_allclose(numbers(one), 1.5 * numbers(plain), rtol=limit, atol=limit)
                for request in range(len(lengths)):
                    keys, held = of_requests[0][request] * k_factors[0][:, None], of_requests[1][request] * v_factors[
                        0][:, None]
                    want = expected(numbers(q)[request], keys, held, causal=rows > 1)
                    np.testing.assert_allclose(numbers(o)[request], want[0], rtol=limit, atol=limit)
                    np.testing.assert_allclose(numbers(lse)[request], want[1], rtol=2e-3, atol=2e-3)
                for sentence, change in (("k_scale is missing", {"k_scale": None}), ("v_scale is -1", {
                        "v_scale": -1.0
                }), (r"k_scale has shape \(4, 2\)",
                     {"k_scale": scales["k_scale"].repeat(4, 0) if torch is None else scales["k_scale"].repeat(4, 1)})):
                    with self.assertRaisesRegex(ValueError, sentence):
                        attune.attention_kvcache(q, *caches, **keywords, **{**scales, **change})
                codes = caches if torch is None else [cache.view(torch.uint8) for cache in caches]
                with self.assertRaisesRegex(ValueError, "k_cache is uint8 and dtype_kv is None"):
                    attune.attention_kvcache(q, *codes, **keywords, **{**scales, "dtype_kv": None})
                named = attune.attention_kvcache(q, *codes, **keywords, **{**scales, "dtype_kv": name})
                np.testing.assert_array_equal(numbers(named), numbers(o))
        cache = Cache(21, [20], 32, 2, 64, 64)
        with self.assertRaisesRegex(ValueError, "k_scale is given, and the cache is"):
            attune.attention_kvcache(tensor(np.zeros((1, 1, 4, 64))), cache.k, cache.v, **cache.given, k_scale=1.0)

    def test_arguments_that_do_not_fit_are_refused(self):
        cache = Cache(10, [20, 3], 32, 2, 64, 64, 16)
        q = tensor(np.zeros((2, 1, 4, 64)))
        call = dict(q=q, k_cache=cache.k, v_cache=cache.v, **cache.given)
        lengths = cache.given["kv_lengths"]
        wide = lengths.astype(np.int64) if torch is None else lengths.long()
        for sentence, change in (
                ("kv_lengths is int64; must be int32", {"kv_lengths": wide}),
                (r"kv_lengths has shape \(1,\); must be \[batch\] for 2 requests", {"kv_lengths": lengths[:1]}),
                ("page_table and slots are given", {"slots": lengths}),
                ("seqlen_q is given alone", {"seqlen_q": 3}),
                ("seqlen_kv is 33; must be 0 to 32", {"seqlen_kv": 33}),
                ("k_cache has 3 dimensions", {"k_cache": cache.k[0]}),
                ("caches must be equal but for their head_dim", {"v_cache": cache.v[:2]}),
                ("mask is 'tree'; must be", {"mask": "tree"}),
                ("mask is 'none' and is_causal is True; give one of the two", {"mask": "none", "is_causal": True}),
                ("out has shape", {"out": tensor(np.zeros((2, 1, 4, 32)))}), ("softcap is -1", {"softcap": -1.0}),
                ("mask is causal_top_left; op attention_kvcache takes", {"mask": "causal_top_left"})):
            with self.subTest(sentence), self.assertRaisesRegex((ValueError, TypeError, attune.Error), sentence):
                attune.attention_kvcache(**{**call, **change})
        if DEVICE != "cuda":  # a list that the host sees
            table = numbers(cache.given["page_table"]).astype(np.int64)
            for id in (7, 99, -1):
                table[0, 1] = id
                with self.assertRaisesRegex(attune.Error,
                                            rf"page_table\[0\]\[1\] is {id}; must be 0 to 6, the last page"):
                    attune.attention_kvcache(**{**call, "page_table": ints(table)})
            slots = Cache(10, [20, 3], 32, 2, 64, 64)
            with self.assertRaisesRegex(attune.Error, r"slots\[1\] is 5; must be 0 to 4, the last slot"):
                attune.attention_kvcache(q, slots.k, slots.v, lengths, slots=ints([0, 5]))


@unittest.skipIf(torch is None, "of PyTorch")
class FlashTest(unittest.TestCase):
    def test_flash_attn_with_kvcache_appends_and_turns(self):
        random = torch.Generator().manual_seed(3)
        draw = lambda *shape: torch.randn(*shape, generator=random).to(DEVICE, getattr(torch, DTYPE))  # noqa: E731
        batch, heads, heads_kv, d, page, new = 3, 8, 2, 64, 16, 2
        before = torch.tensor([40, 0, 17], dtype=torch.int32, device=DEVICE)
        table = torch.randperm(12, generator=random)[:12].reshape(3, 4).to(DEVICE, torch.int32)
        k_cache, v_cache = draw(12, page, heads_kv, d), draw(12, page, heads_kv, d)
        q, k, v = draw(batch, new, heads, d), draw(batch, new, heads_kv, d), draw(batch, new, heads_kv, d)
        angle = torch.arange(64)[:, None] / 100.0 ** (torch.arange(16) / 16)
        cos, sin = (x.to(DEVICE, getattr(torch, DTYPE)) for x in (angle.cos(), angle.sin()))
        for interleaved in (False, True):
            kc, vc = k_cache.clone(), v_cache.clone()
            out, lse = attune.flash.flash_attn_with_kvcache(q, kc, vc, k, v, cos, sin, before, block_table=table,
                                                            causal=True, rotary_interleaved=interleaved,
                                                            return_softmax_lse=True)
            for b in range(batch):
                length = int(before[b]) + new
                row = lambda cache: torch.cat([cache[page_id] for page_id in table[b].tolist()])[:length]  # noqa: E731
                keys, values = row(kc), row(vc)
                turned = [self.turned(x[b], cos, sin, int(before[b]), interleaved) for x in (q, k)]
                torch.testing.assert_close(keys[-new:].float(), turned[1], atol=LIMIT, rtol=LIMIT)
                self.assertTrue(torch.equal(values[-new:], v[b]))
                want = expected(turned[0].double().cpu().numpy(), numbers(keys), numbers(values), causal=True)
                close(out[b], want[0], 4)
                close(lse[b], want[1], 4)

    def test_flash_attn_with_kvcache_of_8_bits(self):
        random = torch.Generator().manual_seed(8)
        narrow = lambda *shape: torch.randn(*shape, generator=random).to(torch.float8_e4m3fn).to(DEVICE)  # noqa: E731
        kc, vc, k, v = narrow(3, 40, 2, 64), narrow(3, 40, 2, 64), narrow(3, 1, 2, 64), narrow(3, 1, 2, 64)
        q = torch.randn(3, 1, 8, 64, generator=random).to(DEVICE, torch.bfloat16)
        before = torch.tensor([30, 0, 7], dtype=torch.int32, device=DEVICE)
        factors = torch.tensor([[0.5, 2.0]], device=DEVICE)
        out = attune.flash.flash_attn_with_kvcache(q, kc, vc, k, v, cache_seqlens=before, k_descale=factors.expand(
            3, 2), v_descale=factors)
        for b, n in enumerate((31, 1, 8)):
            self.assertTrue(torch.equal(kc[b, n - 1].view(torch.uint8), k[b, 0].view(torch.uint8)))
            keys, values = (numbers(cache[b, :n].float() * factors[0][:, None]) for cache in (kc, vc))
            np.testing.assert_allclose(numbers(out[b]), expected(numbers(q[b]), keys, values)[0], rtol=2e-2, atol=2e-2)
        with self.assertRaisesRegex(
                ValueError,
                r"k_descale has shape \(3, 2\); with block_table it must be \[1, num_heads_kv\], shared"):
            attune.flash.flash_attn_with_kvcache(q, kc, vc, k_descale=factors.repeat(3, 1), block_table=torch.zeros(
                3, 1, dtype=torch.int32, device=DEVICE))
        each = torch.rand(3, 2, generator=random).to(DEVICE) + 0.5
        for slots, of in ((None, (0, 1, 2)), ([2, 0, 1], (2, 0, 1)), ([1, 2], (1, 2))):
            given = dict(cache_seqlens=before[:len(of)] + 1, k_descale=each[:len(of)], v_descale=each[:len(of)] * 2)
            index = None if slots is None else torch.tensor(slots, dtype=torch.int32, device=DEVICE)
            out = attune.flash.flash_attn_with_kvcache(q[:len(of)], kc, vc, cache_batch_idx=index, **given)
            for b, slot in enumerate(of):
                keys, values = (numbers(cache[slot, :before[b] + 1].float() * each[b][:, None]) for cache in (kc, vc))
                np.testing.assert_allclose(numbers(out[b]),
                                           expected(numbers(q[b]), keys, 2 * values)[0], rtol=2e-2, atol=4e-2)
        k16, v16 = k.bfloat16(), v.bfloat16()
        attune.flash.flash_attn_with_kvcache(q, kc, vc, k16, v16, cache_seqlens=before, k_descale=factors,
                                             v_descale=factors)
        for b, n in enumerate((31, 1, 8)):
            self.assertTrue(
                torch.equal(kc[b, n - 1].view(torch.uint8),
                            (k16[b, 0].float() / factors[0][:, None]).to(kc.dtype).view(torch.uint8)))
        with self.assertRaisesRegex(ValueError,
                                    "k is torch.float32, q is torch.bfloat16 and the cache torch.float8_e4m3fn"):
            attune.flash.flash_attn_with_kvcache(q, kc, vc, k.float(), v.float(), cache_seqlens=before)

    @staticmethod
    def turned(x, cos, sin, first, interleaved):
        """Rotates pairs of columns as complex numbers times e^(i angle)."""
        c, s = (t[first:first + x.shape[0], None].float() for t in (cos, sin))
        part, rest = x[..., :32].float(), x[..., 32:].float()
        pairs = part.reshape(*part.shape[:2], 16, 2) if interleaved else torch.stack(
            (part[..., :16], part[..., 16:]), -1)
        real, imaginary = pairs[..., 0] * c - pairs[..., 1] * s, pairs[..., 0] * s + pairs[..., 1] * c
        made = torch.stack((real, imaginary), -1).flatten(-2) if interleaved else torch.cat((real, imaginary), -1)
        return torch.cat((made, rest), -1)

    def test_varlen(self):
        random = torch.Generator().manual_seed(5)
        draw = lambda *shape: torch.randn(*shape, generator=random).to(DEVICE, getattr(torch, DTYPE))  # noqa: E731
        lengths = [5, 40, 1, 90]
        cu = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32, device=DEVICE)
        total = sum(lengths)
        q, k, v = draw(total, 8, 64), draw(total, 2, 64), draw(total, 2, 64)
        out, lse, _ = attune.flash.flash_attn_varlen_func(q, k, v, cu, cu.clone(), 90, 90, causal=True,
                                                          return_attn_probs=True)
        packed = attune.flash.flash_attn_varlen_kvpacked_func(q, torch.stack((k, v), 1), cu, cu, 90, 90, causal=True)
        torch.testing.assert_close(out, packed, atol=LIMIT, rtol=LIMIT)
        for begin, length in zip(cu.tolist(), lengths):
            of = slice(begin, begin + length)
            want = expected(numbers(q[of]), numbers(k[of]), numbers(v[of]), causal=True)
            close(out[of], want[0], 2)
            close(lse[:, of], want[1], 2)

    def test_varlen_with_more_keys_than_rows(self):
        """Rows are the last rows of their keys. Lists of keys end before their tensor does; NaN after them must not be
        read."""
        random = torch.Generator().manual_seed(6)
        draw = lambda *shape: torch.randn(*shape, generator=random).to(DEVICE, getattr(torch, DTYPE))  # noqa: E731
        rows, keys = [5, 0, 33, 70, 1], [90, 7, 33, 260, 0]
        cu_q, cu_k = (torch.tensor([0, *np.cumsum(n)], dtype=torch.int32, device=DEVICE) for n in (rows, keys))
        q, k, v = draw(sum(rows), 8, 64), draw(sum(keys) + 9, 2, 64), draw(sum(keys) + 9, 2, 64)
        k[sum(keys):] = v[sum(keys):] = float("nan")
        for causal, window in ((False, (-1, -1)), (True, (-1, -1)), (True, (20, 0))):
            out, lse, _ = attune.flash.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 70, 260, causal=causal,
                                                              window_size=window, return_attn_probs=True)
            for i in range(len(rows)):
                of, seen = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
                if not rows[i]:
                    continue
                if not keys[i]:
                    self.assertTrue(bool((out[of] == 0).all()) and bool(torch.isneginf(lse[:, of]).all()))
                    continue
                want = expected(numbers(q[of]), numbers(k[seen]), numbers(v[seen]), causal=causal, window=[
                    None if w < 0 else w for w in window])
                close(out[of], want[0], 2)
                close(lse[:, of], want[1], 2)

    @unittest.skipIf(torch is None, "of PyTorch's 16-bit types")
    def test_an_fp32_out_is_the_result_before_its_rounding(self):
        for dtype, heads, rows, page in ((torch.bfloat16, 8, 1, 16), (torch.float16, 6, 3, 3),
                                         (torch.bfloat16, 32, 40, 16)):
            cache = Cache(13, [500, 0, 20, 300], 512, 2, 64, 64, page)
            k, v = cache.k.to(dtype), cache.v.to(dtype)
            q = tensor(np.random.default_rng(14).standard_normal((4, rows, heads, 64))).to(dtype)
            out = torch.full(q.shape, torch.nan, device=q.device)
            o, lse = attune.attention_kvcache(q, k, v, mask="causal", return_lse=True, **cache.given)
            wide, wide_lse = attune.attention_kvcache(q, k, v, mask="causal", return_lse=True, out=out, **cache.given)
            self.assertIs(wide, out)
            self.assertTrue(torch.equal(wide.to(dtype), o) and torch.equal(wide_lse, lse))
            self.assertFalse(torch.equal(wide, o.float()))
        with self.assertRaisesRegex(ValueError, "out is fp16; must be bf16"):
            attune.attention_kvcache(q, k, v, out=out.half(), **cache.given)

    @unittest.skipIf(DEVICE != "cuda", "of GPUs")
    def test_a_captured_graph_follows_lengths_and_pages(self):
        cache = Cache(11, [500, 20, 300], 512, 2, 64, 64, 16)
        q = tensor(np.random.default_rng(12).standard_normal((3, 1, 8, 64)))
        attune.prepare(attune.attention_kvcache, q, cache.k, cache.v, **cache.given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = attune.attention_kvcache(q, cache.k, cache.v, **cache.given)
        for lengths in ([500, 20, 300], [1, 0, 299], [37, 20, 16]):
            cache.given["kv_lengths"].copy_(ints(lengths))
            out.fill_(float("nan"))
            graph.replay()
            for request, n in enumerate(lengths):
                close(out[request],
                      expected(numbers(q)[request], cache.keys[request][:n], cache.values[request][:n])[0])

    @unittest.skipIf(
        DEVICE != "cuda" or not hasattr(torch.cuda, "_compile_kernel") or torch.cuda.get_device_capability()[0] < 9,
        "of sm_90, by a kernel of PyTorch")
    def test_lists_that_the_previous_kernel_writes(self):
        """The previous kernel lets the next one start long before it writes the lists. Covers each family, each way of
        loading, and more requests than a warp keeps."""
        late = torch.cuda._compile_kernel(LATE_WRITER, "late")
        for page, heads, heads_kv, d, rows, batch, family in ((16, 8, 2, 128, 1, 3, "decode_sm80"),
                                                              (1, 16, 8, 128, 1, 40, "decode_sm80"), (3, 6, 2, 80, 1, 5,
                                                                                                      "decode_sm80"),
                                                              (0, 8, 2, 64, 1, 4, "decode_sm80"), (16, 32, 2, 128, 3, 3,
                                                                                                   "cache_sm90"),
                                                              (0, 32, 2, 128, 3, 33, "cache_sm90"),
                                                             (64, 16, 1, 576, 1, 4, "mla_sm90"),
                                                             (3, 16, 1, 576, 1, 4, "mla_sm90"),
                                                             (1, 128, 1, 576, 1, 4, "mla_sm90")):
            cache = Cache(page + d, [700 - 3 * i for i in range(batch)], 704, heads_kv, d, d, page)
            if family == "mla_sm90":
                cache.v = cache.k[..., :512]
            q = tensor(np.random.default_rng(13).standard_normal((batch, rows, heads, d)))
            plan = attune.prepare(attune.attention_kvcache, q, cache.k, cache.v, is_causal=True, **cache.given)
            given = dict(cache.given)
            first = {name: found.clone() for name, found in given.items()}
            changes = [
                first, *({**first, "kv_lengths": lengths}
                         for lengths in (first["kv_lengths"] - 400, first["kv_lengths"] * 0 + 1))]
            changes += [{name: found.roll(step, 0) for name, found in first.items()} for step in (1, 2)]

            def step(change, last, wait=lambda: None):
                for name in sorted(change,
                                   key=lambda name: name == last):  # all others have ended then
                    late((1, 1, 1), (256, 1, 1), (given[name], change[name].contiguous(), change[name].numel()))
                wait()
                return attune.attention_kvcache(q, cache.k, cache.v, is_causal=True, **cache.given)
            with self.subTest(page=page, batch=batch, family=family):
                self.assertEqual(plan.kernel_template, family)
                want = [step(change, "", torch.cuda.synchronize) for change in changes]
                self.assertFalse(torch.equal(want[0], want[1]))
                torch.cuda.synchronize()
                for last in (*given, *given):
                    with torch.cuda.stream(torch.cuda.Stream()):
                        got = [step(change, last) for change in changes]
                    torch.cuda.synchronize()
                    self.assertEqual([torch.equal(*pair) for pair in zip(got, want)], [True] * len(changes), last)


LATE_WRITER = r"""
extern "C" __global__ void late(int* list, const int* from, int count) {
  asm volatile("griddepcontrol.launch_dependents;");
  const long long start = clock64();
  while (clock64() - start < 3000000) continue;  // until the host has launched what follows
  for (int i = threadIdx.x; i < count; i += blockDim.x) list[i] = from[i];
}
"""


if __name__ == "__main__":
    unittest.main(verbosity=2)
