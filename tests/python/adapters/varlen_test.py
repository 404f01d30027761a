#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.flash's functions of sequences end to end, against each sequence by itself in float64: what callers give
beside the lists, and lists that are wrong. kvcache_test.py has their masks and lengths. On PyTorch's tensors, on the
device named by the first argument. Skips aloud (status 77) without PyTorch or that device."""
import re
import unittest
import warnings

import attune
from caches import DTYPE, LIMIT, close, expected, ints, numbers, run_tests
from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("PyTorch's tensors are wanted: cpu or cuda")
import attune.flash  # noqa: E402

LENGTHS, HEADS = [5, 0, 33, 1], 4
ROWS = sum(LENGTHS)


def begins(lengths, dtype=None):
    made = ints([0, *np.cumsum(lengths)])
    return made if dtype is None else made.to(dtype)


class VarlenTest(unittest.TestCase):
    def setUp(self):
        random = torch.Generator().manual_seed(4)
        self.q, self.k, self.v = (torch.randn(ROWS, heads, 64, generator=random).to(DEVICE, getattr(torch, DTYPE))
                                  for heads in (HEADS, 2, 2))
        self.slopes = torch.rand(len(LENGTHS), HEADS, generator=random).to(DEVICE)

    def check(self, out, slopes=None):
        for request, begin in enumerate(begins(LENGTHS)[:-1].tolist()):
            of = slice(begin, begin + LENGTHS[request])
            want = expected(numbers(self.q[of]), numbers(self.k[of]), numbers(self.v[of]), causal=True,
                            slopes=None if slopes is None else slopes[request])
            close(out[of], want[0], 2)

    def attend(self, cu_seqlens_q, cu_seqlens_k, most=33, **given):
        return attune.flash.flash_attn_varlen_func(given.pop("q", self.q), self.k, self.v, cu_seqlens_q, cu_seqlens_k,
                                                   most, most, causal=True, **given)

    def test_slopes_of_each_sequence(self):
        """They were once read as slopes of a batch of one, if both lists are one tensor or gradients are required.
        """
        one, slopes = begins(LENGTHS), numbers(self.slopes)
        self.check(self.attend(one, one, alibi_slopes=self.slopes), slopes)
        self.check(self.attend(one, one.clone(), alibi_slopes=self.slopes), slopes)
        q = self.q.clone().requires_grad_()
        out = self.attend(one, one, q=q, alibi_slopes=self.slopes)
        self.check(out.detach(), slopes)
        weights = torch.randn(ROWS, HEADS, 64, generator=torch.Generator().manual_seed(5)).to(out)
        out.backward(weights)
        for begin, length, own in zip(one.tolist(), LENGTHS, self.slopes):
            alone, of = self.q[begin:begin + length].clone().requires_grad_(), slice(begin, begin + length)
            if length:
                o = attune.flash.flash_attn_func(alone[None], self.k[None, of], self.v[None, of], causal=True,
                                                 alibi_slopes=own)
                o.backward(weights[None, of])
                torch.testing.assert_close(q.grad[of], alone.grad, atol=4 * LIMIT, rtol=4 * LIMIT)

    def test_slopes_of_other_shapes(self):
        """Slopes of too few heads were once read beyond their end, and messages differed by lists, gradients and
        device."""
        one = begins(LENGTHS)
        for name, keys, wants in (("one list", one, False), ("two lists", one.clone(), False), ("gradients", one,
                                                                                                True)):
            q = self.q.clone().requires_grad_(wants)
            for slopes in (self.slopes[:2], self.slopes[:, :3], self.slopes[0, :3]):
                shape = re.escape(str(tuple(slopes.shape)))
                message = (rf"alibi_slopes has shape {shape}; must be \[batch, num_heads_q\] = \(4, 4\). "
                           "Axes of 1 .* broadcast")
                with self.subTest(name, shape=shape), self.assertRaisesRegex(ValueError, message):
                    self.attend(one, keys, q=q, alibi_slopes=slopes)
            for slopes in (self.slopes[:, :1], self.slopes[:1], self.slopes[0], self.slopes[0, 0]):
                with self.subTest(name, shape=tuple(slopes.shape)):
                    self.check(
                        self.attend(one, keys, q=q, alibi_slopes=slopes).detach(),
                        numbers(slopes.expand(len(LENGTHS), HEADS)))

    def test_longest_may_be_that_of_any_batch(self):
        """max_seqlen_k above the number of keys was once refused."""
        self.check(self.attend(begins(LENGTHS), begins(LENGTHS), 512))

    def test_lists_of_64_bits(self):
        self.check(self.attend(begins(LENGTHS, torch.int64), begins(LENGTHS, torch.int64)))

    @unittest.skipIf(DEVICE != "cpu", "nobody looks at lists of a GPU")
    def test_wrong_lists_are_refused(self):
        """Kernels once wrote to the rows in wrong lists, even out of memory, and left other rows unwritten."""
        good = begins(LENGTHS)
        for message, q, k, most in ((r"cu_seqlens_q\[3\] is 4; must be 5 to 39", ints([
                0, 5, 5, 4, 39]), good, 39), (r"cu_seqlens_q\[4\] is 40000; must be 38 to 39", ints([
                    0, 5, 5, 38,
                    40000]), good, 40000), (r"cu_seqlens_q\[0\] is -9; must be 0 to 39", ints([
                        -9, 5, 5,
                        38, 39]), good, 39), (r"cu_seqlens_k\[4\] is 40; must be 38 to 39", good, ints([
                            0, 5, 5, 38, 40
                        ]), 39), (r"cu_seqlens_q\[3\] - cu_seqlens_q\[2\] is 33 and max_seqlen_q is 8", good,
                                  good.clone(), 8), (
                                      r"cu_seqlens_k is \[0, 39\]; must be an int32 tensor \[batch \+ 1\]", good,
                                      [0, 39], 39)):
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                self.attend(q, k, most)
            if not isinstance(k, list):
                if message.startswith("cu_seqlens_q"):
                    with self.subTest(one_list=message), self.assertRaisesRegex(ValueError, message):
                        self.attend(q, q, most)
                with self.subTest(by=message), self.assertRaisesRegex(
                        ValueError,
                        message.replace("cu_seqlens_q", "q_begins").replace("cu_seqlens_k", "kv_begins").replace(
                            "max_seqlen_q", "seqlen_q")):
                    attune.attention_kvcache(self.q, self.k, self.v, q_begins=q, seqlen_q=most, kv_begins=k,
                                             seqlen_kv=39, is_causal=True)

    def test_rows_behind_the_last_sequence(self):
        """Only q has padding: the diagonal stays in place, also for gradients."""
        more = torch.cat((self.q, self.q[:7]))
        for alike in (True, False):
            ends = begins(LENGTHS)
            for given in ({}, {"window_size": (3, 0)}, {"alibi_slopes": self.slopes}):
                want = self.attend(ends, ends.clone(), **given)
                q = more.clone().requires_grad_()
                out, lse, _ = self.attend(ends, ends if alike else ends.clone(), q=q, return_attn_probs=True, **given)
                self.assertEqual((out.shape[0], lse.shape[1]), (ROWS + 7, ROWS + 7))
                close(out[:ROWS].detach(), numbers(want), 2)
                self.assertTrue((out[ROWS:] == 0).all() and (lse[:, ROWS:] == -float("inf")).all())
                out.sum().backward()
                self.assertTrue((q.grad[ROWS:] == 0).all() and q.grad.isfinite().all())

    def test_rows_of_no_sequence(self):
        """Rows before the first and after the last sequence, with one list, with two, and with gradients. They may hold
        any values if the host sees the lists."""
        around = [torch.cat((x[:3], x, x[:4])) for x in (self.q, self.k, self.v)]
        ends = begins(LENGTHS) + 3
        want = numbers(self.attend(begins(LENGTHS), begins(LENGTHS)))
        for wrong in (1.0, float("nan")) if DEVICE == "cpu" else (1.0,):
            for x in around:
                x[:3], x[3 + ROWS:] = wrong, wrong
            for other, grad in ((ends, False), (ends.clone(), False), (ends, True)):
                q, k, v = (x.clone().requires_grad_(grad) for x in around)
                for given in ({}, {"alibi_slopes": self.slopes}):
                    out = attune.flash.flash_attn_varlen_func(q, k, v, ends, other, 33, 33, causal=True,
                                                              **given)[3:3 + ROWS]
                    if not given:
                        close(out.detach(), want, 2)
                    else:
                        self.check(out.detach(), numbers(self.slopes))
                if grad:
                    out.sum().backward()
                    self.assertTrue(all(x.grad[3:3 + ROWS].isfinite().all() for x in (q, k, v)))

    def test_head_dims_between(self):
        """Like attention(): in wider copies, with one list and with two."""
        ends, few = begins(LENGTHS), [x[..., :20].contiguous() for x in (self.q, self.k, self.v)]
        for other in (ends, ends.clone()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out, lse, _ = attune.flash.flash_attn_varlen_func(*few, ends, other, 33, 33, causal=True,
                                                                  return_attn_probs=True)
            self.assertEqual((out.shape, lse.shape), ((ROWS, HEADS, 20), (HEADS, ROWS)))
            for begin, n in zip(ends.tolist(), LENGTHS):
                of = slice(begin, begin + n)
                close(out[of], expected(*(numbers(x[of]) for x in few), causal=True)[0], 2)

    def test_sequences_without_keys_or_rows(self):
        """With looked-up positions, gradients were once refused with a message about an internal program."""
        some, none = begins(LENGTHS), ints([0] * (1 + len(LENGTHS)))
        mod = lambda score, b, h, q_idx, kv_idx: score + kv_idx - q_idx  # noqa: E731
        for rows, keys in ((some, none), (none, some)):
            for given in ({}, {"window_size": (3, 0)}, {"attention_chunk": 4}, {"alibi_slopes": self.slopes}, {
                    "score_mod": mod}):
                for cut in (False, True):  # tensors without rows, too
                    q, k, v = (x[:0] if cut and of is none else x
                               for x, of in ((self.q, rows), (self.k, keys), (self.v, keys)))
                    leaves = [
                        x.clone().requires_grad_()
                        for x in (q, k, v, *(x for x in given.values() if torch.is_tensor(x)))]
                    slopes = {"alibi_slopes": leaves[3]} if len(leaves) > 3 else {}
                    with self.subTest(list(given), rows=rows.tolist(), cut=cut):
                        out, lse = attune.flash.flash_attn_varlen_func(*leaves[:3], rows, keys, 33, 33, causal=True,
                                                                       return_lse=True, **{**given, **slopes})
                        self.assertEqual((out.shape, lse.shape), (q.shape, (HEADS, q.shape[0])))
                        self.assertTrue((out == 0).all() and (lse == -float("inf")).all())
                        out.sum().backward()
                        self.assertTrue(all((x.grad == 0).all() for x in leaves))

    def test_most_rows_of_any_batch(self):
        """max_seqlen_q is only a bound: memory depends on the number of rows."""
        ends, most = begins(LENGTHS), 1 << 30
        for other in (ends, ends.clone()):
            close(self.attend(ends, other, most), numbers(self.attend(ends, other)), 1)

    def test_codes_without_a_place(self):
        """8-bit rows without a slot or page are not written, like rows that are rounded to 8 bits."""
        def written(new, **places):
            caches = [torch.zeros(5, 4, 2, 64, device=DEVICE).to(torch.float8_e4m3fn) for _ in "kv"]
            rows = torch.ones(2, 2, 2, 64, device=DEVICE).to(new)
            attune.flash.flash_attn_with_kvcache(torch.zeros(2, 1, 4, 64, device=DEVICE, dtype=torch.float16), *caches,
                                                 rows, rows, **places)
            return [cache.float().amax((2, 3)) for cache in caches]

        for places in ({"cache_batch_idx": ints([0, -1])}, {"cache_batch_idx": ints([-1, 7])}, {
                "block_table": ints([[0, 1], [2, -1]])}, {"block_table": ints([[-1, -1], [9, 3]])}):
            for lengths in ([0, 2], [1, 1]):
                places["cache_seqlens"] = ints([x + (3 if "block_table" in places else 0) for x in lengths])
                if DEVICE == "cpu":  # the host sees the wrong places and refuses
                    for new in (torch.float8_e4m3fn, torch.float16):
                        with self.assertRaisesRegex(
                                attune.Error,
                                r"^(cache_batch_idx\[\d\]|block_table\[\d\]\[\d\]) is (-1|7|9); must be 0 to 4"):
                            written(new, **places)
                    continue
                for found, want in zip(written(torch.float8_e4m3fn, **places), written(torch.float16, **places)):
                    self.assertTrue(torch.equal(found, want), places)

    @unittest.skipIf(DEVICE != "cpu", "the host sees lists")
    def test_lengths_that_leave_no_room(self):
        q, cache = torch.ones(1, 1, 1, 64), [torch.zeros(1, 8, 1, 64) for _ in "kv"]
        rows = torch.ones(1, 4, 1, 64)
        with self.assertRaisesRegex(
                ValueError,
                r"cache_seqlens\[0\] is 6; must be 0 to 4: the cache has room for 8 keys of a request, of which 4 are "
                r"new"
        ):
            attune.flash.flash_attn_with_kvcache(q, *cache, rows, rows, cache_seqlens=ints([6]))
        self.assertTrue(all((x == 0).all() for x in cache))

    def test_caches_with_padding_ahead(self):
        """cache_leftpad gives the results of caches without padding, whatever it holds, except for angles."""
        draw = torch.Generator().manual_seed(5)
        drawn = lambda *shape: torch.randn(*shape, generator=draw).to(DEVICE, getattr(torch, DTYPE))  # noqa: E731
        room, pad, before, slots = 40, ints([3, 0, 10, 5]), ints([20, 7, 10, 38]), ints([4, 1, 0, 2])
        k_cache, v_cache = drawn(5, room, 2, 64), drawn(5, room, 2, 64)
        for first, slot in zip(pad.tolist(), slots.tolist()):
            k_cache[slot, :first] = v_cache[slot, :first] = float("nan")
        cos, sin = (torch.as_tensor(np.asarray(x)).to(DEVICE) for x in attune.rotary_table(64, room))
        for new, given in ((1, {}), (2, {"causal": True, "rotary_interleaved": False}), (2, {
                "rotary_interleaved": False}), (2, {"causal": True, "window_size": (4, 0)})):
            q, k, v = drawn(4, new, HEADS, 64), drawn(4, new, 2, 64), drawn(4, new, 2, 64)
            kc, vc = k_cache.clone(), v_cache.clone()
            out, lse = attune.flash.flash_attn_with_kvcache(q, kc, vc, k, v, cos, sin, before, slots, pad,
                                                            return_softmax_lse=True, **given)
            for b, (first, end, slot) in enumerate(zip(pad.tolist(), before.tolist(), slots.tolist())):
                own = [torch.zeros_like(cache[:1]) for cache in (k_cache, v_cache)]
                for to, cache in zip(own, (k_cache, v_cache)):
                    to[0, :end - first] = cache[slot, first:end]
                tables = [torch.cat((table[first:], table[:first]))
                          for table in (cos, sin)]  # angles count from the slot's begin, as FlashAttention's
                want = attune.flash.flash_attn_with_kvcache(q[b:b + 1], *own, k[b:b + 1], v[b:b + 1], *tables,
                                                            end - first, return_softmax_lse=True, **given)
                close(out[b:b + 1], numbers(want[0]), 2)
                close(lse[b:b + 1], numbers(want[1]), 2)
                for found, to in ((kc, own[0]), (vc, own[1])):
                    self.assertTrue(torch.equal(found[slot, end:end + new], to[0, end - first:end - first + new]))
        if DEVICE == "cpu":
            with self.assertRaisesRegex(
                    ValueError,
                    r"cache_batch_idx\[1\] is 9 and request 1 has 7 keys; must be 0 to 4, slots of the cache"):
                attune.flash.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=before, cache_batch_idx=ints([
                    4, 9, 0, 2]), cache_leftpad=pad * 0)
            for wrong, message in (([-1, 0, 0, 0], r"cache_leftpad\[0\] is -1; .* 0 to 20"), ([
                    0, 8, 0, 0], r"cache_leftpad\[1\] is 8; .* 0 to 7"), ([
                        -2**31, 0, 0, 0], r"cache_leftpad\[0\] is -2147483648"), ([
                            0, 0, 0, 2**31 - 1], r"cache_leftpad\[3\] is 2147483647")):
                with self.assertRaisesRegex(ValueError, message):
                    attune.flash.flash_attn_with_kvcache(q, k_cache, v_cache, cache_seqlens=before,
                                                         cache_batch_idx=slots, cache_leftpad=ints(wrong))

    def test_padding_ahead_in_pages(self):
        """cache_leftpad with a table (cache_batch_idx may pick its rows) gives the results of slots with the same keys.
        """
        draw = torch.Generator().manual_seed(6)
        drawn = lambda *shape: torch.randn(*shape, generator=draw).to(DEVICE, getattr(torch, DTYPE))  # noqa: E731
        size, columns, slots, pad, before = 4, 8, ints([4, 1, 0, 2]), ints([3, 0, 10, 9]), ints([20, 7, 12, 30])
        order = torch.randperm(5 * columns, generator=draw).view(5, columns).to(DEVICE)
        caches = [drawn(5, size * columns, 2, 64) for _ in "kv"]
        pages = [torch.empty(5 * columns, size, 2, 64, device=DEVICE, dtype=x.dtype) for x in caches]
        for to, x in zip(pages, caches):
            to[order.flatten()] = x.reshape(-1, size, 2, 64)
        for given in ({}, {"causal": True}, {"causal": True, "cache_leftpad": pad}, {
                "cache_leftpad": pad, "window_size": (5, 0)}):
            q, k, v = drawn(4, 2, HEADS, 64), drawn(4, 2, 2, 64), drawn(4, 2, 2, 64)
            want = attune.flash.flash_attn_with_kvcache(q, *(x.clone() for x in caches), k, v, cache_seqlens=before,
                                                        cache_batch_idx=slots, return_softmax_lse=True, **given)
            for places in ({"page_table": order.int(), "cache_batch_idx": slots}, {
                    "block_table": order.int()[slots.long()].contiguous()}):
                mine = [x.clone() for x in pages]
                found = attune.flash.flash_attn_with_kvcache(q, *mine, k, v, cache_seqlens=before,
                                                             return_softmax_lse=True, **places, **given)
                for one, other in zip(found, want):
                    close(one, numbers(other), 1)
        if DEVICE == "cpu":
            for message, places in ((
                    r"cache_batch_idx\[2\] is 5 and request 2 has 12 keys; must be 0 to 4, rows of page_table", {
                        "page_table": order.int(),
                        "cache_batch_idx": ints([4, 1, 5, 2])}), (r"page_table\[1\]\[1\] is 40; must be 0 to 39", {
                            "page_table": order.int()[slots.long()].index_fill(1,
                                                                               ints([1]).long(), 40)[[1, 1, 1,
                                                                                                      1]].contiguous(),
                            "cache_seqlens": ints([4, 7, 0, 0])})):
                with self.assertRaisesRegex((ValueError, attune.Error), message):
                    attune.flash.flash_attn_with_kvcache(q, *pages, **{"cache_seqlens": before, **places})


if __name__ == "__main__":
    run_tests()
