#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.flash_mla against float64, on the device named by the first argument: dense pages, lists of keys, counts,
sinks, rows without keys, caches of 656 bytes a key, and what is refused."""
import unittest
import warnings

import attune
from attune import flash_mla
from library_and_device import DEVICE, torch
from skips import run

DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32
LIMIT = 2e-2 if DEVICE == "cuda" else 2e-5


def drawn(*shape):
    return torch.randn(shape).to(DEVICE, DTYPE)


def whole(values):
    return torch.as_tensor(values, dtype=torch.int32, device=DEVICE)


def expected(q, keys, chosen, scale, columns, sink=None):
    """q [heads, d], keys [n, d], chosen: indices -> out [heads, columns] and lse [heads], of one row."""
    if len(chosen) == 0:
        return torch.zeros(q.shape[0], columns).double(), torch.full((q.shape[0],), torch.inf).double()
    mine = keys[torch.as_tensor(chosen)].double().cpu()
    scores = q.double().cpu() @ mine.T * scale
    out, lse = scores.softmax(-1) @ mine[:, :columns], scores.logsumexp(-1)
    if sink is not None:
        out = out / (1 + torch.exp(sink.double().cpu() - lse))[:, None]
    return out, lse


class FlashMlaTest(unittest.TestCase):
    def close(self, got, want, limit=LIMIT):
        torch.testing.assert_close(got.double().cpu(), want, rtol=limit, atol=limit)

    def compare(self, out, lse, want, limit=LIMIT):
        """want: (request, row): the result of expected()."""
        for (request, row), (o, of) in want.items():
            self.close(out[request, row], o, limit)
            self.close(lse[request, :, row], of, limit)

    def test_dense_pages(self):
        torch.manual_seed(1)
        cache, lengths = drawn(9, 16, 1, 576), [40, 0, 3]
        table = torch.randperm(9)[:9].view(3, 3)
        q = drawn(3, 2, 16, 576)
        meta, splits = flash_mla.get_mla_metadata(whole(lengths), 32, 1)
        for causal in (False, True):
            out, lse = flash_mla.flash_mla_with_kvcache(q, cache, whole(table), whole(lengths), 512, meta, splits,
                                                        causal=causal)
            want = {}
            for request, length in enumerate(lengths):
                keys = cache[table[request]].reshape(-1, 576)
                for row in range(2):
                    seen = range(max(0, length - 1 + row)) if causal else range(length)
                    want[request, row] = expected(q[request, row], keys, list(seen), 576**-0.5, 512)
            self.compare(out, lse, want)

    def test_lists_counts_and_sinks(self):
        torch.manual_seed(2)
        for heads, page, length in ((16, 16, 60), (128, 64, 5)):
            cache, q = drawn(6, page, 1, 576), drawn(3, 2, heads, 576)
            lists = torch.randint(-2, 6 * page + 3, (3, 2, length))
            counts = [length, 0, 3]
            for sink in (None, torch.randn(heads).to(DEVICE)):
                out, lse = flash_mla.flash_mla_with_kvcache(q, cache, None, None, 512, softmax_scale=0.05,
                                                            indices=whole(lists), attn_sink=sink,
                                                            topk_length=whole(counts))
                self.assertEqual((out.dtype, out.shape, lse.shape), (DTYPE, (3, 2, heads, 512), (3, heads, 2)))
                keys, want = cache.reshape(-1, 576), {}
                for request in range(3):
                    for row in range(2):
                        own = [key for key in lists[request, row, :counts[request]].tolist() if 0 <= key < len(keys)]
                        want[request, row] = expected(q[request, row], keys, own, 0.05, 512, sink)
                self.compare(out, lse, want)

    def test_sparse_rows(self):
        torch.manual_seed(3)
        q, kv = drawn(5, 64, 576), drawn(90, 1, 576)
        lists, counts = torch.randint(-1, 100, (5, 1, 33)), [33, 1, 0, 20, 33]
        lists[4] = -1
        out, largest, lse = flash_mla.flash_mla_sparse_fwd(q, kv, whole(lists), 0.06, topk_length=whole(counts))
        self.assertIsNone(largest)
        self.assertEqual((out.shape, lse.shape), ((5, 64, 512), (5, 64)))
        for row in range(5):
            own = [key for key in lists[row, 0, :counts[row]].tolist() if 0 <= key < 90]
            o, of = expected(q[row], kv[:, 0], own, 0.06, 512)
            self.close(out[row], o)
            self.close(lse[row], of)

    def test_caches_of_656_bytes(self):
        torch.manual_seed(4)
        codes = torch.randn(4, 16, 512).to(torch.float8_e4m3fn)
        factors, turned = torch.rand(4, 16, 4) + 0.5, torch.randn(4, 16, 64).to(torch.bfloat16)
        packed = torch.cat([x.view(torch.uint8) for x in (codes, factors, turned)], -1).unsqueeze(2).to(DEVICE)
        self.assertEqual(packed.shape, (4, 16, 1, 656))
        wide = codes.float().view(4, 16, 4, 128) * factors[..., None]
        keys = torch.cat([wide.flatten(2), turned.float()], -1).view(64, 576)
        lists = torch.randint(-1, 64, (2, 1, 20))
        chosen = [[key for key in of[0].tolist() if key >= 0] for of in lists]
        for heads in (16, 128):
            q = torch.randn(2, 1, heads, 576).to(DEVICE, torch.bfloat16)
            for of, given in ((chosen, dict(block_table=None, cache_seqlens=None, indices=whole(lists))),
                              ([range(16, 34), range(3)], dict(block_table=whole([[1, 2, 3], [0, 0, 0]]),
                                                               cache_seqlens=whole([18, 3])))):
                out, lse = flash_mla.flash_mla_with_kvcache(q, packed, head_dim_v=512, is_fp8_kvcache=True, **given)
                self.compare(out, lse, {(request, 0): expected(q[request, 0], keys, list(of[request]), 576**-0.5, 512)
                                        for request in range(2)}, 2e-2)
        q, keys = drawn(2, 1, 16, 576).to(torch.float16 if DEVICE == "cuda" else DTYPE), keys.to(DTYPE)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            out, lse = flash_mla.flash_mla_with_kvcache(q, packed, None, None, 512, is_fp8_kvcache=True,
                                                        indices=whole(lists))
        self.assertIn("copies the keys", str(caught[0].message))
        self.compare(out, lse, {(request, 0): expected(q[request, 0], keys, chosen[request], 576**-0.5, 512)
                                for request in range(2)})

    def test_a_call_is_prepared(self):
        q, cache = drawn(2, 1, 16, 576), drawn(3, 16, 1, 576)
        plan = attune.prepare(flash_mla.flash_mla_with_kvcache, q, cache, None, None, 512,
                              indices=whole(torch.zeros(2, 1, 8)))
        self.assertEqual((plan.problem.v_in_k, plan.problem.key_indices), (1, 2))

    def test_refusals(self):
        q, cache, table = drawn(2, 1, 16, 576), drawn(3, 16, 1, 576), whole([[0], [1]])
        lists = whole(torch.zeros(2, 1, 8))
        for message, keywords in (
            ("extra_k_cache is given; must be None: attune attends to one cache", dict(extra_k_cache=cache)),
            ("indices is None; then block_table", dict()),
            ("indices is None; then .* topk_length not",
             dict(block_table=table, cache_seqlens=whole([3, 4]), topk_length=whole([1, 1]))),
            ("causal is True and indices is given", dict(indices=lists, causal=True)),
            ("is_fp8_kvcache", dict(is_fp8_kvcache=True)),
            (r"must be \[pages, page_size, 1, 656\]", dict(is_fp8_kvcache=True, indices=lists)),
            (r"topk_length has shape \(3,\); must be \(2,\)", dict(indices=lists, topk_length=whole([1, 2, 3]))),
            ("head_dim_v is 577; must be 1 to 576", dict(indices=lists, head_dim_v=577)),
            (r"indices has shape \(2, 2, 8\); must be \[2, 1\]", dict(indices=whole(torch.zeros(2, 2, 8)))),
            ("indices is .*; must be int32", dict(indices=lists.long()))):
            given = dict(block_table=None, cache_seqlens=None, head_dim_v=512) | keywords
            with self.subTest(message=message), self.assertRaisesRegex((ValueError, TypeError), message):
                flash_mla.flash_mla_with_kvcache(q, cache, **given)
        with self.assertRaisesRegex(ValueError, "indexer_topk is 512; must be 0"):
            flash_mla.flash_mla_sparse_fwd(q[0], cache[0], lists[0], 1.0, indexer_topk=512)
        with self.assertRaisesRegex(ValueError, r"must be .*\[rows, 1, topk\]"):
            flash_mla.flash_mla_sparse_fwd(q[0], cache[0], lists[0, 0], 1.0)
        with self.assertRaisesRegex(TypeError, "kv is of type NoneType; must be a PyTorch tensor"):
            flash_mla.flash_mla_sparse_fwd(q[0], None, lists[0], 1.0)


if __name__ == "__main__":
    run("cuda:0" if DEVICE == "cuda" else "cpu")
