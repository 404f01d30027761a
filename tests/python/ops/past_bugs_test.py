#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults that serving kernels and engines had in the past, in any project: each has a test, here or in the file
named below. With NumPy on the CPU, and with PyTorch on the device named by the first argument. Skips aloud (status 77)
without NumPy, or without PyTorch and that device.

Elsewhere:
  the length of another request changes my result      kvcache_test: test_bits_of_a_request_do_not_depend_on_the_batch
  lse has another base when merging                   merge_test: test_two_halves_are_the_whole; cascade_test:
                                                       test_wrapper
  rows of padding are appended                         append_kv_test: test_places_of_rows,
                                                       test_positions_outside_write_nothing
  a list names pages or slots that are not there       append_kv_test: test_check_mode_names_what_is_outside
  stale plans and lengths of a replayed graph          kvcache_test: test_a_captured_graph_follows_lengths_and_pages;
                                                       soak_test
  prompts in pieces differ from prompts at once        append_kv_test: test_attention_reads_what_was_appended; soak_test
  8-bit rows whose factors nobody wrote                there are no factors of rows
  a chosen kernel is far slower than another           tests/bench/cuda/decode.py: every point beside its peers"""
import unittest

import attune
from caches import DTYPE, Cache, checking_context, close, expected, ints, numbers, tensor
from guarded_memory import Guarded, before_a_guard
from library_and_device import DEVICE, np, torch

DRAW = np.random.default_rng(1)


def draw(*shape):
    return tensor(DRAW.standard_normal(shape))


def nans(*shape):
    return tensor(np.full(shape, np.nan))


def check(cache, q, o, lse, **keywords):
    for request in range(len(cache.lengths)):
        want = expected(numbers(q)[request], cache.keys[request], cache.values[request], **keywords)
        close(o[request], want[0])
        close(lse[request], want[1])


class LengthTest(unittest.TestCase):
    def test_every_row_of_cut_requests_is_written(self):
        """Several tokens, different counts, pages, keys cut into pieces: rows after the first were once left unwritten.
        """
        lengths, rows = [3000, 40, 1500, 0, 5000], [2, 5, 3, 0, 1]
        cache = Cache(1, lengths, 5008, 2, 64, 64, 16)
        begins = np.concatenate([[0], np.cumsum(rows)])
        q = draw(begins[-1], 8, 64)
        for window in (None, (700, 0)):
            out = nans(begins[-1], 8, 64)
            o, lse = attune.attention_kvcache(q, cache.k, cache.v, q_begins=ints(begins), seqlen_q=5, is_causal=True,
                                              window=window, return_lse=True, out=out, **cache.given)
            self.assertIs(o, out)
            for request in range(len(rows)):
                of = slice(begins[request], begins[request + 1])
                want = expected(
                    numbers(q)[of], cache.keys[request], cache.values[request], causal=True, window=window or
                    (None, None))
                close(o[of], want[0])
                close(lse[:, of], want[1])

    def test_lengths_around_every_block(self):
        """Rules for the number of blocks were wrong at one length."""
        lengths = sorted({
            n * block + more
            for block in (16, 32, 64, 96, 128)
            for n in range(1, 7)
            for more in (-1, 0, 1)})
        for page in (16, 1):
            cache = Cache(2, lengths, max(lengths), 1, 64, 64, page)
            for rows in (1, 3):
                q = draw(len(lengths), rows, 4, 64)
                o, lse = attune.attention_kvcache(q, cache.k, cache.v, return_lse=True, is_causal=rows > 1,
                                                  **cache.given)
                check(cache, q, o, lse, causal=rows > 1)

    def test_many_requests(self):
        """Tables of fixed size were full at 992."""
        for batch in (993, 1024, 4096):
            lengths = DRAW.integers(0, 9, batch).tolist()
            cache = Cache(3, lengths, 8, 1, 32, 32, 4)
            q = draw(batch, 1, 2, 32)
            o, lse = attune.attention_kvcache(q, cache.k, cache.v, return_lse=True, **cache.given)
            check(cache, q, o, lse)

    def test_no_rows_and_no_keys(self):
        for lengths, page in (([0, 0, 0], 16), ([0], 0)):
            cache = Cache(4, lengths, 32, 2, 64, 64, page)
            o, lse = attune.attention_kvcache(draw(len(lengths), 2, 4, 64), cache.k, cache.v, return_lse=True,
                                              is_causal=True, **cache.given)
            self.assertTrue((numbers(o) == 0).all() and (numbers(lse) == -np.inf).all())
        o, lse = attune.attention_kvcache(draw(0, 8, 64), cache.k, cache.v, q_begins=ints([0, 0]), seqlen_q=1,
                                          return_lse=True, **cache.given)
        self.assertEqual((tuple(o.shape), tuple(lse.shape)), ((0, 8, 64), (8, 0)))
        begins = ints([0, 2, 3])
        for keys in (0, 5):  # the second request has none
            o, lse = attune.attention_kvcache(draw(3, 8, 64), draw(keys, 2, 64),
                                              draw(keys, 2, 64), q_begins=begins, seqlen_q=2, kv_begins=ints([
                                                  0, keys, keys]), seqlen_kv=keys, return_lse=True)
            self.assertEqual(numbers(lse)[:, 2].tolist(), [-np.inf] * 8)
            self.assertEqual(bool(numbers(o)[:2].any()), keys > 0)
            self.assertFalse(numbers(o)[2].any())

    def test_rows_before_the_first_key_are_zero(self):
        """More new rows than keys: 0 times NaN or infinity in the values reached rows that see no key."""
        lengths, rows = [1, 2, 40], 3
        for junk in (np.nan, np.inf):
            cache = Cache(13, lengths, 48, 2, 64, 64, 16)
            cache.v[...] = junk
            for invariant in (False, True):
                o, lse = attune.attention_kvcache(draw(3, rows, 8, 64), cache.k, cache.v, is_causal=True,
                                                  return_lse=True, batch_invariant=invariant, **cache.given)
                for request, length in enumerate(lengths):
                    empty = max(0, rows - length)
                    self.assertTrue((numbers(o)[request, :empty] == 0).all())
                    self.assertFalse(np.isfinite(numbers(o)[request, empty:]).any())
                    self.assertTrue((numbers(lse)[request, :, :empty] == -np.inf).all())
                    self.assertTrue(np.isfinite(numbers(lse)[request, :, empty:]).all())

    def test_too_many_heads_are_refused_by_name(self):
        """Numbers of heads and pieces were packed into words that were too narrow."""
        with self.assertRaisesRegex(Exception, "num_heads_q is 131072; must be 1 to 65536"):
            attune.attention_kvcache(draw(1, 1, 131072, 16), draw(1, 8, 1, 16), draw(1, 8, 1, 16), ints([8]))


    @unittest.skipIf(DEVICE == "cuda", "lists on a GPU are not checked")
    def test_lists_in_host_memory_are_checked(self):
        """Rows past the end of q were written, and rows past seqlen_q were not."""
        cache = Cache(6, [9, 12], 16, 2, 64, 64, 16)
        for message, begins, most in ((r"q_begins\[2\] is 70000; must be 3 to 5: .*nor above the number of rows", [
                0, 3, 70000], 70000), (r"q_begins\[2\] is 1; must be 3 to 5", [
                    0, 3, 1], 5), (r"q_begins\[0\] is -3; must be 0 to 5", [
                        -3, 3, 5], 9), (r"q_begins\[1\] - q_begins\[0\] is 3 and seqlen_q is 2", [0, 3, 5], 2)):
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                attune.attention_kvcache(draw(5, 8, 64), cache.k, cache.v, q_begins=ints(begins), seqlen_q=most,
                                         is_causal=True, **cache.given)
        for length in (17, -1):  # such lengths were clamped, which moved the rows
            with self.assertRaisesRegex(ValueError,
                                        rf"kv_lengths\[1\] is {length}; must be 0 to 16, the cache's room"):
                attune.attention_kvcache(draw(2, 1, 8, 64), cache.k, cache.v,
                                         **{**cache.given, "kv_lengths": ints([9, length])})


class GroupTest(unittest.TestCase):
    def test_any_number_of_heads_shares_a_head_of_keys(self):
        """Group sizes missing from a list failed, and so did rows after the eighth or sixteenth."""
        for group in (*range(1, 18), 24, 32, 48, 64, 71):
            lengths = [33, 0, 7]
            cache = Cache(group, lengths, 40, 1, 32, 32, 8)
            for rows in (1, 2) if group in (1, 5, 9, 16, 17) else (1,):
                q = draw(3, rows, group, 32)
                o, lse = attune.attention_kvcache(q, cache.k, cache.v, return_lse=True, is_causal=True, **cache.given)
                with self.subTest(group=group, rows=rows):
                    check(cache, q, o, lse, causal=True)


class MemoryTest(unittest.TestCase):
    def test_strides_of_every_tensor(self):
        """New tensors and results were assumed to be contiguous."""
        cache = Cache(5, [50, 17, 0, 64], 64, 2, 64, 64, 16)

        def spread(x, *more):
            """Returns equal numbers with room behind each dimension but the last."""
            room = nans(*(n + m for n, m in zip(x.shape, more)))
            view = room[tuple(slice(0, n) for n in x.shape)]
            view[...] = x
            return view

        q = spread(draw(4, 2, 8, 64), 1, 2, 3, 8)
        k, v = spread(cache.k, 1, 3, 1, 16), spread(cache.v, 2, 1, 5, 8)
        table = np.full((4, 9), 77, np.int32)  # rows of the table stand apart, too
        table[:, :4] = numbers(cache.given["page_table"])
        given = {**cache.given, "page_table": ints(table)[:, :4]}
        out = nans(5, 3, 9, 72)[:4, :2, :8, :64]
        o, lse = attune.attention_kvcache(q, k, v, out=out, return_lse=True, is_causal=True, **given)
        check(cache, q, o, lse, causal=True)

    def test_pages_beyond_32_bits(self):
        """Strides of pages, and offsets of rows in them, were 32-bit numbers. K and V of a page are adjacent."""
        page, heads, d, pages, chosen = 16, 2, 64, 40, [37, 2, 21]
        stride = 1 << 27  # elements: 37 pages are beyond 2^32
        length = 44
        keys, values = DRAW.standard_normal((2, length, heads, d))
        of_page = page * heads * d
        if torch is None:
            item = np.dtype(DTYPE).itemsize
            owner = Guarded((pages - 1) * stride * item + 2 * of_page * item)
            row = (stride * item, heads * d * item, d * item, item)
            k, v = (owner.array((pages, page, heads, d), DTYPE, which * of_page * item, row) for which in (0, 1))
        else:
            if DEVICE == "cpu":
                self.skipTest("PyTorch has no memory that is not there")
            owner = torch.empty((pages - 1) * stride + 2 * of_page, dtype=getattr(torch, DTYPE), device=DEVICE)
            k, v = (owner[which * of_page:].as_strided((pages, page, heads, d), (stride, heads * d, d, 1),
                                                       which * of_page) for which in (0, 1))
        for at in range(length):
            k[chosen[at // page], at % page], v[chosen[at // page], at % page] = tensor(keys[at]), tensor(values[at])
        q, table = draw(1, 1, 8, d), ints([chosen])
        o = attune.attention_kvcache(q, k, v, ints([length]), page_table=table)
        rounded = [numbers(tensor(x)) for x in (keys, values)]
        close(o[0], expected(numbers(q)[0], *rounded)[0])
        attune.append_kv(
            tensor(keys[None, -1:]) * 0 + 1,
            tensor(values[None, -1:]) * 0 + 2, k, v, ints([length + 1]), page_table=table)
        self.assertTrue((numbers(k[21, 12]) == 1).all() and (numbers(v[21, 12]) == 2).all())
        del owner

    def test_a_poisoned_null_page(self):
        """Unused entries of a page table name page 0, which holds NaN or infinity."""
        for junk in (np.nan, np.inf):
            cache = Cache(6, [50, 17, 0], 64, 2, 64, 64, 16)
            table = numbers(cache.given["page_table"]).astype(np.int32)
            spare = next(p for p in range(cache.k.shape[0]) if p not in table)
            place = {0: spare, spare: 0}
            for stored in (cache.k, cache.v):
                stored[spare] = stored[0] + 0
                stored[0] = junk
            table = np.vectorize(lambda p: place.get(p, p))(table)
            q = draw(3, 1, 8, 64)
            o, lse = attune.attention_kvcache(q, cache.k, cache.v, cache.given["kv_lengths"], page_table=ints(
                np.maximum(table, 0)), return_lse=True)
            check(cache, q, o, lse)

    @unittest.skipIf(torch is not None, "only NumPy arrays can be in inaccessible memory here")
    def test_nothing_is_read_past_lists_and_outside_windows(self):
        """Tables were read past their last page; with windows, hidden keys were read as well."""
        page, heads, d, width = 16, 2, 128, 80
        of_page = page * heads * d * np.dtype(DTYPE).itemsize
        lengths, window = [1270, 400, 3], (100, 0)
        order = DRAW.permutation(3 * width).reshape(3, width)
        memory = [Guarded(3 * width * of_page) for _ in range(2)]
        caches = [m.array((3 * width, page, heads, d), DTYPE) for m in memory]
        keys, values = ([tensor(DRAW.standard_normal((n, heads, d))) for n in lengths] for _ in range(2))
        used = set()
        for request, n in enumerate(lengths):
            for at in range(max(0, n - 1 - window[0]) // 256 * 256, n):  # whole blocks of keys are read
                used.add(int(order[request, at // page]))
                for cache, rows in zip(caches, (keys, values)):
                    cache[order[request, at // page], at % page] = rows[request][at]
        for number in range(3 * width):
            if number not in used:
                for m in memory:
                    m.close_bytes(number * of_page, of_page)
        table, table_memory = before_a_guard(order.astype(np.int32))
        counts, counts_memory = before_a_guard(np.array(lengths, np.int32))
        q, q_memory = before_a_guard(DRAW.standard_normal((3, 1, 4, d)).astype(DTYPE))
        for invariant in (False, True):
            o, lse = attune.attention_kvcache(q, *caches, counts, page_table=table, window=window, is_causal=True,
                                              return_lse=True, batch_invariant=invariant)
            for request, n in enumerate(lengths):
                want = expected(q[request].astype(np.float64), keys[request], values[request], causal=True,
                                window=window)
                close(o[request], want[0])
                close(lse[request], want[1])
        del memory, table_memory, counts_memory, q_memory

    def test_a_used_workspace(self):
        """Workspace entries of an earlier, longer step were read by a shorter step that had not written them."""
        context = checking_context(threads=3)
        cache = Cache(7, [4000, 3000, 90], 4000, 1, 64, 64, 16)
        q = draw(3, 2, 4, 64)
        for lengths in ([4000, 3000, 90], [1, 0, 2], [17, 3000, 0], [4000, 1, 90]):
            own = {**cache.given, "kv_lengths": ints(lengths)}
            o, lse = attune.attention_kvcache(q, cache.k, cache.v, is_causal=True, return_lse=True, context=context,
                                              **own)
            for request, n in enumerate(lengths):
                want = expected(numbers(q)[request], cache.keys[request][:n], cache.values[request][:n], causal=True)
                close(o[request], want[0])
                close(lse[request], want[1])


class AppendTest(unittest.TestCase):
    def test_the_newest_key_decides(self):
        """Attention after an append read the row's old content."""
        k_cache, v_cache = nans(8, 4, 1, 64), nans(8, 4, 1, 64)
        table, q = ints([[5, 0, 7, 2]]), tensor(np.full((1, 1, 4, 64), 2.0))
        for length in range(1, 17):
            k, v = tensor(np.full((1, 1, 1, 64), float(length))), tensor(np.full((1, 1, 1, 64), float(-length)))
            attune.append_kv(k, v, k_cache, v_cache, ints([length]), page_table=table)
            o = attune.attention_kvcache(q, k_cache, v_cache, ints([length]), page_table=table)
            np.testing.assert_allclose(numbers(o), -length, rtol=1e-3)

    def test_angles_end_before_positions(self):
        """Tables of angles were read past their last row."""
        cos, sin = attune.rotary_table(6, 64, like=draw(1, 64))
        if torch is None:
            (cos, one), (sin, two) = before_a_guard(cos), before_a_guard(sin)
        caches = [nans(1, 8, 2, 64) for _ in range(2)]
        k, v, q = draw(1, 4, 2, 64), draw(1, 4, 2, 64), draw(1, 4, 4, 64)
        out = attune.append_kv(k, v, *caches, ints([8]), page_table=ints([[0]]), cos=cos, sin=sin,
                               q=q)  # positions 4 to 7
        written = ~np.isnan(numbers(caches[0])[0]).all((1, 2))
        self.assertEqual(written.tolist(), [False] * 4 + [True] * 2 + [False] * 2)
        self.assertTrue((numbers(out)[0, 2:] == 0).all() and numbers(out)[0, :2].any())

    def test_rows_are_turned_once(self):
        """Blocks that share a row turned it in place twice."""
        k, v, q = draw(2, 1, 2, 64), draw(2, 1, 2, 64), draw(2, 1, 16, 64)
        cos, sin = attune.rotary_table(8, 64, like=k)
        caches = [nans(2, 8, 2, 64) for _ in range(4)]
        apart = attune.append_kv(k, v, *caches[:2], ints([3, 8]), cos=cos, sin=sin, q=q, q_out=nans(2, 1, 16, 64))
        inside = q + 0
        attune.append_kv(k, v, *caches[2:], ints([3, 8]), cos=cos, sin=sin, q=inside, q_out=inside)
        np.testing.assert_array_equal(numbers(inside), numbers(apart))
        np.testing.assert_array_equal(numbers(caches[0]), numbers(caches[2]))


class OrderTest(unittest.TestCase):
    def test_equal_bits_in_200_runs(self):
        """The running maximum depended on the order of warps."""
        cache = Cache(8, [2500, 900, 31], 2512, 1, 64, 64, 16)
        q = draw(3, 2, 5, 64)
        o, lse = attune.attention_kvcache(q, cache.k, cache.v, is_causal=True, return_lse=True, **cache.given)
        for _ in range(200):
            again = attune.attention_kvcache(q, cache.k, cache.v, is_causal=True, return_lse=True, **cache.given)
            np.testing.assert_array_equal(numbers(again[0]), numbers(o))
            np.testing.assert_array_equal(numbers(again[1]), numbers(lse))

    @unittest.skipUnless(DEVICE == "cuda", "streams are of CUDA")
    def test_slow_previous_kernels(self):
        """A kernel that starts while the previous one ends read q, lengths or the newest key too early."""
        cache = Cache(9, [700, 20, 300], 704, 2, 64, 64, 16)
        q, held = draw(3, 1, 8, 64), nans(3, 1, 8, 64)
        lengths = cache.given["kv_lengths"] + 0
        cache.given["kv_lengths"].zero_()
        call = lambda: attune.attention_kvcache(held, cache.k, cache.v, return_lse=True, **cache.given)  # noqa: E731
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.cuda._sleep(1000000)
            held.copy_(q)
            torch.cuda._sleep(1000000)
            cache.given["kv_lengths"].copy_(lengths)
            o, lse = call()
        for run in (graph.replay, lambda: None):
            held.fill_(float("nan"))
            cache.given["kv_lengths"].zero_()
            run()
            torch.cuda.synchronize()
            if run is graph.replay:
                check(cache, q, o, lse)
        torch.cuda._sleep(1000000)
        held.copy_(q)
        cache.given["kv_lengths"].copy_(lengths)
        check(cache, q, *call())

    @unittest.skipUnless(DEVICE == "cuda", "graphs are of CUDA")
    def test_a_graph_of_short_requests_replays_long_ones(self):
        """The graph was captured with fewer pieces than a replay needed."""
        cache = Cache(10, [6000, 1, 3000], 6000, 1, 64, 64, 16)
        lengths = cache.given["kv_lengths"] + 0
        cache.given["kv_lengths"].fill_(1)
        q = draw(3, 1, 5, 64)
        call = lambda: attune.attention_kvcache(q, cache.k, cache.v, return_lse=True, **cache.given)  # noqa: E731
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o, lse = call()
        cache.given["kv_lengths"].copy_(lengths)
        graph.replay()
        check(cache, q, o, lse)


if __name__ == "__main__":
    unittest.main(verbosity=2)
