#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.flashinfer: every buffer that a caller passes is written, masks of another shape or type are refused, caches
with one key per page may lack that axis, and helpers that engines call around plan() and run() work. With PyTorch on
the device named by the first argument; skips aloud (status 77) without it."""
import copy
import functools
import math
import unittest
import warnings

from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("of PyTorch, on the device named by the first argument")

from attune import flashinfer
from flashinfer_arguments_test import Calls
from flashinfer_test import DTYPE, LIMIT, Cache, D, attended, begins_of, drawn, ints, seen_of

HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16


class BuffersTest(unittest.TestCase):
    def near(self, found, want, limit=LIMIT):
        np.testing.assert_allclose(found.double().cpu(), want.double().cpu(), rtol=limit, atol=limit)

    def test_out_and_lse_are_written_whatever_is_returned(self):
        c = Calls()
        latent = dict(q_nope=c.parts[..., :128], q_pe=c.parts[..., 128:], ckv_cache=c.latent[..., :128],
                      kpe_cache=c.latent[..., 128:])
        cases = [("decode", c.decode(), dict(q=c.one, paged_kv_cache=c.cache.pages), {}),
                 ("prefill", c.prefill(), dict(q=c.q, paged_kv_cache=c.cache.pages), {}),
                 ("ragged", c.ragged(), dict(q=c.q, k=c.k, v=c.v), {}), ("mla", c.mla(), latent, {}),
                 ("mla, natural", c.mla(), latent, dict(return_lse_base_on_e=True)),
                 ("sinks", c.prefill(flashinfer.BatchAttentionWithAttentionSinkWrapper),
                  dict(q=c.q, paged_kv_cache=c.cache.pages, sinks=torch.zeros(4, device=DEVICE)), {})]
        for name, wrapper, given, more in cases:
            o, lse = wrapper.run(**given, return_lse=True, **more)
            self.assertFalse((lse == 7).any())
            for returned in (False, True):
                for of_columns in (False, True):  # in contiguous memory, and in columns of a wider tensor
                    with self.subTest(name, returned=returned, of_columns=of_columns):
                        out = torch.full_like(o, 7)
                        place = torch.full(
                            (*lse.shape, 2), 7.0, device=DEVICE)[..., 0] if of_columns else torch.full_like(lse, 7)
                        found = wrapper.run(**given, out=out, lse=place, return_lse=returned, **more)
                        self.assertIs(found[0] if returned else found, out)
                        self.assertTrue(not returned or found[1] is place)
                        self.assertTrue(torch.equal(out, o) and torch.equal(place, lse))
            for wrong in (lse[:1], lse.half(), lse.t().contiguous(), torch.zeros(1, 1,
                                                                                 device=DEVICE).expand(lse.shape)):
                with self.assertRaisesRegex(ValueError, "lse (is|has strides)"):
                    wrapper.run(**given, lse=wrong, **more)
            for wrong in (o[:1], o.double(), torch.zeros(1, 1, 1, dtype=o.dtype, device=DEVICE).expand(o.shape)):
                with self.assertRaisesRegex(ValueError, "out (is|has strides)"):
                    wrapper.run(**given, out=wrong, **more)

    def test_plans_write_the_buffers_of_lists(self):
        c, room = Calls(), lambda n, dtype=torch.int32: torch.full((n,), 99, dtype=dtype, device=DEVICE)
        lists = dict(paged_kv_indptr=room(3), paged_kv_indices=room(9), paged_kv_last_page_len=room(2))
        decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            None, "NHD", True, **{name + "_buffer": buffer
                                  for name, buffer in lists.items()})
        decode.plan(**c.decode_plan())
        prompts = dict(qo_indptr_buf=room(3), custom_mask_buf=room(9, torch.uint8), mask_indptr_buf=room(3), **{
            name + "_buf": buffer.clone()
            for name, buffer in lists.items()})
        mask = torch.rand(3 * 9 + 2 * 4) < 0.5
        prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, use_cuda_graph=True, **prompts)
        prefill.plan(**c.prefill_plan(), custom_mask=mask)
        for found in (lists, {name.removesuffix("_buf"): buffer for name, buffer in prompts.items()}):
            self.assertEqual(found["paged_kv_indptr"].tolist(), c.cache.indptr.tolist())
            self.assertEqual(found["paged_kv_indices"].tolist(), [*c.cache.indices.tolist(), *[99] * 5])
            self.assertEqual(found["paged_kv_last_page_len"].tolist(), c.cache.last.tolist())
        packed, at = flashinfer.segment_packbits(mask, torch.tensor([0, 27, 35]), "little")
        self.assertEqual((prompts["qo_indptr_buf"].tolist(), prompts["mask_indptr_buf"].tolist()),
                         ([0, 3, 5], at.tolist()))
        self.assertEqual(prompts["custom_mask_buf"].tolist(), [*packed.tolist(), *[99] * (9 - packed.numel())])
        levels = dict(qo_indptr_buf_arr=[room(3)], paged_kv_indptr_buf_arr=[room(3)])
        flashinfer.MultiLevelCascadeAttentionWrapper(1, None, **levels).plan(**c.levels_plan())
        self.assertEqual([one[0].tolist() for one in levels.values()], [[0, 3, 5], c.cache.indptr.tolist()])
        mla = [room(3), room(3), room(4), room(2)]
        flashinfer.BatchMLAPagedAttentionWrapper(None, True, *mla).plan(**c.mla_plan())
        self.assertEqual(
            [one.tolist() for one in mla],
            [[0, 3, 5], c.cache.indptr.tolist(), c.cache.indices.tolist(), [9, 4]])
        other = copy.copy(decode)
        lists["paged_kv_indices"].fill_(5)
        other.plan(**c.decode_plan())
        self.assertTrue((lists["paged_kv_indices"] == 5).all(), "a copy of a wrapper leaves its buffers alone")
        short = flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, paged_kv_indices_buffer=room(2))
        with self.assertRaisesRegex(
                ValueError, "paged_kv_indices_buffer has 2 elements and plan.. writes 4 into it; must have at "
                            "least as many"):
            short.plan(**c.decode_plan())

    def test_tensors_that_are_shorter_than_the_lists(self):
        c = Calls()
        pages = int(c.cache.indices.max()) + 1
        for wrapper, given in ((c.prefill(), dict(
                q=c.q[:4],
                paged_kv_cache=c.cache.pages)), (c.decode(), dict(
                    q=c.one, paged_kv_cache=c.cache.pages[:pages - 1])), (c.ragged(), dict(
                        q=c.q, k=c.k[:12],
                        v=c.v[:12])), (c.levels(), dict(q=c.q, paged_kv_cache=c.cache.pages[:pages - 1])),
                               (c.mla(),
                                dict(q_nope=c.parts[..., :128], q_pe=c.parts[..., 128:],
                                     ckv_cache=c.latent[:1, :, :128], kpe_cache=c.latent[:1, :, 128:]))):
            with self.assertRaisesRegex(ValueError, r"q has \d rows and .* (pages|keys); must be at least \d+ and \d+"):
                wrapper.run(**given)
        with self.assertRaisesRegex(ValueError, "indices has a page -1; must be at least 0"):
            c.decode().plan(**{**c.decode_plan(), "indices": ints([0, -1, 2, 3])})


class MasksTest(unittest.TestCase):
    near = BuffersTest.near

    def test_masks_of_another_shape_or_type(self):
        random, rows, keys = np.random.default_rng(3), 10, 20
        q, k, v = drawn(random, rows, 4, D), drawn(random, keys, 2, D), drawn(random, keys, 2, D)
        mask = torch.from_numpy(random.random((rows, keys)) < 0.6).to(DEVICE)
        begins, key_begins, cache = begins_of([rows]), begins_of([keys]), Cache(4, [keys], 4)
        bias = torch.where(mask, 0.0, -math.inf)
        packed = flashinfer.packbits(mask, "little")

        def one(**given):
            return flashinfer.single_prefill_with_kv_cache(q, k, v, **given)

        def ragged(**given):
            wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper()
            wrapper.plan(begins, key_begins, 4, 2, D, **given)
            return wrapper.run(q, k, v)

        def paged(kind=flashinfer.BatchPrefillWithPagedKVCacheWrapper, *more, **given):
            wrapper = kind()
            wrapper.plan(begins, *cache.lists(), 4, 2, D, 4, **given)
            return wrapper.run(q, cache.given, *more)

        def with_sinks(**given):
            return paged(flashinfer.BatchAttentionWithAttentionSinkWrapper, torch.full((4, ), -math.inf, device=DEVICE),
                         **given)

        for call in (one, ragged, paged, with_sinks):
            pair = cache.keys[0] if call in (paged, with_sinks) else (k, v)
            want = attended(q, *pair, mask.cpu())[0]
            for right in (mask, mask.flatten(), mask.int(), mask.to(torch.uint8).flatten(), mask.t().contiguous().t()):
                self.near(call(custom_mask=right), want)
            self.near(call(packed_custom_mask=packed), want)
            for message, wrong in ((r"custom_mask has shape \(20, 10\); must be \(200,\)",
                                    mask.t()), ("custom_mask has shape", mask.t().contiguous()),
                                   ("custom_mask has shape", mask[:, :15]), ("custom_mask has shape", mask.repeat(
                                       2, 1)), ("custom_mask has shape", mask.view(
                                           20, 10)), ("custom_mask is torch.float32; must be bool", bias),
                                   ("custom_mask is torch.float32",
                                    mask.float()), ("custom_mask is torch.int32 with elements other than 0 and 1",
                                                    mask.int() * 2), ("custom_mask is 'text'", "text")):
                with self.assertRaisesRegex(ValueError, message):
                    call(custom_mask=wrong)
            for message, wrong in (("has 24 bytes; must be 25", packed[:-1]), ("is torch.float32", packed.float()),
                                   ("is torch.bool", packed.bool()), (r"is torch.uint8 of shape \(5, 5\)",
                                                                      packed.view(5, 5))):
                with self.assertRaisesRegex(ValueError, f"packed_custom_mask {message}"):
                    call(packed_custom_mask=wrong)
            with self.assertRaisesRegex(ValueError,
                                        "custom_mask and packed_custom_mask are given; give one of them"):
                call(custom_mask=mask, packed_custom_mask=packed)

    def test_masks_of_equal_requests_and_of_rows(self):
        random = np.random.default_rng(5)
        q, k, v = drawn(random, 6, 4, D), drawn(random, 10, 2, D), drawn(random, 10, 2, D)
        mask, ragged = torch.from_numpy(random.random((2, 3,
                                                       5)) < 0.6), flashinfer.BatchPrefillWithRaggedKVCacheWrapper()
        results = []
        for given in (mask, mask.flatten()):
            ragged.plan(begins_of([3, 3]), begins_of([5, 5]), 4, 2, D, custom_mask=given)
            results.append(ragged.run(q, k, v))
        self.assertTrue(torch.equal(*results))
        for wrong in (mask.transpose(1, 2), mask.view(6, 5), mask.transpose(0, 1)):
            with self.assertRaisesRegex(ValueError, r"custom_mask has shape .*; must be \(30,\), or \(2, 3, 5\)"):
                ragged.plan(begins_of([3, 3]), begins_of([5, 5]), 4, 2, D, custom_mask=wrong)
        state = [
            drawn(random, 6, 4, D),
            torch.randn(6, 4, device=DEVICE),
            drawn(random, 6, 4, D),
            torch.randn(6, 4, device=DEVICE)]
        for message, wrong in (("mask is torch.float32", torch.zeros(6)),
                               (r"mask has shape \(4,\)", torch.ones(
                                   4, dtype=torch.bool)), (r"mask has shape \(6, 1\)", torch.ones(
                                       6, 1, dtype=torch.bool))):
            with self.assertRaisesRegex(ValueError, message):
                flashinfer.merge_state_in_place(*state, mask=wrong.to(DEVICE))
        for call in (flashinfer.packbits, lambda x: flashinfer.segment_packbits(x, ints([0, 3, 7]))):
            with self.assertRaisesRegex(ValueError, "x is torch.float32; must be bool"):
                call(torch.zeros(7, device=DEVICE))
            self.assertEqual(
                torch.as_tensor(call(torch.tensor([1, 0, 1, 1, 0, 0, 1], device=DEVICE))[0]).flatten().tolist()[0] >> 5,
                5)


class EnginesTest(unittest.TestCase):
    near = BuffersTest.near

    def test_pages_of_one_key_without_their_axis(self):
        for layout in ("NHD", "HND"):
            cache = Cache(61, [5, 0, 3], 1, layout=layout)
            flat = cache.pages[:, :, 0]  # [pages, 2, heads, head_dim]
            q, rows = drawn(cache.random, 3, 4, D), [2, 0, 1]
            decode, prefill = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
                None, layout), flashinfer.BatchPrefillWithPagedKVCacheWrapper(None, layout)
            decode.plan(*cache.lists(), 4, 2, D, 1)
            prefill.plan(begins_of(rows), *cache.lists(), 4, 2, D, 1, causal=True)
            for wrapper in (decode, prefill):
                want = wrapper.run(q, cache.given)
                for given in (flat, (flat[:, 0], flat[:, 1]), [flat[:, 0], flat[:, 1]]):
                    self.assertTrue(torch.equal(wrapper.run(q, given), want))
            of, at = flashinfer.get_batch_indices_positions(begins_of([1, 0, 1]), ints(cache.lengths), 2)
            written = torch.zeros_like(flat), torch.zeros_like(cache.given)
            for pages in written:
                flashinfer.append_paged_kv_cache(cache.keys[0][0, :2], cache.keys[0][1, :2], of, at, pages,
                                                 cache.indices, cache.indptr, cache.last, layout)
            self.assertTrue(torch.equal(written[0].flatten(), written[1].flatten()) and bool(written[0].any()))
            decode.plan(*Cache(62, [5, 0, 3], 2).lists(), 4, 2, D, 2)
            with self.assertRaisesRegex(ValueError, r"page_size is 1 and plan\(\) was told 2"):
                decode.run(q, flat)
            for wrong in (flat[:, 0], (flat, flat[:, 0]), (flat[:, 0],), flat[:, :1], None):
                with self.assertRaisesRegex(ValueError, r"paged_kv_cache is .*; must be a tensor \[pages, 2, "):
                    decode.run(q, wrong)

    def test_tokens_of_each_request_by_plan(self):
        cache = Cache(63, [40, 3, 17], 4)
        q, wrapper = drawn(cache.random, 9, 8, D), flashinfer.BatchDecodeWithPagedKVCacheWrapper()
        wrapper.plan(*cache.lists(), 8, 2, D, 4)
        want = wrapper.run(q, cache.given, q_len_per_req=3)
        wrapper.plan(*cache.lists(), 8, 2, D, 4, q_len_per_req=3)
        for given in ({}, {"q_len_per_req": 3}):
            self.assertTrue(torch.equal(wrapper.run(q, cache.given, **given), want))
        with self.assertRaisesRegex(ValueError, r"q_len_per_req is 1 and plan\(\) was told 3; must be the same"):
            wrapper.run(q[:3], cache.given, q_len_per_req=1)
        with self.assertRaisesRegex(ValueError, "q_len_per_req is 3 and q has 3 rows; must be 9 rows for 3 requests"):
            wrapper.run(q[:3], cache.given)
        plain = flashinfer.BatchDecodeWithPagedKVCacheWrapper()
        plain.plan = plain.begin_forward = functools.partial(flashinfer.fast_decode_plan, plain)  # as engines do
        plain.plan(*cache.lists(), 8, 2, D, 4, q_len_per_req=3, global_override_indptr_cpu=cache.indptr.cpu())
        self.assertTrue(torch.equal(plain.run(q, cache.given), want))
        with self.assertRaisesRegex(TypeError, "self is of type BatchPrefill.*; must be a BatchDecode"):
            flashinfer.fast_decode_plan(flashinfer.BatchPrefillWithPagedKVCacheWrapper(), *cache.lists(), 8, 2, D, 4)

    def test_forward_chooses_again(self):
        c, choices = Calls(), dict(window_left=3, logits_soft_cap=2.0, sm_scale=0.3)
        paged, keys = dict(paged_kv_cache=c.cache.pages), dict(k=c.k, v=c.v)
        for made, again, given, causal in ((c.decode(), c.decode(), dict(
                paged, q=c.one), {}), (c.prefill(), c.prefill(), dict(
                    paged, q=c.q), dict(causal=False)), (c.ragged(), c.ragged(), dict(keys,
                                                                                      q=c.q), dict(causal=False))):
            plan = {
                flashinfer.BatchDecodeWithPagedKVCacheWrapper: c.decode_plan,
                flashinfer.BatchPrefillWithPagedKVCacheWrapper: c.prefill_plan,
                flashinfer.BatchPrefillWithRaggedKVCacheWrapper: c.ragged_plan}[type(made)]()
            again.plan(**{**plan, **choices, **causal})
            want = again.run_return_lse(**given)
            for found in (made.forward_return_lse(**given, **choices,
                                                  **causal), (made.forward(**given, **choices,
                                                                           **causal), ), made.run_return_lse(**given)):
                for x, y in zip(found, want):
                    self.assertTrue(torch.equal(x, y))
            self.assertFalse(torch.equal(made.forward(**given), want[0]),
                             "arguments that forward() does not name have their defaults")
        with self.assertRaisesRegex(RuntimeError, "called before plan"):
            flashinfer.BatchDecodeWithPagedKVCacheWrapper().forward(c.one, c.cache.pages)

    def test_latent_caches_of_8_bits(self):
        if DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
            self.skipTest("e4m3 starts with sm_89")
        random, rows, lengths = np.random.default_rng(64), [2, 1], [30, 5]
        cache = Cache(64, lengths, 8)
        codes = (drawn(random, cache.pages.shape[0], 8, 576) * 3).to(torch.float8_e4m3fn)
        q, wrapper = drawn(random, 3, 16, 576).to(HALF), flashinfer.BatchMLAPagedAttentionWrapper()
        wrapper.plan(begins_of(rows), cache.indptr, cache.indices, ints(lengths), 16, 512, 64, 8, True, 0.05, HALF,
                     torch.float8_e4m3fn)
        parts = q[..., :512], q[..., 512:]
        for ckv, kpe in ((0.25, 0.25), (0.25, 0.5), (0.5, 0.125)):
            for caches in ((codes[..., :512], codes[...,
                                                    512:]), (codes[..., :512].contiguous(), codes[...,
                                                                                                  512:].contiguous())):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    o, lse = wrapper.run(*parts, *caches, return_lse=True, ckv_scale=ckv, kpe_scale=kpe)
                for begin, n, m, first, end in zip((0, 2), rows, lengths, cache.indptr.tolist(),
                                                   cache.indptr.tolist()[1:]):
                    keys = codes[cache.indices[first:end].long()].double().reshape(-1, 1, 576)[:m]
                    keys = torch.cat((keys[..., :512] * ckv, keys[..., 512:] * kpe), -1)
                    want = attended(q[begin:begin + n], keys, keys[..., :512], seen_of(n, m, True, -1), 0.05)
                    self.near(o[begin:begin + n], want[0], 2e-2)
                    self.near(lse[begin:begin + n], want[1], 2e-2)
        for message, given in (("ckv_scale is -1", dict(
                ckv_scale=-1.0,
                kpe_scale=1.0)), ("kpe_scale is None and ckv_cache is torch.float8_e4m3fn; must be a number",
                                  dict(ckv_scale=1.0)),
                               ("ckv_scale_arr is given; must be None: attune takes one ckv_scale",
                                dict(ckv_scale_arr=torch.ones(1)))):
            with self.assertRaisesRegex(ValueError, message):
                wrapper.run(*parts, codes[..., :512], codes[..., 512:], **given)
        with self.assertWarnsRegex(
                UserWarning, "copies the pages of all requests at each run, because ckv_cache is torch.float8_e4m3fn"):
            wrapper.run(*parts, codes[..., :512], codes[..., 512:], ckv_scale=1.0, kpe_scale=1.0)
        wide = Calls()
        with self.assertRaisesRegex(
                ValueError, "ckv_scale is given and ckv_cache is .*; must be None: only 8-bit caches have factors"):
            wide.mla().run(wide.parts[..., :128], wide.parts[..., 128:], wide.latent[..., :128], wide.latent[..., 128:],
                           ckv_scale=1.0)

    def test_latent_attention_without_rotary_columns(self):
        random, cache = np.random.default_rng(65), Cache(65, [30, 5], 8)
        ckv, q = drawn(random, cache.pages.shape[0], 8, 128), drawn(random, 3, 4, 128)
        wrapper = flashinfer.BatchMLAPagedAttentionWrapper()
        wrapper.plan(begins_of([2, 1]), cache.indptr, cache.indices, ints([30, 5]), 4, 128, 0, 8, True, 0.1)
        o, lse = wrapper.run(q, q[..., :0], ckv, ckv[..., :0], return_lse=True)
        for part, m, first, end in ((slice(0, 2), 30, 0, 4), (slice(2, 3), 5, 4, 5)):
            keys = ckv[cache.indices[first:end].long()].reshape(-1, 1, 128)[:m]
            want = attended(q[part], keys, keys, seen_of(part.stop - part.start, m, True, -1), 0.1)
            self.near(o[part], want[0])
            self.near(lse[part], want[1])

    def test_a_wrappers_constructor_arguments(self):
        for told in (True, False):
            self.assertIs(
                flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, use_tensor_cores=told).use_tensor_cores, told)
            self.assertIs(
                flashinfer.BatchDecodeWithPagedKVCacheWrapper(None, use_cuda_graph=told).is_cuda_graph_enabled, told)
        if torch.cuda.is_available() == (DEVICE == "cuda"):
            c, plain = Calls(), flashinfer.BatchAttention()  # on a GPU where there is one
            plain.plan(**c.mixed_plan())
            self.assertEqual(plain.run(c.q, c.cache.pages)[0].device.type, DEVICE)

    def test_types_that_plans_name(self):
        c, other = Calls(), torch.float16 if DTYPE != torch.float16 else torch.float32
        for name, message in (("q_data_type", "q_data_type is torch.* and q is torch"),
                              ("kv_data_type", "kv_data_type is torch.* and paged_kv_cache is torch"),
                              ("data_type", "q_data_type is torch"), ("q_data_type", "q_data_type is torch")):
            wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper()
            wrapper.plan(**{**c.decode_plan(), name: other})
            with self.assertRaisesRegex(ValueError, message):
                wrapper.run(c.one, c.cache.pages)


if __name__ == "__main__":
    unittest.main()
