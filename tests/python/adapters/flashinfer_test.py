#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.flashinfer against attention in float64, with PyTorch on the device named by the first argument: wrappers over
random requests, pages, layouts and choices, functions of one request, rows appended to pages, merged states, graphs
that follow plans. Skips aloud (status 77) without them."""
import contextlib
import math
import unittest

import attune
from attune import flashinfer
from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("of PyTorch, on the device named by the first argument")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
LIMIT = 2e-2 if DEVICE == "cuda" else 2e-5
D = 64


def drawn(random, *shape):
    return torch.from_numpy(random.standard_normal(shape)).to(DEVICE, DTYPE)


class Calls(TorchDispatchMode):
    """Records the names of PyTorch ops that are called."""
    names = frozenset()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names |= {str(function)}
        return function(*args, **(kwargs or {}))


def ints(values):
    return torch.tensor(list(values), dtype=torch.int32, device=DEVICE)


def begins_of(counts):
    return ints([0, *np.cumsum(counts)])


def attended(q, k, v, seen=None, scale=None, softcap=None):
    """Returns o and base-2 lse in float64 of q [rows, heads, d] and k, v [keys, heads_kv, d]; seen: bool [rows,
    keys]."""
    q, k, v = (x.double().cpu() for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    scores = torch.einsum("rhd,khd->rhk", q, k.repeat_interleave(group,
                                                                 1)) * (q.shape[2]**-0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if seen is not None:
        scores = scores.masked_fill(~seen[:, None], -math.inf)
    lse = torch.logsumexp(scores, -1) if k.shape[0] else torch.full(scores.shape[:2], -math.inf)
    weights = torch.nan_to_num(torch.exp(scores - lse[..., None]))
    return torch.einsum("rhk,khd->rhd", weights, v.repeat_interleave(group, 1)), lse * math.log2(math.e)


def seen_of(rows, keys, causal, window_left):
    apart = torch.arange(keys)[None] - (torch.arange(rows)[:, None] + keys - rows)
    seen = apart <= 0 if causal else torch.ones_like(apart, dtype=torch.bool)
    return seen & (apart >= -window_left) if window_left >= 0 else seen


class Cache:
    """Requests of `lengths` keys in shuffled pages of one cache, between pages of NaN."""

    def __init__(self, seed, lengths, page_size, heads_kv=2, layout="NHD"):
        self.random, self.lengths, self.page_size, self.layout = np.random.default_rng(seed), lengths, page_size, layout
        counts = [-(-n // page_size) for n in lengths]
        order = self.random.permutation(sum(counts) + 3)[:sum(counts)]
        self.keys = [drawn(self.random, 2, n, heads_kv, D) for n in lengths]
        self.pages = torch.full((sum(counts) + 3, 2, page_size, heads_kv, D), math.nan, dtype=DTYPE, device=DEVICE)
        first = 0
        for keys, count in zip(self.keys, counts):
            for at in range(keys.shape[1]):
                self.pages[order[first + at // page_size], :, at % page_size] = keys[:, at]
            first += count
        self.indptr, self.indices = begins_of(counts), ints(order)
        self.last = ints([n - (count - 1) * page_size if count else 0 for n, count in zip(lengths, counts)])

    @property
    def given(self):
        return self.pages.transpose(2, 3).contiguous() if self.layout == "HND" else self.pages

    def lists(self):
        return self.indptr, self.indices, self.last


class WrapperTest(unittest.TestCase):
    def near(self, found, want, limit=LIMIT):
        np.testing.assert_allclose(found.double().cpu(), want, rtol=limit, atol=limit)

    def test_decode(self):
        for seed, (page_size, layout, window_left, softcap, scale, factors) in enumerate([
            (16, "NHD", -1, None, None, {}), (1, "HND", -1, 3.0, 0.2, {}),
            (5, "NHD", 7, 0.0, None, {"q_scale": 0.5, "k_scale": 2.5, "v_scale": 3.0}),
            (16, "HND", 0, None, 0.3, {"v_scale": 0.25})]):
            cache = Cache(seed, [1, 40, 0, 17, 64], page_size, layout=layout)
            q = drawn(cache.random, 5, 8, D)
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(16, device=DEVICE), layout)
            lists = (x.cpu()
                     for x in cache.lists()) if seed % 2 else cache.lists()  # lists may be on the device or on the host
            wrapper.plan(*lists, 8, 2, D, page_size, window_left=window_left, logits_soft_cap=softcap, sm_scale=scale,
                         q_data_type=DTYPE)
            pair = (cache.given[:, 0], cache.given[:, 1])
            o, lse = wrapper.run(q, pair if seed % 2 else cache.given, return_lse=True, **factors)
            self.assertEqual((o.shape, lse.shape, lse.dtype), (q.shape, (5, 8), torch.float32))
            used = (D ** -0.5 if scale is None else scale) * factors.get("q_scale", 1) * factors.get("k_scale", 1)
            for i, (keys, values) in enumerate(cache.keys):
                want = attended(q[i:i + 1], keys, values, seen_of(1, len(keys), False, window_left), used, softcap)
                self.near(o[i:i + 1], want[0] * factors.get("v_scale", 1), 3 * LIMIT)
                self.near(lse[i:i + 1], want[1])
            out, own = torch.empty_like(o), torch.empty_like(lse)
            found = wrapper.run(q, cache.given, out=out, lse=own, return_lse=True, **factors)
            self.assertTrue(found[0] is out and found[1] is own and torch.equal(out, o) and torch.equal(own, lse))
            self.assertTrue(torch.equal(wrapper.run_return_lse(q, cache.given, **factors)[1], lse))

    def test_caches_of_8_bits(self):
        cache, half = Cache(4, [30, 11], 4), torch.bfloat16 if DEVICE == "cuda" else torch.float16
        if DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
            self.skipTest("e4m3 starts with sm_89")
        rows = [drawn(cache.random, 41, 2, D).to(half) for _ in range(2)]
        of, at = flashinfer.get_batch_indices_positions(begins_of([30, 11]), ints([30, 11]), 41)
        pages = [
            torch.zeros(cache.pages.shape, dtype=torch.uint8, device=DEVICE).view(torch.float8_e4m3fn)
            for _ in range(2)]
        waits = {"aten.nonzero.default", "aten._local_scalar_dense.default", "aten.masked_select.default"}
        for given, new in zip(pages, (rows, [x.to(torch.float8_e4m3fn) for x in rows])):
            with Calls() if new is not rows else contextlib.nullcontext() as calls:
                flashinfer.append_paged_kv_cache(*new, of, at, (given[:, 0], given[:, 1]), cache.indices, cache.indptr,
                                                 cache.last)
        self.assertTrue(calls.names and not waits & calls.names, "a capture allows no waiting op")
        self.assertTrue(torch.equal(pages[0].view(torch.uint8), pages[1].view(torch.uint8)))
        q, wrapper = drawn(cache.random, 2, 4, D).to(half), flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        wrapper.plan(*cache.lists(), 4, 2, D, 4, q_data_type=half, kv_data_type=torch.float8_e4m3fn)
        o = wrapper.run(q, pages[0], k_scale=0.5, v_scale=2.0)
        k, v = (x.to(torch.float8_e4m3fn).double() for x in rows)
        for i, part in enumerate((slice(0, 30), slice(30, 41))):
            self.near(o[i:i + 1], 2 * attended(q[i:i + 1], k[part], v[part], scale=0.5 * D ** -0.5)[0], 2e-2)

    def test_caches_of_4_bits(self):
        """NVFP4: decode and prefill over the codes and factors that append_kv() wrote, in both layouts."""
        cache, half = Cache(5, [30, 11], 4), torch.bfloat16 if DEVICE == "cuda" else torch.float16
        rows = [drawn(cache.random, 41, 2, D).to(half) for _ in range(2)]
        codes = torch.zeros(2, cache.pages.shape[0], 4, 2, D // 2, dtype=torch.uint8, device=DEVICE)
        factors = torch.zeros(2, cache.pages.shape[0], 4, 2, D // 16, dtype=torch.uint8, device=DEVICE).view(
            torch.float8_e4m3fn)
        table = torch.zeros(2, 8, dtype=torch.int32, device=DEVICE)
        table[0], table[1, :3] = cache.indices[:8], cache.indices[8:]
        of_cache = dict(page_table=table, k_factors=factors[0], v_factors=factors[1], dtype_kv="e2m1", k_scale=0.5,
                        v_scale=0.25)
        attune.append_kv(*rows, *codes, ints([30, 11]), q_begins=begins_of([30, 11]), seqlen_q=30, **of_cache)
        q = drawn(cache.random, 2, 4, D).to(half)
        want = attune.attention_kvcache(q[:, None], *codes, ints([30, 11]), **of_cache)[:, 0]
        self.near(want, np.stack([
            attended(q[i:i + 1], rows[0][part], rows[1][part])[0][0]
            for i, part in enumerate((slice(0, 30), slice(30, 41)))]), 0.3)  # the error of 4 bits
        for layout in ("NHD", "HND"):
            turned = [x if layout == "NHD" else x.transpose(2, 3) for x in (codes, factors)]
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, layout)
            wrapper.plan(*cache.lists(), 4, 2, D, 4, q_data_type=half, kv_data_type=torch.uint8)
            o = wrapper.run(q, tuple(turned[0]), k_scale=0.5, v_scale=0.25, kv_cache_sf=tuple(turned[1]))
            self.assertTrue(torch.equal(o, want))
            prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, layout)
            prefill.plan(ints([0, 1, 2]), *cache.lists(), 4, 2, D, 4, q_data_type=half, kv_data_type=torch.uint8)
            self.near(prefill.run(q, tuple(turned[0]), k_scale=0.5, v_scale=0.25, kv_cache_sf=tuple(turned[1])),
                      want.double().cpu(), 1e-2)
        with self.assertRaisesRegex(ValueError, "kv_cache_sf"):
            wrapper.run(q, tuple(turned[0]), kv_cache_sf=factors[0])

    def test_decode_by_slopes_of_alibi(self):
        cache = Cache(5, [33, 9], 4)
        q, slopes = drawn(cache.random, 2, 8, D), torch.tensor(attune.alibi_slopes(8), dtype=torch.float32,
                                                               device=DEVICE)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        wrapper.plan(*cache.lists(), 8, 2, D, 4, pos_encoding_mode="ALIBI")
        for i, (keys, values) in enumerate(cache.keys):
            want = attune.attention(q[i:i + 1, None], keys[None], values[None], "causal_bottom_right",
                                    alibi_slopes=slopes)
            self.near(wrapper.run(q, cache.given)[i], want[0, 0].double().cpu())

    def test_prefill_over_pages(self):
        for seed, (page_size, layout, causal, window_left, softcap) in enumerate([(16, "NHD", True, -1, None),
                                                                                  (3, "HND", False, -1, 5.0),
                                                                                  (1, "NHD", True, 6, None),
                                                                                  (8, "HND", False, 4, None)]):
            rows, cache = [3, 1, 0, 20, 2], Cache(seed, [40, 1, 9, 33, 0], page_size, layout=layout)
            q, begins = drawn(cache.random, sum(rows), 8, D), begins_of(rows)
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, layout)
            wrapper.plan(begins, *cache.lists(), 8, 2, D, page_size, causal=causal, window_left=window_left,
                         logits_soft_cap=softcap)
            o, lse = wrapper.run(q, cache.given, return_lse=True)
            self.assertEqual((o.shape, lse.shape), (q.shape, (sum(rows), 8)))
            for begin, n, (keys, values) in zip(begins.tolist(), rows, cache.keys):
                want = attended(q[begin:begin + n], keys, values, seen_of(n, len(keys), causal, window_left),
                                softcap=softcap)
                self.near(o[begin:begin + n], want[0])
                self.near(lse[begin:begin + n], want[1])

    def test_masks_of_callers(self):
        rows, cache = [3, 1, 5], Cache(6, [10, 7, 13], 4)
        q, begins = drawn(cache.random, sum(rows), 4, D), begins_of(rows)
        masks = [torch.from_numpy(cache.random.random((n, m)) < 0.6) for n, m in zip(rows, cache.lengths)]
        flat = torch.cat([mask.flatten() for mask in masks])
        packed = torch.from_numpy(
            np.concatenate([np.packbits(mask.flatten().numpy(), bitorder="little") for mask in masks])).to(DEVICE)
        ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None)
        paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
        k, v = (torch.cat([keys[part] for keys in cache.keys]) for part in (0, 1))
        for given in ({"custom_mask": flat.to(DEVICE)}, {"packed_custom_mask": packed}):
            paged.plan(begins, *cache.lists(), 4, 2, D, 4, causal=True, **given)
            ragged.plan(begins, begins_of(cache.lengths), 4, 2, D, causal=True, **given)
            for o, lse in (paged.run(q, cache.given, return_lse=True), ragged.run(q, k, v, return_lse=True)):
                for begin, n, mask, (keys, values) in zip(begins.tolist(), rows, masks, cache.keys):
                    want = attended(q[begin:begin + n], keys, values, mask)
                    self.near(o[begin:begin + n], want[0])
                    self.near(lse[begin:begin + n], want[1])
        paged.plan(begins, *cache.lists(), 4, 2, D, 4,
                   causal=False)  # a plan without a mask drops the previous plan's mask
        self.near(paged.run(q, cache.given)[:3], attended(q[:3], *cache.keys[0])[0])
        follows = flashinfer.BatchPrefillWithPagedKVCacheWrapper(
            None, use_cuda_graph=True)  # one plan's bit mask, stored in another plan's tensors
        for given in ({"custom_mask": flat}, {"packed_custom_mask": packed}):
            follows.plan(begins, *cache.lists(), 4, 2, D, 4, **given)
            self.assertEqual(follows._held["mask"][:flat.numel()].tolist(), flat.tolist())
            self.near(follows.run(q, cache.given)[:3], attended(q[:3], *cache.keys[0], masks[0])[0])
        with self.assertRaisesRegex(ValueError, r"custom_mask has shape \(101,\); must be \(102,\)"):
            paged.plan(begins, *cache.lists(), 4, 2, D, 4, custom_mask=flat[1:])
        with self.assertRaisesRegex(ValueError, "packed_custom_mask has .* bytes; must be"):
            paged.plan(begins, *cache.lists(), 4, 2, D, 4, packed_custom_mask=packed[1:])

    def test_prefill_of_ragged_keys(self):
        random = np.random.default_rng(7)
        for layout, causal, window_left, factors in (("NHD", True, -1, {}), ("HND", False, 5, {
                "q_scale": 0.5, "k_scale": 3.0, "v_scale": 2.0})):
            rows, counts = [4, 0, 9, 1], [6, 3, 9, 0]
            q, k, v = drawn(random, sum(rows), 4, D), drawn(random, sum(counts), 2, D), drawn(random, sum(counts), 2, D)
            wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None, layout)
            wrapper.plan(begins_of(rows), begins_of(counts), 4, 2, D, causal=causal, window_left=window_left,
                         sm_scale=0.2)
            given = (k, v) if layout == "NHD" else (k.transpose(0, 1).contiguous(), v.transpose(0, 1).contiguous())
            o, lse = wrapper.run(q, *given, return_lse=True, **factors)
            row = key = 0
            for n, m in zip(rows, counts):
                want = attended(q[row:row + n], k[key:key + m], v[key:key + m], seen_of(n, m, causal, window_left),
                                0.3 if factors else 0.2)
                self.near(o[row:row + n], want[0] * factors.get("v_scale", 1), 3 * LIMIT)
                self.near(lse[row:row + n], want[1])
                row, key = row + n, key + m

    def test_later_plans_may_have_fewer_keys(self):
        random = np.random.default_rng(15)
        for follows in (False, True):
            wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(None, use_cuda_graph=follows)
            for counts in ([33, 1], [16, 1]):
                q, k, v = (drawn(random, sum(counts), 2, D) for _ in range(3))
                wrapper.plan(begins_of(counts), begins_of(counts), 2, 2, D, causal=True)
                self.near(
                    wrapper.run(q, k, v)[:counts[0]],
                    attended(*(x[:counts[0]] for x in (q, k, v)), seen_of(counts[0], counts[0], True, -1))[0])

    def test_latent_attention(self):
        random, rows, lengths, page_size = np.random.default_rng(8), [2, 1, 3], [30, 5, 16], 8
        cache, columns = Cache(8, lengths, page_size), (128, 64)
        latent = drawn(random, cache.pages.shape[0], page_size, sum(columns))
        q = drawn(random, sum(rows), 4, sum(columns))
        wrapper = flashinfer.BatchMLAPagedAttentionWrapper(None)
        wrapper.plan(begins_of(rows), cache.indptr, cache.indices, ints(lengths), 4, *columns, page_size, True, 0.11,
                     DTYPE, DTYPE)
        for parts in ((q[..., :128], q[..., 128:]), (q[..., :128].contiguous(), q[..., 128:].contiguous())):
            o, lse = wrapper.run(*parts, latent[..., :128], latent[..., 128:], return_lse=True)
            row = 0
            for i, (n, m) in enumerate(zip(rows, lengths)):
                pages = cache.indices[cache.indptr[i]:cache.indptr[i + 1]].long()
                keys = latent[pages].reshape(-1, 1, sum(columns))[:m]
                want = attended(q[row:row + n], keys, keys[..., :128], seen_of(n, m, True, -1), 0.11)
                self.near(o[row:row + n], want[0])
                self.near(lse[row:row + n], want[1])
                row += n
        natural = wrapper.run(*parts, latent[..., :128], latent[..., 128:], return_lse=True,
                              return_lse_base_on_e=True)[1]
        self.near(natural * math.log2(math.e), lse.double().cpu())

    def test_plans_of_equally_many_requests_share_tensors(self):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, use_cuda_graph=True, most_pages=16)
        held = None
        for seed, lengths in ((9, [60, 3]), (10, [1, 33])):
            cache = Cache(seed, lengths, 4)
            q = drawn(cache.random, 2, 4, D)
            wrapper.plan(*cache.lists(), 4, 2, D, 4)
            addresses = [x.data_ptr() for x in wrapper._held.values()]
            self.assertEqual(held or addresses, addresses)
            held = addresses
            for i, pair in enumerate(cache.keys):
                self.near(wrapper.run(q, cache.given)[i:i + 1], attended(q[i:i + 1], *pair)[0])
        with self.assertRaisesRegex(ValueError, "a request of 17 pages; must be at most 16"):
            wrapper.plan(*Cache(11, [1, 68], 4).lists(), 4, 2, D, 4)
        with self.assertRaisesRegex(ValueError, "with use_cuda_graph a plan must have as many requests"):
            wrapper.plan(*Cache(11, [1, 6, 6], 4).lists(), 4, 2, D, 4)

    @unittest.skipUnless(DEVICE == "cuda", "captured graphs are of CUDA")
    def test_a_graph_follows_plans(self):
        caches = [Cache(seed, lengths, 8) for seed, lengths in ((12, [70, 20]), (13, [9, 64]))]
        pages, q = torch.zeros_like(caches[0].pages), drawn(caches[0].random, 2, 4, D)
        wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper()
        wrapper.plan(*caches[0].lists(), 4, 2, D, 8)
        wrapper.run(q, pages)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = wrapper.run(q, pages)
        for cache in caches:
            wrapper.plan(*cache.lists(), 4, 2, D, 8)
            pages.zero_()[:cache.pages.shape[0]].copy_(cache.pages)
            graph.replay()
            for i, pair in enumerate(cache.keys):
                self.near(o[i:i + 1], attended(q[i:i + 1], *pair)[0])

    def test_wrong_arguments_are_refused_by_name(self):
        cache = Cache(14, [9, 4], 4)
        q, wrapper = drawn(cache.random, 2, 4, D), flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        with self.assertRaisesRegex(RuntimeError, "run.. is called before plan"):
            wrapper.run(q, cache.given)
        with self.assertRaisesRegex(ValueError, "pos_encoding_mode is 'ROPE_LLAMA'; must be 'NONE'"):
            wrapper.plan(*cache.lists(), 4, 2, D, 4, pos_encoding_mode="ROPE_LLAMA")
        with self.assertRaisesRegex(ValueError, "indptr goes from 0 to 4; .* and end at 3 or below"):
            wrapper.plan(cache.indptr, cache.indices[:3], cache.last, 4, 2, D, 4)
        with self.assertRaisesRegex(ValueError, r"last_page_len has shape \(1,\) and indptr \(3,\)"):
            wrapper.plan(cache.indptr, cache.indices, cache.last[:1], 4, 2, D, 4)
        with self.assertRaisesRegex(ValueError, "indptr has 3 numbers and there are lengths of 1 requests"):
            wrapper.plan(cache.indptr, cache.indices, None, 4, 2, D, 4, seq_lens=ints([9]))
        for message, last, given in ((r"last_page_len is \[1, 7\]; must be 0 to 4", ints([
                1, 7]), {}), (r"request 1 has 16 keys and 1 pages of 4; must be 0 to 4 keys", cache.last, {
                    "seq_lens": ints([9, 16])}), (r"logits_soft_cap is 5.0 and pos_encoding_mode 'ALIBI'", cache.last, {
                        "logits_soft_cap": 5.0, "pos_encoding_mode": "ALIBI"})):
            with self.assertRaisesRegex(ValueError, message):
                wrapper.plan(cache.indptr, cache.indices, last, 4, 2, D, 4, **given)
        with self.assertRaisesRegex(
                RuntimeError, "run.. is called before plan"):  # a refused plan leaves nothing behind
            wrapper.run(q, cache.given)
        wrapper.plan(*cache.lists(), 4, 2, D, 4)
        before = wrapper.run(q, cache.given)
        with self.assertRaisesRegex(ValueError, "pos_encoding_mode"):
            wrapper.plan(
                cache.indptr.flip(0) * 0, cache.indices, cache.last * 0, 4, 2, D, 4, pos_encoding_mode="ROPE_LLAMA")
        self.assertTrue(torch.equal(before, wrapper.run(q, cache.given)))
        with self.assertRaisesRegex(ValueError, r"page_size is 2 and plan\(\) was told 4"):
            wrapper.run(q, cache.given.unflatten(2, (2, 2)).transpose(1, 2).flatten(0, 1))
        wrapper.plan(*cache.lists(), 8, 2, D, 4)
        with self.assertRaisesRegex(ValueError, r"num_qo_heads is 4 and plan\(\) was told 8"):
            wrapper.run(q, cache.given)
        with self.assertRaisesRegex(ValueError, "kv_layout is 'DHN'"):
            flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, "DHN")
        with self.assertRaisesRegex(ValueError, "jit_args is given"):
            flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, jit_args=[1])
        prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
        with self.assertRaisesRegex(ValueError, "qo_indptr"):
            prefill.plan(ints([1, 2, 3]), *cache.lists(), 4, 2, D, 4)
        with self.assertRaisesRegex(ValueError, "pos_encoding_mode is 'ALIBI'"):
            prefill.plan(begins_of([1, 1]), *cache.lists(), 4, 2, D, 4, pos_encoding_mode="ALIBI")
        cascade = flashinfer.MultiLevelCascadeAttentionWrapper(1)
        with self.assertRaisesRegex(ValueError, "window_left 5; must be 'NONE' and -1"):
            cascade.plan([begins_of([1, 1])], *([x] for x in cache.lists()), 4, 2, D, 4, window_left=5)


class FunctionsTest(unittest.TestCase):
    near = WrapperTest.near

    def test_of_one_request(self):
        random = np.random.default_rng(20)
        for layout in ("NHD", "HND"):
            q, k, v = drawn(random, 6, 8, D), drawn(random, 25, 2, D), drawn(random, 25, 2, D)
            given = (k, v) if layout == "NHD" else (k.transpose(0, 1).contiguous(), v.transpose(0, 1).contiguous())
            o, lse = flashinfer.single_decode_with_kv_cache(q[0], *given, layout, k_scale=0.5, v_scale=2.0,
                                                            window_left=9, return_lse=True)
            want = attended(q[:1], k, v, seen_of(1, 25, False, 9), 0.5 * D ** -0.5)
            self.near(o[None], 2 * want[0], 3 * LIMIT)
            self.near(lse[None], want[1])
            for causal, softcap in ((True, None), (False, 4.0)):
                o, lse = flashinfer.single_prefill_with_kv_cache(q, *given, causal=causal, kv_layout=layout,
                                                                 logits_soft_cap=softcap, return_lse=True)
                want = attended(q, k, v, seen_of(6, 25, causal, -1), softcap=softcap)
                self.near(o, want[0])
                self.near(lse, want[1])
            mask = torch.from_numpy(random.random((6, 25)) < 0.5)
            packed = torch.from_numpy(np.packbits(mask.flatten().numpy(), bitorder="little")).to(DEVICE)
            for masked in ({"custom_mask": mask.to(DEVICE)}, {"packed_custom_mask": packed}):
                o = flashinfer.single_prefill_with_kv_cache(q, *given, kv_layout=layout, causal=True, **masked)
                self.near(o, attended(q, k, v, mask)[0])

    def test_rows_appended_to_pages(self):
        for layout, page_size in (("NHD", 4), ("HND", 1)):
            cache, new = Cache(21, [9, 0, 6, 17], page_size, layout=layout), [2, 0, 6, 3]
            pages, begins = torch.zeros_like(cache.given), begins_of(new)
            k, v = drawn(cache.random, sum(new), 2, D), drawn(cache.random, sum(new), 2, D)
            lengths = flashinfer.get_seq_lens(cache.indptr, cache.last, page_size)
            self.assertEqual(lengths.tolist(), cache.lengths)
            of, at = flashinfer.get_batch_indices_positions(begins, lengths, sum(new) + 1)
            self.assertEqual((of.tolist(), at.tolist()),
                             ([0, 0, 2, 2, 2, 2, 2, 2, 3, 3, 3, -1], [7, 8, 0, 1, 2, 3, 4, 5, 14, 15, 16, -1]))
            flashinfer.append_paged_kv_cache(k, v, of[:-1], at[:-1], (pages[:, 0], pages[:, 1]), cache.indices,
                                             cache.indptr, cache.last, layout)
            want = torch.zeros_like(cache.pages)
            for row, (request, key) in enumerate(zip(of.tolist()[:-1], at.tolist())):
                page = cache.indices[cache.indptr[request] + key // page_size]
                want[page, 0, key % page_size], want[page, 1, key % page_size] = k[row], v[row]
            self.assertTrue(torch.equal(pages, want.transpose(2, 3) if layout == "HND" else want))

    def test_latent_rows_appended(self):
        cache = Cache(22, [5, 3], 2)
        latent = torch.zeros(cache.pages.shape[0], 2, 192, dtype=DTYPE, device=DEVICE)
        rows = drawn(cache.random, 4, 192)
        of, at = ints([0, 1, 1, 0]), ints([4, 2, 40, 6])  # the last two have no page
        flashinfer.append_paged_mla_kv_cache(rows[:, :128], rows[:, 128:], of, at, latent[..., :128], latent[..., 128:],
                                             cache.indices, cache.indptr, cache.last)
        want = torch.zeros_like(latent)
        want[cache.indices[2], 0], want[cache.indices[4], 0] = rows[0], rows[1]
        self.assertTrue(torch.equal(latent, want))

    def test_states(self):
        random = np.random.default_rng(23)
        q, k, v = drawn(random, 7, 4, D), drawn(random, 40, 4, D), drawn(random, 40, 4, D)
        cuts = ((0, 10), (10, 10), (10, 33), (33, 40))
        states = [attended(q, k[a:b], v[a:b]) for a, b in cuts]
        values = [o.to(DEVICE, DTYPE) for o, _ in states]
        lses = [lse.to(DEVICE, torch.float32) for _, lse in states]
        want = attended(q, k, v)
        for found in (flashinfer.merge_states(torch.stack(values, 1), torch.stack(lses, 1)),
                      flashinfer.merge_state(*flashinfer.merge_state(values[0], lses[0], values[2], lses[2]), values[3],
                                             lses[3])):
            self.near(found[0], want[0])
            self.near(found[1], want[1])
        given, kept = torch.stack([x.float() for x in values], 1), torch.stack(lses, 1)
        before = given.clone(), kept.clone()
        flashinfer.merge_states(given, kept)
        one = flashinfer.merge_states(given[:, 1:2], kept[:, 1:2])  # a state that has seen no key
        self.assertTrue(
            torch.equal(given, before[0]) and torch.equal(kept, before[1]) and (one[0] == 0).all() and
            (one[1] == -math.inf).all())
        mask = torch.arange(7, device=DEVICE) % 2 == 0
        o, lse = values[0].clone(), lses[0].clone()
        flashinfer.merge_state_in_place(o, lse, values[2], lses[2], mask)
        both = attended(q, k[:33], v[:33])
        self.near(o[mask], both[0][mask.cpu()])
        self.near(lse[mask], both[1][mask.cpu()])
        self.assertTrue(torch.equal(o[~mask], values[0][~mask]) and torch.equal(lse[~mask], lses[0][~mask]))


if __name__ == "__main__":
    unittest.main()
