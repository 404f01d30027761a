#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Further parts of attune.flashinfer: its modules, wrappers for shared prefixes, mixed batches and sinks, page tables,
several tokens per request, latent vectors in separate tensors, bit masks. With PyTorch on the device named by the first
argument; skips aloud (status 77) without them."""
import copy
import importlib
import math
import pickle
import unittest
import warnings

from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("of PyTorch, on the device named by the first argument")

from attune import flashinfer
from flashinfer_test import DTYPE, LIMIT, Cache, D, attended, begins_of, drawn, ints, seen_of

NAMES = {
    "decode": ("BatchDecodeWithPagedKVCacheWrapper", "CUDAGraphBatchDecodeWithPagedKVCacheWrapper",
               "single_decode_with_kv_cache"),
    "prefill": ("BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper",
                "single_prefill_with_kv_cache", "single_prefill_with_kv_cache_return_lse"),
    "cascade": ("MultiLevelCascadeAttentionWrapper", "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
                "BatchPrefillWithSharedPrefixPagedKVCacheWrapper", "merge_state", "merge_state_in_place",
                "merge_states"), "mla": ("BatchMLAPagedAttentionWrapper", ),
    "attention": ("BatchAttention", "BatchAttentionWithAttentionSinkWrapper"),
    "rope": ("apply_rope", "apply_rope_pos_ids", "apply_llama31_rope", "apply_rope_with_cos_sin_cache_inplace"),
    "page": ("append_paged_kv_cache", "append_paged_mla_kv_cache", "get_batch_indices_positions",
             "get_seq_lens"), "quantization": ("packbits", "segment_packbits"),
    "sparse": ("BlockSparseAttentionWrapper", "VariableBlockSparseAttentionWrapper")}


class ModulesTest(unittest.TestCase):
    def near(self, found, want, limit=LIMIT):
        np.testing.assert_allclose(found.double().cpu(), want, rtol=limit, atol=limit)

    def test_modules_have_the_names_that_flashinfer_gives_them(self):
        for module, names in NAMES.items():
            found = importlib.import_module(f"attune.flashinfer.{module}")
            for name in names:
                self.assertIs(getattr(found, name), getattr(flashinfer, name))

    def test_prefixes_that_all_share(self):
        for layout in ("NHD", "HND"):
            cache = Cache(31, [9, 0, 17], 4, layout=layout)
            for shared in (13, 0):
                keys = drawn(cache.random, 2, shared, 2, D)
                given = keys if layout == "NHD" else keys.transpose(1, 2).contiguous()
                both = [torch.cat((keys, own), 1) for own in cache.keys]
                decode, q = flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(None, layout), drawn(
                    cache.random, 3, 4, D)
                decode.begin_forward(*cache.lists(), 4, 2, D, 4)
                o = decode.forward(q, *given, cache.given, sm_scale=0.2)
                for i, (k, v) in enumerate(both):
                    self.near(o[i:i + 1], attended(q[i:i + 1], k, v, scale=0.2)[0])
                prefill, rows = flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(None, layout), [3, 1, 5]
                q, begins = drawn(cache.random, sum(rows), 4, D), begins_of(rows)
                prefill.begin_forward(begins, *cache.lists(), 4, 2, D, 4)
                o = prefill.forward(q, *given, cache.given, causal=True)
                for begin, n, (k, v), own in zip(begins.tolist(), rows, both, cache.lengths):
                    seen = torch.cat((torch.ones(n, shared, dtype=torch.bool), seen_of(n, own, True, -1)), 1)
                    self.near(o[begin:begin + n], attended(q[begin:begin + n], k, v, seen)[0])
        with self.assertRaisesRegex(RuntimeError, "forward.. is called before begin_forward"):
            flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(None).forward(q, *given, cache.given)
        with self.assertRaisesRegex(
                ValueError,
                r"q has shape \(9, 2, 64\) and unique_kv_cache pages .*; must be 4 heads over 2 of 64 columns in pages "
                r"of 4"
        ):
            prefill.forward(q[:, :2], *given, cache.given)

    def test_mixed_batches_and_sinks(self):
        rows, cache = [7, 1, 1, 0], Cache(32, [30, 12, 1, 5], 8)
        q, begins, lengths = drawn(cache.random, sum(rows), 8, D), begins_of(rows), ints(cache.lengths)
        mixed = flashinfer.BatchAttention(device=DEVICE)
        mixed.plan(begins, cache.indptr, cache.indices, lengths, 8, 2, D, D, 8, causal=True, logits_soft_cap=5.0)
        o, lse = mixed.run(q, cache.given, k_scale=0.5, v_scale=2.0, logits_soft_cap=5.0)
        sinks = torch.linspace(-1, 1, 8, device=DEVICE)
        of_sinks = flashinfer.BatchAttentionWithAttentionSinkWrapper(None, window_left=6, head_dim_qk=D, head_dim_vo=D)
        of_sinks.plan(begins, *cache.lists(), 8, 2, D, 8, causal=True, window_left=6)
        with_sinks = of_sinks.run(q, cache.given, sinks, 0.3)
        for begin, n, (k, v) in zip(begins.tolist(), rows, cache.keys):
            part = slice(begin, begin + n)
            want = attended(q[part], k, v, seen_of(n, len(k), True, -1), 0.5 * D ** -0.5, 5.0)
            self.near(o[part], 2 * want[0], 3 * LIMIT)
            self.near(lse[part], want[1])
            want, in_base_2 = attended(q[part], k, v, seen_of(n, len(k), True, 6), 0.3)
            self.near(with_sinks[part],
                      want / (1 + torch.exp(sinks.double().cpu() - in_base_2 / math.log2(math.e)))[..., None])
        with self.assertRaisesRegex(ValueError, r"logits_soft_cap is 3.0 and plan\(\) was told 5.0"):
            mixed.run(q, cache.given, logits_soft_cap=3.0)

    def test_several_tokens_of_each_request(self):
        cache = Cache(33, [40, 3, 17], 4)
        q, wrapper = drawn(cache.random, 9, 8, D), flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        wrapper.plan(*cache.lists(), 8, 2, D, 4)
        o, lse = wrapper.run(q, cache.given, q_len_per_req=3, return_lse=True)
        self.assertEqual((o.shape, lse.shape), (q.shape, (9, 8)))
        for i, (k, v) in enumerate(cache.keys):
            want = attended(q[3 * i:3 * i + 3], k, v, seen_of(3, len(k), True, -1))
            self.near(o[3 * i:3 * i + 3], want[0])
            self.near(lse[3 * i:3 * i + 3], want[1])
        out = torch.empty_like(q)
        self.assertIs(wrapper.run(q, cache.given, q_len_per_req=3, out=out), out)
        self.assertTrue(torch.equal(out, o))
        for steps, message in ((2, "q_len_per_req is 2 and q has 9 rows; must be 6 rows"),
                               (0, "q_len_per_req is 0; must be at least 1")):
            with self.assertRaisesRegex(ValueError, message):
                wrapper.run(q, cache.given, q_len_per_req=steps)

    def test_tables_of_pages(self):
        """block_tables was once ignored."""
        cache = Cache(34, [40, 3, 17], 4)
        table = torch.full((3, 11), -1, dtype=torch.int32)
        for b, (first, end) in enumerate(zip(cache.indptr.tolist(), cache.indptr.tolist()[1:])):
            table[b, :end - first] = cache.indices[first:end].cpu()
        q = drawn(cache.random, 3, 8, D)
        wrong = cache.indices.roll(1)
        decode, prefill = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            None), flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
        decode.plan(cache.indptr, wrong, cache.last, 8, 2, D, 4, block_tables=table.to(DEVICE))
        prefill.plan(begins_of([1, 1, 1]), cache.indptr, wrong, None, 8, 2, D, 4, seq_lens=ints(cache.lengths),
                     block_tables=table.to(DEVICE))
        for o in (decode.run(q, cache.given), prefill.run(q, cache.given)):
            for i, pair in enumerate(cache.keys):
                self.near(o[i:i + 1], attended(q[i:i + 1], *pair)[0])
        for message, given in ((r"block_tables has shape \(2, 11\); must be \[batch, pages\] for 3 requests",
                                table[:2]), ("request 0 has 40 keys and 9 pages of 4", table[:, :9])):
            with self.assertRaisesRegex(ValueError, message):
                decode.plan(*cache.lists(), 8, 2, D, 4, block_tables=given.to(DEVICE))

    def test_lists_of_other_requests(self):
        """Rows of 3 requests over pages of 2 requests were once not refused."""
        cache = Cache(35, [9, 4], 4)
        for wrapper, lists in ((flashinfer.BatchPrefillWithPagedKVCacheWrapper(None), (*cache.lists(), 4, 2, D, 4)),
                               (flashinfer.BatchMLAPagedAttentionWrapper(None), (cache.indptr, cache.indices,
                                                                                 ints([9,
                                                                                       4]), 4, 128, 64, 4, True, 0.1)),
                               (flashinfer.BatchAttention(device=DEVICE), (cache.indptr, cache.indices, ints([
                                   9, 4]), 4, 2, D, D, 4))):
            with self.assertRaisesRegex(
                    ValueError,
                    r"qo_indptr has 4 numbers and (paged_)?kv_indptr is of 2 requests; must be 3 numbers"):
                wrapper.plan(begins_of([1, 1, 1]), *lists)

    def test_types_of_results(self):
        """o_data_type was once ignored."""
        cache = Cache(36, [9, 4], 4)
        q, wrapper = drawn(cache.random, 2, 4, D), flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        own = str(DTYPE).rpartition(".")[2]
        for same in (None, DTYPE, own):
            wrapper.plan(*cache.lists(), 4, 2, D, 4, o_data_type=same)
            wrapper.run(q, cache.given)
        wrapper.plan(*cache.lists(), 4, 2, D, 4, o_data_type=torch.float16)
        with self.assertRaisesRegex(ValueError, f"o_data_type is float16 and q {own}; must be None or q's dtype"):
            wrapper.run(q, cache.given)

    def test_copies_have_separate_masks_and_lists(self):
        """A deep copy once read its original's mask, and a shallow copy's plan wrote into the original's lists."""
        cache = Cache(39, [10], 16)
        q = drawn(cache.random, 3, 4, D)
        masks = [torch.from_numpy(cache.random.random(30) < 0.5).to(DEVICE) for _ in "ab"]

        def planned(wrapper, mask):
            wrapper.plan(begins_of([3]), *cache.lists(), 4, 2, D, 16, custom_mask=mask)
            return wrapper
        fresh = lambda: flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)  # noqa: E731
        want = [planned(fresh(), mask).run(q, cache.given) for mask in masks]
        self.assertFalse(torch.equal(*want))
        for name, of in (("deepcopy", copy.deepcopy), ("copy", copy.copy), ("pickle",
                                                                            lambda x: pickle.loads(pickle.dumps(x)))):
            with self.subTest(name):
                first = planned(fresh(), masks[0])
                second = of(first)
                self.assertTrue(torch.equal(second.run(q, cache.given), want[0]))
                planned(second, masks[1])
                self.assertTrue(
                    torch.equal(second.run(q, cache.given), want[1]) and
                    torch.equal(first.run(q, cache.given), want[0]))
                planned(first, masks[1])
                planned(second, masks[0])
                self.assertTrue(
                    torch.equal(second.run(q, cache.given), want[0]) and
                    torch.equal(first.run(q, cache.given), want[1]))

    def test_plans_of_inference_mode_and_others(self):
        cache = Cache(40, [9, 4], 4)
        q = drawn(cache.random, 2, 4, D)
        for follows in (False, True):
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, use_cuda_graph=follows)
            with torch.inference_mode():
                wrapper.plan(*cache.lists(), 4, 2, D, 4)
            wrapper.plan(*cache.lists(), 4, 2, D, 4)
            o = wrapper.run(q, cache.given)
            for i, (k, v) in enumerate(cache.keys):
                self.near(o[i:i + 1], attended(q[i:i + 1], k, v)[0])

    def test_angles_after_a_graph_was_recorded(self):
        """Tensors made under FakeTensorMode were once kept for later calls."""
        from torch._subclasses.fake_tensor import FakeTensorMode
        q, k, at = torch.randn(7, 4, 64, device=DEVICE), torch.randn(7, 2, 64, device=DEVICE), torch.arange(
            7, device=DEVICE)
        call = lambda *given: flashinfer.apply_rope_pos_ids(*given, rope_theta=12345.0)  # noqa: E731
        with FakeTensorMode() as mode:
            call(*(mode.from_tensor(x) for x in (q, k, at)))
        for found, want in zip(call(q, k, at), call(q, k, at)):
            self.assertTrue(torch.equal(found, want))

    def test_latent_vectors_in_separate_tensors(self):
        random, rows, lengths, page_size = np.random.default_rng(37), [2, 1, 3], [30, 5, 16], 8
        cache = Cache(37, lengths, page_size)
        ckv, kpe = drawn(random, cache.pages.shape[0], page_size, 128), drawn(random, cache.pages.shape[0], page_size,
                                                                              64)
        q_nope, q_pe = drawn(random, sum(rows), 4, 128), drawn(random, sum(rows), 4, 64)
        wrapper = flashinfer.BatchMLAPagedAttentionWrapper(None)
        wrapper.plan(begins_of(rows), cache.indptr, cache.indices, ints(lengths), 4, 128, 64, page_size, True, 0.11)
        with self.assertWarnsRegex(UserWarning, "copies the pages of all requests at each run"):
            apart = wrapper.run(q_nope, q_pe, ckv, kpe, return_lse=True)
        both = torch.cat((ckv, kpe), -1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for found, want in zip(apart, wrapper.run(q_nope, q_pe, both[..., :128], both[..., 128:], return_lse=True)):
                self.near(found, want.double().cpu())
            with self.assertRaisesRegex(ValueError, "sm_scale is None"):  # the previous plan stays
                wrapper.plan(begins_of(rows), cache.indptr, cache.indices, ints([1, 1, 1]), 4, 128, 64, page_size, True,
                             None)
            self.near(wrapper.run(q_nope, q_pe, both[..., :128], both[..., 128:]), apart[0].double().cpu())

    def test_factors_of_one_element(self):
        """For 8-bit caches, factors of shape [1] were once refused."""
        cache = Cache(41, [9, 4], 4)
        codes, q = cache.given.to(torch.float8_e4m3fn), drawn(cache.random, 2, 4, D).half()
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None)
        wrapper.plan(*cache.lists(), 4, 2, D, 4)
        want = wrapper.run(q, codes, k_scale=0.5, v_scale=2.0)
        for shape in ((), (1,)):
            k_scale, v_scale = (torch.full(shape, number, device=DEVICE) for number in (0.5, 2.0))
            self.assertTrue(torch.equal(wrapper.run(q, codes, k_scale=k_scale, v_scale=v_scale), want))

    def test_one_request_with_lse(self):
        random = np.random.default_rng(38)
        q, k, v = drawn(random, 6, 8, D), drawn(random, 25, 2, D), drawn(random, 25, 2, D)
        o, lse = flashinfer.single_prefill_with_kv_cache_return_lse(q, k, v, causal=True)
        want = attended(q, k, v, seen_of(6, 25, True, -1))
        self.near(o, want[0])
        self.near(lse, want[1])

    def turned(self, x, positions, frequencies, interleave):
        """Returns x [rows, heads, d] rotated in float64, by complex numbers."""
        x, pairs = x.double().cpu(), len(frequencies)
        part = x[..., :2 * pairs]
        both = torch.complex(part[..., 0::2], part[..., 1::2]) if interleave else torch.complex(
            part[..., :pairs], part[..., pairs:])
        both = both * torch.polar(torch.ones(1, dtype=torch.double),
                                  torch.tensor(positions, dtype=torch.double)[:, None, None] * frequencies)
        made = torch.stack((both.real, both.imag), -1).flatten(-2) if interleave else torch.cat(
            (both.real, both.imag), -1)
        return torch.cat((made, x[..., 2 * pairs:]), -1)

    def test_rotary_embeddings(self):
        random = np.random.default_rng(40)
        q, k = drawn(random, 9, 6, D), drawn(random, 9, 2, D)
        begins, offsets, positions = ints([0, 4, 4, 9]), ints([10, 7, 0]), [10, 11, 12, 13, 0, 1, 2, 3, 4]
        for rotary_dim, interleave in ((None, False), (32, True), (20, False)):
            pairs = (rotary_dim or D) // 2
            plain = torch.tensor([1e4 ** (-i / pairs) / 2 for i in range(pairs)], dtype=torch.double)
            smooth = []
            for frequency in (5e5 ** (-i / pairs) for i in range(pairs)):  # as published with Llama 3.1
                length = 2 * math.pi / frequency
                kept = 1 if length < 8192 / 4 else 0 if length > 8192 else (8192 / length - 1) / 3
                smooth.append(kept * frequency + (1 - kept) * frequency / 8)
            of_row, of_request = (ints(positions),), (begins, offsets)
            for name, at, frequencies, more in (("apply_rope", of_request, plain, {
                    "rope_scale": 2}), ("apply_rope_pos_ids", of_row, plain, {
                        "rope_scale": 2}), ("apply_llama31_rope", of_request, torch.tensor(
                            smooth, dtype=torch.double), {}), ("apply_llama31_rope_pos_ids", of_row,
                                                               torch.tensor(smooth, dtype=torch.double), {})):
                want = [self.turned(x, positions, frequencies, interleave) for x in (q, k)]
                with self.subTest(name, rotary_dim=rotary_dim, interleave=interleave):
                    found = getattr(flashinfer, name)(q, k, *at, rotary_dim, interleave, **more)
                    own = q.clone(), k.clone()
                    self.assertIsNone(getattr(flashinfer, name + "_inplace")(*own, *at, rotary_dim, interleave, **more))
                    for x, same, wanted in zip(found, own, want):
                        self.near(x, wanted)
                        self.assertTrue(torch.equal(x, same))
            angles = torch.arange(16)[:, None] * plain
            table = torch.cat((angles.cos(), angles.sin()), 1).float().to(DEVICE)
            found = flashinfer.apply_rope_with_cos_sin_cache(ints(positions), q.flatten(1), k.flatten(1), D, table,
                                                             not interleave)
            for x, given in zip(found, (q, k)):
                self.assertEqual(x.shape, given.flatten(1).shape)
                self.near(x.view(given.shape), self.turned(given, positions, plain, interleave))
        with self.assertRaisesRegex(ValueError, "rotary_dim is 65; must be an even number from 2 to 64"):
            flashinfer.apply_rope(q, k, begins, offsets, 65)
        with self.assertRaisesRegex(ValueError, r"pos_ids has rows \(3,\) and q has 9; must"):
            flashinfer.apply_rope_pos_ids(q, k, offsets)

    def test_masks_in_bits(self):
        random = np.random.default_rng(39)
        for order in ("big", "little"):
            for n in (0, 1, 8, 21):
                x = random.random(n) < 0.5
                found = flashinfer.packbits(torch.from_numpy(x).to(DEVICE), order)
                np.testing.assert_array_equal(found.cpu(), np.packbits(x, bitorder=order))
                self.assertEqual(found.dtype, torch.uint8)
            x, ends = random.random(40) < 0.5, [3, 12, 12, 13, 36]
            found, begins = flashinfer.segment_packbits(torch.from_numpy(x).to(DEVICE), ints(ends), order)
            np.testing.assert_array_equal(
                found.cpu(), np.concatenate([np.packbits(x[a:b], bitorder=order) for a, b in zip(ends, ends[1:])]))
            self.assertEqual((begins.tolist(), begins.dtype), ([0, 2, 2, 3, 6], torch.int32))
        with self.assertRaisesRegex(ValueError, "bitorder is 'small'; must be 'big' or 'little'"):
            flashinfer.packbits(torch.ones(3, device=DEVICE), "small")


if __name__ == "__main__":
    unittest.main()
