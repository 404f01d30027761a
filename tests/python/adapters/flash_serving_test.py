#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""flash_attn_with_kvcache(): arguments of FlashAttention 3, required shapes of angle tables, refusals by the caller's
argument names; joining partial results, and padded batches as packed sequences. kvcache_test.py and varlen_test.py
cover version 2. On PyTorch's tensors, on the device named by the first argument. Skips aloud (status 77) without
PyTorch or that device."""
import unittest

from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("PyTorch's tensors are wanted: cpu or cuda")

import attune
import attune.flash
from caches import DTYPE, LIMIT, ints, run_tests, turned
from published_grids import reference, visible

KIND = getattr(torch, DTYPE)
with_cache = attune.flash.flash_attn_with_kvcache
PAIRS = 16


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, KIND)


def tables(positions):
    angle = torch.arange(positions)[:, None] / 100.0 ** (torch.arange(PAIRS) / PAIRS)
    return [x.to(DEVICE, torch.float32) for x in (angle.cos(), angle.sin())]


class ServingTest(unittest.TestCase):
    """Three requests in slots, or in pages of one cache."""
    BEFORE, PAGE, COLUMNS = [20, 0, 7], 8, 4

    def setUp(self):
        self.k_cache, self.v_cache = draw(3, self.PAGE * self.COLUMNS, 2, 64, seed=1), draw(
            3, self.PAGE * self.COLUMNS, 2, 64, seed=2)
        self.order = torch.tensor([[5, 2, 9, 0], [1, 11, 3, 4], [8, 7, 10, 6]])
        self.lengths = ints(self.BEFORE)

    def caches(self, paged):
        """Returns cache copies, the keywords that address them, and a function that reads a request's keys."""
        if not paged:
            return [self.k_cache.clone(), self.v_cache.clone()], {}, lambda cache, b: cache[b]
        made = []
        for x in (self.k_cache, self.v_cache):
            pages = torch.empty(12, self.PAGE, 2, 64).to(DEVICE, KIND)
            pages[self.order.flatten()] = x.reshape(12, self.PAGE, 2, 64)
            made.append(pages)
        return made, {"page_table": self.order.to(DEVICE,
                                                  torch.int32)}, lambda cache, b: cache[self.order[b]].flatten(0, 1)

    def near(self, found, want, times=4):
        torch.testing.assert_close(found.double(),
                                   torch.as_tensor(want, device=DEVICE).double(), atol=times * LIMIT,
                                   rtol=times * LIMIT)

    def turn(self, x, cos, sin, first, interleaved, step=1):
        """Returns x [rows, heads, d] in float64, rotated for positions from `first` on."""
        at = [first + step * i for i in range(x.shape[0])]
        return torch.from_numpy(
            turned(x.double().cpu().numpy(), *(t[at].double().cpu().numpy() for t in (cos, sin)),
                   interleaved)).to(DEVICE)

    def check(self, rows_q, rows_k, packed_q, packed_k, paged, causal, interleaved, from_elsewhere):
        """rows_q, rows_k: rows per request; from_elsewhere: rotary_seqlens."""
        q, k, v = draw(sum(rows_q), 4, 64, seed=3), draw(sum(rows_k), 2, 64, seed=4), draw(sum(rows_k), 2, 64, seed=5)
        cos, sin = tables(self.PAGE * self.COLUMNS)
        caches, given, read = self.caches(paged)
        ends_q = ints([0, *np.cumsum(rows_q)])
        ends_k = ends_q if packed_q and rows_q == rows_k else ints([0, *np.cumsum(rows_k)])
        angles_from = [n // 2 for n in self.BEFORE] if from_elsewhere else self.BEFORE
        if packed_q:
            given.update(cu_seqlens_q=ends_q, max_seqlen_q=max(rows_q))
        if packed_k:
            given.update(cu_seqlens_k_new=ends_k)
        if from_elsewhere:
            given.update(rotary_seqlens=ints(angles_from))
        of_batch = lambda x, packed: x if packed else x.reshape(3, -1, *x.shape[1:])  # noqa: E731
        out, lse = with_cache(of_batch(q, packed_q), *caches, of_batch(k, packed_k), of_batch(v, packed_k), cos, sin,
                              self.lengths, causal=causal, rotary_interleaved=interleaved, return_softmax_lse=True,
                              **given)
        self.assertEqual(lse.shape, (4, sum(rows_q)) if packed_q else (3, 4, rows_q[0]))
        lse = lse if packed_q else lse.transpose(0, 1).flatten(1)
        out = out if packed_q else out.flatten(0, 1)
        for b, before in enumerate(self.BEFORE):
            mine, new = slice(ends_q[b], ends_q[b + 1]), slice(ends_k[b], ends_k[b + 1])
            keys, values = (read(cache, b)[:before + rows_k[b]] for cache in caches)
            self.near(keys[before:], self.turn(k[new], cos, sin, angles_from[b], interleaved))
            self.assertTrue(torch.equal(values[before:], v[new]))
            self.assertTrue(torch.equal(keys[:before], self.k_cache[b, :before]))
            own = self.turn(q[mine], cos, sin, angles_from[b], interleaved, 1 if causal else 0)
            want, want_lse = reference(
                own[None], keys[None], values[None],
                visible(rows_q[b], before + rows_k[b], "bottom_right" if causal else None, device=DEVICE))
            self.near(out[mine], want[0])
            self.near(lse[:, mine], want_lse[0])

    def test_rows_end_to_end_and_angles_from_elsewhere(self):
        cases = (([3, 1, 2], [3, 1, 2], True, True), ([3, 0, 5], [2, 1, 4], True, True), ([2, 2, 2], [
            2, 2, 2], True, False), ([3, 3, 3], [1, 2, 4], False, True), ([2, 2, 2], [2, 2, 2], False, False), ([
                1, 1, 1], [3, 3, 3], False, False))
        for number, case in enumerate(cases):
            for paged in (False, True):
                for elsewhere in (False, True):
                    choices = dict(paged=paged, causal=number != 4, interleaved=bool(number % 2),
                                   from_elsewhere=elsewhere)
                    with self.subTest(case=case, **choices):
                        self.check(*case, **choices)
        self.check([2, 0, 3], [2, 1, 1], True, True, paged=True, causal=False, interleaved=True, from_elsewhere=False)

    def test_window_sides_as_wide_as_the_cache(self):
        """FlashAttention treats a side as wide as the cache as open. attune once rotated q for a narrow window then:
        each row at its own position."""
        q, k, v = draw(3, 3, 4, 64, seed=3), draw(3, 3, 2, 64, seed=4), draw(3, 3, 2, 64, seed=5)
        room, angles = self.PAGE * self.COLUMNS, tables(self.PAGE * self.COLUMNS)
        for paged in (False, True):
            def attended(**given):
                caches, pages, _ = self.caches(paged)
                return with_cache(q, *caches, k, v, *angles, self.lengths, **pages, **given)
            fixed, moved = attended(), attended(window_size=(room - 1, -1))
            self.assertFalse(torch.allclose(fixed, moved, atol=4 * LIMIT))
            for window in ((room, -1), (-1, room), (1000, 1000)):
                self.near(attended(window_size=window), fixed)
            self.near(attended(attention_chunk=room), moved)  # hides nothing, and counts as a window

    def test_slots_that_requests_share(self):
        """Requests that share a slot must have equal factors; once one request's factors served all."""
        if DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
            self.skipTest("e4m3 starts with sm_89")
        q, caches = draw(3, 1, 4, 64, seed=6).to(torch.bfloat16), [
            x.to(torch.float8_e4m3fn) for x in (self.k_cache, self.v_cache)]
        factors = torch.tensor([[0.5, 2.0], [1.5, 0.75], [0.5, 2.0]], device=DEVICE)
        out = with_cache(q, *caches, cache_seqlens=20, cache_batch_idx=ints([1, 0, 1]), k_descale=factors,
                         v_descale=factors)
        want = [x[[1, 0, 1], :20].double() * factors[:, None, :, None] for x in caches]
        torch.testing.assert_close(out.double(), reference(q, *want)[0], atol=3e-2, rtol=3e-2)
        out = with_cache(q, *caches, cache_seqlens=ints([20, 20, 0]), cache_batch_idx=ints([1, 0, -1]),
                         k_descale=factors, v_descale=factors)
        torch.testing.assert_close(out[:2].double(), reference(q, *want)[0][:2], atol=3e-2, rtol=3e-2)
        if DEVICE == "cpu":
            for name in ("k_descale", "v_descale"):
                with self.assertRaisesRegex(
                        ValueError,
                        "cache_batch_idx has slot 1 more than once, with unlike factors .*; all requests of a slot "
                        "must have the same factors"
                ):
                    with_cache(q, *caches, cache_seqlens=20, cache_batch_idx=ints([1, 1, 0]), **{name: factors})

    def test_sinks_chunks_and_out(self):
        q, sinks = draw(3, 2, 4, 64, seed=6), draw(4, seed=7)
        lengths = [20, 2, 7]
        for paged in (False, True):
            caches, given, _ = self.caches(paged)
            out = torch.empty_like(q)
            found, lse = with_cache(q, *caches, cache_seqlens=ints(lengths), causal=True, attention_chunk=8,
                                    s_aux=sinks, out=out, return_softmax_lse=True, **given)
            self.assertIs(found, out)
            for b, n in enumerate(lengths):
                rows, keys = torch.arange(n - 2, n, device=DEVICE)[:, None], torch.arange(n, device=DEVICE)
                want, want_lse = reference(q[b:b + 1], self.k_cache[b:b + 1, :n], self.v_cache[b:b + 1, :n],
                                           (rows // 8 == keys // 8) & (keys <= rows), sinks=sinks)
                self.near(out[b], want[0])
                self.near(lse[b], want_lse[0])
            again = with_cache(q, *caches, cache_seqlens=ints(lengths), causal=True, attention_chunk=8,
                               learnable_sink=sinks, **given)
            self.assertTrue(torch.equal(again, out))

    def test_defaults_of_all_arguments_and_numbers_of_any_type(self):
        q = draw(3, 1, 4, 64, seed=6)
        plain = with_cache(q, self.k_cache, self.v_cache, cache_seqlens=12)
        none = dict.fromkeys(("page_table", "cu_seqlens_q", "max_seqlen_q", "cu_seqlens_k_new", "rotary_seqlens",
                              "q_descale", "k_descale", "v_descale", "learnable_sink", "s_aux", "out", "qv",
                              "scheduler_metadata", "pack_gqa", "fa_version", "window_size"))
        for number in (12, np.int64(12), np.int32(12)):
            self.assertTrue(
                torch.equal(
                    plain,
                    with_cache(q, self.k_cache, self.v_cache, cache_seqlens=number, **none, attention_chunk=0,
                               sm_margin=0)))
        factors = torch.full((3, 2), 2.0, device=DEVICE)  # FlashAttention ignores factors of other than 8-bit tensors
        self.assertTrue(
            torch.equal(
                plain,
                with_cache(q, self.k_cache, self.v_cache, cache_seqlens=12, k_descale=factors, q_descale=factors,
                           v_descale=factors)))

    def test_in_graphs(self):
        q, new = draw(3, 1, 4, 64, seed=6), draw(3, 1, 2, 64, seed=8)
        cos, sin = tables(self.PAGE * self.COLUMNS)
        found = []
        for compiled in (False, True):
            caches, given, _ = self.caches(True)
            step = lambda q, k, v, k_cache, v_cache, lengths, table: with_cache(
                q, k_cache, v_cache, k, v, cos, sin, lengths, block_table=table, causal=True)  # noqa: E731
            torch._dynamo.reset()
            step = torch.compile(step, fullgraph=True, backend="eager") if compiled else step
            found.append((step(q, new, new, *caches, self.lengths, given["page_table"]), *caches))
        for one, other in zip(*found):
            self.assertTrue(torch.equal(one, other))

    def test_queries_of_8_bits(self):
        if DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
            self.skipTest("e4m3 starts with sm_89")
        q, k, v = (x.to(torch.float8_e4m3fn) for x in (draw(3, 2, 4, 64, seed=6), self.k_cache, self.v_cache))
        factors = torch.tensor([[0.5, 2.0], [1.5, 0.75], [1.0, 0.25]], device=DEVICE)
        out = with_cache(q, k, v, cache_seqlens=20, causal=True, q_descale=factors, k_descale=factors,
                         v_descale=factors)
        packed = with_cache(q.flatten(0, 1), k, v, cache_seqlens=20, causal=True, q_descale=factors, k_descale=factors,
                            v_descale=factors, cu_seqlens_q=ints([0, 2, 4, 6]), max_seqlen_q=2)
        want = reference(q.double() * factors.repeat_interleave(2, 1)[:, None, :, None],
                         *(x[:, :20].double() * factors[:, None, :, None] for x in (k, v)),
                         visible(2, 20, "bottom_right", device=DEVICE))[0]
        self.assertEqual(out.dtype, torch.bfloat16)
        torch.testing.assert_close(out.double(), want, atol=3e-2, rtol=3e-2)
        torch.testing.assert_close(packed.double(), want.flatten(0, 1), atol=3e-2, rtol=3e-2)

    def refused(self, message, q=None, error=ValueError, paged=False, **given):
        caches, found, _ = self.caches(paged)
        before = [x.clone() for x in caches]
        with self.subTest(message), self.assertRaisesRegex(error, message):
            with_cache(draw(3, 1, 4, 64) if q is None else q, *caches, **{**found, **given})
        self.assertTrue(all(torch.equal(*pair) for pair in zip(caches, before)))

    def test_angles_for_less_than_the_cache(self):
        """Rows after the table's end were once silently not written. FlashAttention refuses such tables by their
        shape."""
        new = [draw(3, 1, 2, 64, seed=8) for _ in "kv"]
        for paged in (False, True):
            for causal in (True, False):
                for rows in (1, 2):
                    cos, sin = tables(31)
                    self.refused(
                        r"rotary_cos has shape \(31, 16\); must have at least 32 positions, the cache's room",
                        draw(3, rows, 4, 64), k=new[0], v=new[1], rotary_cos=cos, rotary_sin=sin,
                        cache_seqlens=self.lengths, causal=causal, paged=paged)
        if DEVICE == "cpu":
            cos, sin = tables(32)
            self.refused(r"rotary_seqlens\[1\] is 32; must be 0 to 31: rotary_cos has 32 positions, of which 1 are new",
                         k=new[0], v=new[1], rotary_cos=cos, rotary_sin=sin, cache_seqlens=self.lengths,
                         rotary_seqlens=ints([0, 32, 0]))

    def test_refusals_name_arguments_of_the_caller(self):
        q, k, sinks_of_bytes = draw(3, 1, 4, 64), draw(3, 1, 2, 64), torch.zeros(4, dtype=torch.uint8, device=DEVICE)
        long = self.lengths.long()
        self.refused(
            r"cache_seqlens is torch.int64 of shape \(3,\) on \w+(:0)?; must be a tensor of int32 \[batch\] = \(3,\)",
            cache_seqlens=long)
        self.refused(r"cache_seqlens is torch.int32 of shape \(2,\)", cache_seqlens=self.lengths[:2])
        self.refused(r"cache_seqlens is 2.5; must be a whole number", cache_seqlens=2.5)
        self.refused(r"cache_batch_idx is torch.int64 of shape \(3,\)", cache_batch_idx=long)
        self.refused(
            r"block_table is torch.int32 of shape \(2, 4\) on \w+(:0)?; must be a tensor of int32 \[batch, pages\] = "
            r"\(3, 4\)",
            block_table=self.order[:2].to(DEVICE, torch.int32))
        self.refused(r"block_table is torch.int64 of shape \(3, 4\)", block_table=self.order.to(DEVICE))
        self.refused(r"cu_seqlens_q is torch.int64 of shape \(4,\)", q[:, 0],
                     cu_seqlens_q=torch.tensor([0, 1, 2, 3], device=DEVICE), max_seqlen_q=1)
        self.refused(r"one of cu_seqlens_q and max_seqlen_q is given", q[:, 0], cu_seqlens_q=ints([0, 1, 2, 3]))
        self.refused(r"cu_seqlens_k_new is given without k", cu_seqlens_k_new=ints([0, 1, 2, 3]))
        self.refused(r"block_table and page_table are given; give one of them", block_table=self.order.to(
            DEVICE, torch.int32), paged=True)
        if DEVICE == "cpu":
            self.refused(r"cache_seqlens\[0\] is 33; must be 0 to 32: the cache has room for 32 keys of a request",
                         cache_seqlens=ints([33, 0, 1]))
            self.refused(
                r"cache_seqlens\[0\] is 31; must be 0 to 30: the cache has room for 32 keys of a request, of which "
                r"some are new",
                k=draw(4, 2, 64), v=draw(4, 2, 64), cu_seqlens_k_new=ints([0, 2, 3, 4]), cache_seqlens=ints([31, 0, 1]))
        self.refused("learnable_sink is ", learnable_sink=sinks_of_bytes)
        self.refused("s_aux is ", s_aux=sinks_of_bytes)
        self.refused("softmax_scale is -1", softmax_scale=-1.0)
        self.refused("page_table is torch.int64 of shape", page_table=self.order.to(DEVICE))
        self.refused("rotary_cos has shape .* columns", k=k, v=k, rotary_cos=torch.zeros(32, 33, device=DEVICE),
                     rotary_sin=torch.zeros(32, 33, device=DEVICE))

    def test_forward_alone(self):
        """The forward serves tensors that require gradients; a backward raises."""
        q, k = draw(3, 1, 4, 64), draw(3, 1, 2, 64)
        caches, found, _ = self.caches(False)
        want = with_cache(q, *(x.clone() for x in caches), k, k, cache_seqlens=self.lengths, return_softmax_lse=True,
                          **found)
        for name in ("q", "k", "v"):
            given = {"q": q, "k": k, "v": k, name: (q if name == "q" else k).clone().requires_grad_()}
            mine = [x.clone() for x in caches]
            out, lse = with_cache(**given, k_cache=mine[0], v_cache=mine[1], cache_seqlens=self.lengths,
                                  return_softmax_lse=True, **found)
            self.assertTrue(torch.equal(out, want[0]) and torch.equal(lse, want[1]) and out.requires_grad)
            with self.assertRaisesRegex(RuntimeError,
                                        r"gradients are asked of flash_attn_with_kvcache\(\), which has none"):
                (out.float().sum() + lse.sum()).backward()
        with self.assertRaisesRegex(ValueError, "k_cache requires a gradient"):
            with_cache(q, caches[0].clone().requires_grad_(), caches[1], k, k, self.lengths)


class RowsTest(unittest.TestCase):
    def test_combine(self):
        q, k, v = draw(2, 5, 4, 64, seed=1), draw(2, 40, 4, 64, seed=2), draw(2, 40, 4, 64, seed=3)
        parts = [reference(q, k[:, a:b], v[:, a:b]) for a, b in ((0, 10), (10, 10), (10, 33), (33, 40))]
        out_partial = torch.stack([o for o, _ in parts]).float()
        lse_partial = torch.stack([lse.transpose(1, 2) for _, lse in parts]).float()
        want, want_lse = reference(q, k, v)
        for given, kind in (({}, torch.float32), ({"out_dtype": torch.bfloat16}, torch.bfloat16), ({
                "out": torch.empty(2, 5, 4, 64, dtype=torch.float16, device=DEVICE)}, torch.float16)):
            out, lse = attune.flash.flash_attn_combine(out_partial, lse_partial, **given)
            self.assertEqual((out.dtype, lse.shape), (kind, (2, 5, 4)))
            limit = {torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}[kind]
            torch.testing.assert_close(out.double(), want, atol=limit, rtol=limit)
            torch.testing.assert_close(lse.double(), want_lse.transpose(1, 2), atol=1e-5, rtol=1e-5)
        packed, nothing = attune.flash.flash_attn_combine(out_partial.flatten(1, 2), lse_partial.flatten(1, 2),
                                                          return_lse=False)
        self.assertIsNone(nothing)
        torch.testing.assert_close(packed.double(), want.flatten(0, 1), atol=1e-5, rtol=1e-5)
        with self.assertRaisesRegex(ValueError, r"out_partial has shape .* and lse_partial \(4, 2, 4, 5\); must be"):
            attune.flash.flash_attn_combine(out_partial, lse_partial.transpose(2, 3))
        self.assertEqual(attune.flash.get_scheduler_metadata(2, 1, 9, 4, 2, 64, ints([1, 2])).shape, (0,))

    def test_padding(self):
        mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]], device=DEVICE)
        x = draw(3, 4, 2, 8, seed=4).requires_grad_()
        rows, indices, ends, longest, used = attune.flash.unpad_input(x, mask)
        self.assertEqual((indices.tolist(), ends.tolist(), longest, used.tolist()),
                         ([0, 1, 8, 9, 10, 11], [0, 2, 2, 6], 4, [2, 0, 4]))
        self.assertEqual((ends.dtype, used.dtype), (torch.int32, torch.int32))
        self.assertTrue(torch.equal(rows, x[mask.bool()]))
        back = attune.flash.pad_input(rows, indices, 3, 4)
        self.assertTrue(torch.equal(back, attune.flash.pad_input(rows, indices.int(), 3, 4)))  # as transformers decodes
        self.assertTrue(torch.equal(back, x * mask[..., None, None]))
        (back * x.detach()).sum().backward()
        for wrong in (torch.zeros(3, 4, device=DEVICE), mask[:, :3], mask[0]):
            with self.assertRaisesRegex(ValueError,
                                        r"attention_mask is .* must be bool or int \[batch, seqlen\] = \(3, 4\)"):
                attune.flash.unpad_input(x, wrong)
        self.assertTrue(torch.equal(x.grad, x.detach() * mask[..., None, None]))
        unused = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]], device=DEVICE)
        rows, indices, ends, longest, used = attune.flash.unpad_input(x, mask, unused)
        self.assertEqual((ends.tolist(), used.tolist(), longest), ([0, 3, 4, 8], [2, 0, 4], 4))
        self.assertTrue(torch.equal(attune.flash.index_first_axis(x.flatten(0, 1), indices), rows))

    def test_heads_of_one_tensor(self):
        """Version 3: qkv of grouped heads."""
        qkv = draw(2, 9, 8, 64, seed=5)
        found = attune.flash.flash_attn_qkvpacked_func(qkv, causal=True, num_heads_q=4)
        self.assertTrue(
            torch.equal(found, attune.flash.flash_attn_func(qkv[:, :, :4], qkv[:, :, 4:6], qkv[:, :, 6:], causal=True)))
        with self.assertRaisesRegex(ValueError, r"num_heads_q is 5 and qkv has 8 heads; qkv must have num_heads_q"):
            attune.flash.flash_attn_qkvpacked_func(qkv, num_heads_q=5)


if __name__ == "__main__":
    run_tests()
