#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packed rows and keys in attention_kvcache() and append_kv(), with NumPy on the CPU and with PyTorch on the device
named by the first argument. Skips aloud (status 77) without NumPy, or without PyTorch and that device."""
import unittest

import attune
from caches import Cache, checking_context, close, expected, ints, numbers, tensor
from library_and_device import DEVICE, np, torch


class PackedRowsTest(unittest.TestCase):
    def test_packed_rows_equal_each_request(self):
        random = np.random.default_rng(4)
        cache = Cache(5, [60, 0, 33, 7], 64, 2, 64, 64, 8)
        rows = [2, 1, 0, 3]
        begins = np.concatenate([[0], np.cumsum(rows)])
        q = tensor(random.standard_normal((begins[-1], 4, 64)))
        o, lse = attune.attention_kvcache(q, cache.k, cache.v, q_begins=ints(begins), seqlen_q=3, is_causal=True,
                                          return_lse=True, **cache.given)
        self.assertEqual((tuple(o.shape), tuple(lse.shape)), ((6, 4, 64), (4, 6)))
        for request in range(4):
            of = slice(begins[request], begins[request + 1])
            want = expected(numbers(q)[of], cache.keys[request], cache.values[request], causal=True)
            close(o[of], want[0])
            close(lse[:, of], want[1])

    def test_heads_first_in_memory(self):
        """Rows and keys are [num_heads, rows, head_dim] in memory. The problem allows more rows than the tensor has, so
        the next head begins before the problem's last row."""
        random, begins = np.random.default_rng(9), ints([0, 4, 5, 14])
        q, k, v = (random.standard_normal((heads, 14, 64)) for heads in (8, 2, 2))
        lists = dict(q_begins=begins, seqlen_q=9, kv_begins=begins, seqlen_kv=9, is_causal=True)
        want = attune.attention_kvcache(*(tensor(np.ascontiguousarray(x.swapaxes(0, 1))) for x in (q, k, v)), **lists)
        apart, out = [tensor(x).swapaxes(0, 1) for x in (q, k, v)], tensor(np.zeros((8, 14, 64))).swapaxes(0, 1)
        self.assertIs(attune.attention_kvcache(*apart, out=out, **lists), out)
        close(out, numbers(want))
        cos, sin = attune.rotary_table(64, 32)
        if torch is not None:
            cos, sin = (torch.from_numpy(np.asarray(x)).to(DEVICE) for x in (cos, sin))
        cache = [tensor(np.zeros((3, 16, 2, 64))) for _ in range(4)]
        turned = [
            attune.append_kv(k, v, *cache[2 * i:2 * i + 2], ints([4, 1, 9]), q_begins=begins, seqlen_q=9, q=q, cos=cos,
                             sin=sin)
            for i, (q, k, v) in enumerate((apart, [tensor(np.ascontiguousarray(numbers(x))) for x in apart]))]
        close(turned[0], numbers(turned[1]))
        for one, other in zip(cache[:2], cache[2:]):
            close(one, numbers(other))

    def test_a_single_row_may_have_any_stride(self):
        """Rows and keys are [num_heads, 1, head_dim] in memory. A single row's own stride is never used, so it need not
        be a multiple of a vector."""
        random = np.random.default_rng(10)
        q, k, v, wide = random.standard_normal((8, 1, 64)), *random.standard_normal(
            (2, 2, 1, 64)), random.standard_normal((2, 8 * 64 + 1))
        lists = dict(q_begins=ints([0, 1, 1]), seqlen_q=4, kv_begins=ints([0, 1, 1]), seqlen_kv=4)
        plain = [tensor(np.ascontiguousarray(x.swapaxes(0, 1))) for x in (q, k, v)]
        apart, out = [tensor(x).swapaxes(0, 1) for x in (q, k, v)], tensor(np.zeros((8, 1, 64))).swapaxes(0, 1)
        want = numbers(attune.attention_kvcache(*plain, **lists))
        close(attune.attention_kvcache(*apart, out=out, **lists), want)
        odd = tensor(wide)[:, :8 * 64].reshape(2, 8, 64) if torch is None else tensor(wide).as_strided(
            (2, 8, 64), (8 * 64 + 1, 64, 1))
        close(attune.attention_kvcache(odd[:1], *plain[1:], **lists),
              numbers(attune.attention_kvcache(tensor(wide[:1, :8 * 64].reshape(1, 8, 64)), *plain[1:], **lists)))
        cache = [tensor(np.zeros((2, 16, 2, 64))) for _ in range(4)]
        for i, rows in enumerate((apart, plain)):
            attune.append_kv(*rows[1:], *cache[2 * i:2 * i + 2], ints([4, 1]), q_begins=ints([0, 1, 1]), seqlen_q=4)
        for one, other in zip(cache[:2], cache[2:]):
            close(one, numbers(other))

    def test_a_part_of_a_batch_has_a_part_of_its_list(self):
        random, context = np.random.default_rng(12), checking_context()
        q, k = tensor(random.standard_normal((9, 4, 64))), tensor(random.standard_normal((2, 30, 2, 64)))
        o = attune.attention_kvcache(q, k, k, q_begins=ints([7, 8, 9]), seqlen_q=1, context=context)
        close(o[7:], numbers(attune.attention_kvcache(q[7:], k, k, q_begins=ints([0, 1, 2]), seqlen_q=1)))

    def test_lengths_may_be_generous(self):
        random, begins = np.random.default_rng(11), ints([0, 30])
        q, k = tensor(random.standard_normal((2, 4, 64))), tensor(random.standard_normal((30, 2, 64)))
        want = attune.attention_kvcache(q, k, k, q_begins=ints([0, 2]), seqlen_q=2, kv_begins=begins, seqlen_kv=30)
        for seqlen_q, seqlen_kv in ((999, 30), (2, 64), (2, 100000)):
            close(
                attune.attention_kvcache(q, k, k, q_begins=ints([0, 2]), seqlen_q=seqlen_q, kv_begins=begins,
                                         seqlen_kv=seqlen_kv), numbers(want))

    def test_numbers_of_any_whole_type(self):
        """seqlen_q and seqlen_kv may be NumPy's, or tensors; new kinds of calls, and equal calls again."""
        random, lists = np.random.default_rng(13), dict(q_begins=ints([0, 2, 3]), kv_begins=ints([0, 9, 30]))
        q, k = tensor(random.standard_normal((3, 4, 64))), tensor(random.standard_normal((30, 2, 64)))
        want = numbers(attune.attention_kvcache(q, k, k, **lists, seqlen_q=2, seqlen_kv=21))
        cache, of_slots = tensor(np.zeros((2, 30, 2, 64))), ints([9, 21])
        kinds = [np.int64, np.uint8, np.array] + ([] if torch is None else [torch.tensor])
        for kind in kinds:
            for _ in range(2):
                close(attune.attention_kvcache(q, k, k, **lists, seqlen_q=kind(3), seqlen_kv=kind(21)), want)
            attune.append_kv(k[:3], k[:3], cache, cache + 0, of_slots, q_begins=lists["q_begins"], seqlen_q=kind(2))

    def test_no_keys_of_8_bits(self):
        """A head_dim whose 8-bit rows are not a multiple of 16 bytes; only CPUs serve it."""
        if DEVICE == "cuda":
            self.skipTest("kernels that read caches take head dims in steps of 16 there")
        like = tensor(np.zeros((2, 4, 40)))
        q = like.astype(np.float16) if torch is None else like.half()
        k = np.zeros((0, 2, 40), np.uint8)
        k = k if torch is None else torch.from_numpy(k).to(DEVICE)
        o = attune.attention_kvcache(q, k, k, q_begins=ints([0, 2]), seqlen_q=2, kv_begins=ints([0, 0]), seqlen_kv=0,
                                     k_scale=1.0, v_scale=1.0, dtype_kv="int8")
        close(o, np.zeros((2, 4, 40)))


if __name__ == "__main__":
    unittest.main()
