#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""append_kv() and rotary_table(), with NumPy on the CPU and with PyTorch on the device named by the first argument:
pages, slots, positions, packed rows, all forms of rotation, 8-bit caches, rows without a position, and a captured graph
with changing lengths. Skips aloud (status 77) without NumPy, or without PyTorch and that device."""
import unittest

import attune
from caches import checking_context
from caches import turned as turned_by
from library_and_device import DEVICE, np, torch

DTYPE = {"": "float16", "cpu": "bfloat16", "cuda": "bfloat16"}[DEVICE]
LIMIT = {"float16": 2e-3, "bfloat16": 1.6e-2}[DTYPE]


def tensor(values, dtype=DTYPE):
    if torch is None:
        return np.asarray(values).astype(dtype)
    return torch.from_numpy(np.ascontiguousarray(values, np.float32)).to(DEVICE, getattr(torch, dtype))


def ints(values, dtype=np.int32):
    values = np.asarray(values, dtype)
    return values if torch is None else torch.from_numpy(values).to(DEVICE)


def numbers(x):
    return np.asarray(x, np.float64) if isinstance(x, np.ndarray) else x.double().cpu().numpy()


def filled(shape):
    """Returns an empty cache, with NaN everywhere."""
    return tensor(np.full(shape, np.nan))


def turned(x, cos, sin, positions, interleaved):
    return turned_by(x, *(numbers(table)[positions] for table in (cos, sin)), interleaved)


class AppendTest(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(7)

    def draw(self, *shape):
        return tensor(self.random.standard_normal(shape))

    def close(self, got, want):
        np.testing.assert_allclose(numbers(got), want, rtol=LIMIT, atol=LIMIT)

    def test_pages_of_all_sizes_turned_in_every_way(self):
        for page, pairs, interleaved, hnd in ((16, 32, False, False), (1, 16, True, True), (3, 10, False, True),
                                              (8, 5, True, False), (64, 0, False, False)):
            with self.subTest(page=page, pairs=pairs, interleaved=interleaved):
                self.check_pages(page, pairs, interleaved, hnd)

    def check_pages(self, page, pairs, interleaved, hnd):
        lengths, rows, heads, heads_kv, d, dv = [40, 2, 1, 0, 23], 2, 6, 2, 64, 40
        per = -(-40 // page)
        table = self.random.permutation(5 * per + 2)[:5 * per].reshape(5, per)
        q, k, v = (self.draw(5, rows, n, m) for n, m in ((heads, d), (heads_kv, d), (heads_kv, dv)))
        shapes = [(5 * per + 2, page, heads_kv, m) for m in (d, dv)]
        caches = [filled(np.array(s)[[0, 2, 1, 3]]).swapaxes(1, 2) if hnd else filled(s) for s in shapes]
        tables = {}
        if pairs:
            cos, sin = attune.rotary_table(40, 2 * pairs, like=k)
            tables = dict(cos=cos, sin=sin, interleaved=interleaved, q=q)
        out = attune.append_kv(k, v, *caches, ints(lengths), page_table=ints(table), **tables)
        written = set()
        for request, length in enumerate(lengths):
            for row in range(rows):
                position = length - rows + row
                if position < 0:
                    if pairs:
                        self.assertTrue((numbers(out[request][row]) == 0).all(), "no position, no angle")
                    continue
                at = table[request][position // page], position % page
                written.add(at)
                own = numbers(k[request][row:row + 1])
                if pairs:
                    own = turned(own, cos, sin, [position], interleaved)
                    self.close(out[request][row:row + 1],
                               turned(numbers(q[request][row:row + 1]), cos, sin, [position], interleaved))
                self.close(caches[0][at][None], own)
                np.testing.assert_array_equal(numbers(caches[1][at]), numbers(v[request][row]))
        for cache in caches:
            empty = np.isnan(numbers(cache)).all((2, 3))
            self.assertEqual({tuple(at)
                              for at in np.argwhere(~empty)}, {tuple(map(int, at))
                                                               for at in written}, "nothing else is written")

    def test_slots_and_packed_rows(self):
        rows, lengths, slots = [3, 0, 1, 2], [9, 4, 1, 20], [2, 0, 4, 1]
        begins = np.concatenate([[0], np.cumsum(rows)])
        k, v = self.draw(6, 2, 32), self.draw(6, 2, 32)
        k_cache, v_cache = filled((5, 20, 2, 32)), filled((5, 20, 2, 32))
        attune.append_kv(k, v, k_cache, v_cache, ints(lengths), slots=ints(slots), q_begins=ints(begins), seqlen_q=3)
        for request in range(4):
            of = slice(lengths[request] - rows[request], lengths[request])
            for cache, new in ((k_cache, k), (v_cache, v)):
                np.testing.assert_array_equal(numbers(cache[slots[request]][of]),
                                              numbers(new[begins[request]:begins[request + 1]]))
        self.assertEqual(int((~np.isnan(numbers(k_cache)).all((2, 3))).sum()), 6)

    def test_places_of_rows(self):
        for dtype in (np.int32, np.int64):
            slots = [7, -1, 0, 33, 1000, 20]  # of 10 pages of 4 keys; -1 is no slot, 1000 is outside
            positions = [5, 1, 0, 9, 3, 40]   # the last has no angles
            k, v, q = self.draw(6, 2, 64), self.draw(6, 2, 64), self.draw(6, 4, 64)
            k_cache, v_cache = filled((10, 4, 2, 64)), filled((10, 4, 2, 64))
            cos, sin = attune.rotary_table(10, 64, like=k)
            out = attune.append_kv(k, v, k_cache, v_cache, row_slots=ints(slots, dtype), positions=ints(
                positions, dtype), cos=cos, sin=sin, q=q, q_out=q)
            self.assertIs(out, q)
            flat = numbers(k_cache).reshape(40, 2, 64)
            for row in (0, 2, 3):
                self.close(flat[slots[row]][None], turned(numbers(k[row:row + 1]), cos, sin, [positions[row]], False))
                np.testing.assert_array_equal(numbers(v_cache).reshape(40, 2, 64)[slots[row]], numbers(v[row]))
            self.assertEqual(int((~np.isnan(flat).all((1, 2))).sum()), 3)
            self.assertTrue((numbers(q[5]) == 0).all())
            self.assertFalse((numbers(q[1]) == 0).any(), "q is turned wherever its key goes")

    def test_caches_of_8_bits(self):
        k, v = self.draw(3, 1, 2, 64) * 50, self.draw(3, 1, 2, 64)
        scale = np.array([[0.5, 0.01]], np.float32)
        given = scale if torch is None else torch.from_numpy(scale).to(DEVICE)
        shape = (3, 8, 2, 64)
        caches = [
            np.zeros(shape, np.uint8) if torch is None else torch.zeros(shape, dtype=torch.uint8, device=DEVICE)
            for _ in range(2)]
        if torch is not None:
            caches = [cache.view(torch.float8_e4m3fn) for cache in caches]
        attune.append_kv(k, v, *caches, ints([8, 1, 3]), k_scale=given, v_scale=0.25,
                         dtype_kv="e4m3" if torch is None else None)
        if torch is None:  # exact values: 2 / 0.5 = 4 is 0x48, 100 / 0.01 is beyond 448
            attune.append_kv(k * 0 + np.float16(2), v * 0 + np.float16(100), *caches, ints([8, 1, 3]), k_scale=0.5,
                             v_scale=0.01, dtype_kv="e4m3")
            for request, length in enumerate((8, 1, 3)):
                self.assertEqual((set(caches[0][request, length - 1].flat), set(caches[1][request, length - 1].flat)),
                                 ({0x48}, {0x7e}))
            return
        for request, length in enumerate((8, 1, 3)):
            for cache, new, by in ((caches[0], k, given[0][:, None]), (caches[1], v, 0.25)):
                want = (new[request, 0].float() / by).clamp(-448, 448).to(torch.float8_e4m3fn)
                self.assertTrue(torch.equal(cache[request, length - 1].view(torch.uint8), want.view(torch.uint8)))

    def test_positions_outside_write_nothing(self):
        k, v = self.draw(4, 1, 2, 32), self.draw(4, 1, 2, 32)
        k_cache, v_cache = filled((3, 4, 2, 32)), filled((3, 4, 2, 32))
        table = ints([[0, 1], [7, 2], [-5, 2], [2, 1]])
        attune.append_kv(k, v, k_cache, v_cache, ints([9, 3, 2, 3]),
                         page_table=table)  # beyond the table, pages 7 and -5, page 2
        self.assertEqual([tuple(at) for at in np.argwhere(~np.isnan(numbers(k_cache)).all((2, 3)))], [(2, 2)])

    def test_check_mode_names_what_is_outside(self):
        context = checking_context()
        k, v, q = self.draw(2, 1, 2, 64), self.draw(2, 1, 2, 64), self.draw(2, 1, 4, 64)
        caches, table = (filled((3, 4, 2, 64)), filled((3, 4, 2, 64))), ints([[0, 1], [2, 7]])
        attune.append_kv(k, v, *caches, ints([8, 4]), page_table=table, context=context)
        angles = dict(zip(("cos", "sin"), attune.rotary_table(20, 64, like=k)))
        attune.append_kv(k, v, *caches, ints([20, 7]), row_slots=ints([[1], [2]]), context=context,
                         **angles)  # longer than a page
        for message, call in (
            (r"cache.page_table\[1\]\[1\] is 7; must be 0 to 2",
             lambda: attune.append_kv(k, v, *caches, ints([8, 5]), page_table=table, context=context)),
            (r"cache.kv_lengths\[0\] is 9; must be 0 to 8",
             lambda: attune.append_kv(k, v, *caches, ints([9, 4]), page_table=table, context=context)),
            (r"append.row_slots\[1\] is 12; must be -1 to 11",
             lambda: attune.append_kv(k, v, *caches, row_slots=ints([[-1], [12]]), context=context)),
            (
                r"cache.kv_lengths\[1\] is 21; must be 0 to 20",
                lambda: attune.append_kv(  # beyond the angles
                    k, v, *caches, ints([20, 21]), row_slots=ints([[1], [2]]), context=context, **angles)),
            (r"cache.slots\[1\] is -2; must be 0 to 2",
             lambda: attune.append_kv(k, v, *caches, ints([1, 4]), slots=ints([0, -2]), context=context)),
            (r"cache.page_table\[1\]\[1\] is 7",
             lambda: attune.attention_kvcache(q, *caches, ints([8, 5]), page_table=table, context=context))):
            with self.subTest(message=message), self.assertRaisesRegex(attune.Error, message):
                call()
        # Packed keys of which requests have less than stand there.
        rows, keys = self.draw(2, 1, 4, 64), self.draw(200, 2, 64)
        attune.attention_kvcache(rows, keys, keys, ints([5, 7]), kv_begins=ints([0, 100, 200]), seqlen_kv=8,
                                 context=context)
        if DEVICE != "cuda":  # whose lists the host looks at before
            return
        with self.assertRaisesRegex(attune.Error, r"cache.kv_begins\[1\] is 195; must be 0 to 193"):
            attune.attention_kvcache(rows, keys, keys, ints([5, 7]), kv_begins=ints([0, 195, 200]), seqlen_kv=8,
                                     context=context)

    @unittest.skipIf(torch is None, "autograd is of PyTorch")
    def test_autograd_detects_appended_rows(self):
        k, caches = self.draw(1, 1, 2, 64), [filled((1, 8, 2, 64)) for _ in "kv"]
        kept = [(cache * torch.ones((), device=cache.device, requires_grad=True)).sum() for cache in caches]
        attune.append_kv(k, k, *caches, ints([3]))
        for one in kept:
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                one.backward()

    def test_rows_after_the_last_request(self):
        """Rows after the last request belong to no request, as with q in attention_kvcache()."""
        k, q = self.draw(5, 2, 64), self.draw(5, 4, 64)
        cos, sin = attune.rotary_table(8, 64, like=k)
        caches = [filled((2, 8, 2, 64)), filled((2, 8, 2, 64))]
        turned_q = attune.append_kv(k, k, *caches, ints([4, 5]), q_begins=ints([0, 1, 2]), seqlen_q=1, cos=cos, sin=sin,
                                    q=q)
        self.assertEqual([tuple(at) for at in np.argwhere(~np.isnan(numbers(caches[1])).all((2, 3)))], [(0, 3), (1, 4)])
        np.testing.assert_allclose(numbers(turned_q[:2]), turned(numbers(q[:2]), cos, sin, [3, 4], False), rtol=LIMIT,
                                   atol=LIMIT)

    def test_rows_before_the_first_request(self):
        """A part of a batch has a part of the list, so rows may come before the first request. These rows were once
        taken for the first request's, and the last rows were not written."""
        cos, sin = attune.rotary_table(8, 64, like=self.draw(1))
        for first, counts in ((1, [1, 1]), (7, [1, 1, 1]), (90, [2, 0, 3])):
            begins, batch = first + np.concatenate([[0], np.cumsum(counts)]), len(counts)
            k, v, q = self.draw(begins[-1] + 2, 2, 64), self.draw(begins[-1] + 2, 2, 64), self.draw(
                begins[-1] + 2, 4, 64)
            own = slice(first, begins[-1])
            given = dict(cos=cos, sin=sin, seqlen_q=max(counts))
            with self.subTest(first=first):
                moved, plain = ([filled((batch, 8, 2, 64)) for _ in "kv"] for _ in range(2))
                lengths = ints(4 + np.arange(batch))
                turned_q = attune.append_kv(k, v, *moved, lengths, q_begins=ints(begins), q=q,
                                            context=checking_context(), **given)
                want_q = attune.append_kv(k[own], v[own], *plain, lengths, q_begins=ints(begins - first), q=q[own],
                                          **given)
                for one, other in zip((*moved, turned_q[own]), (*plain, want_q)):
                    np.testing.assert_array_equal(numbers(one), numbers(other))
                self.assertEqual((~np.isnan(numbers(moved[1])).all((2, 3))).sum(), sum(counts))
                # Rows of no request have no position either, whatever the list says.
                places = np.arange(begins[-1] + 2) % (8 * batch)
                by_place = [filled((batch, 8, 2, 64)) for _ in "kv"]
                attune.append_kv(k, v, *by_place, q_begins=ints(begins), seqlen_q=max(counts), row_slots=ints(places))
                found = numbers(by_place[1]).reshape(-1, 2, 64)
                np.testing.assert_array_equal(found[places[own]], numbers(v[own]))
                self.assertEqual((~np.isnan(found).all((1, 2))).sum(), sum(counts))

    def test_wrong_arguments_are_refused_by_name(self):
        k, v, cache = self.draw(2, 1, 2, 64), self.draw(2, 1, 2, 64), filled((4, 8, 2, 64))
        lengths, other = ints([3, 4]), filled((4, 8, 2, 64))
        cos, sin = attune.rotary_table(8, 64, like=k)
        for message, call in (("one of cos and sin is given", dict(cos=cos)),
                              ("q is given without cos and sin", dict(q=k)), ("interleaved is True without cos and sin",
                                                                              dict(interleaved=True)),
                              ("row_slots and page_table|page_table and row_slots",
                               dict(page_table=ints([[0], [1]]), row_slots=ints([[0], [
                                   1]]))), ("q_begins is given alone", dict(q_begins=ints([0, 1]))),
                              (r"row_slots has shape \(2,\)", dict(row_slots=ints([0, 1]))),
                              ("row_slots is given with cos and sin, without positions and kv_lengths",
                               dict(row_slots=ints([[0], [1]]), kv_lengths=None, cos=cos,
                                    sin=sin)), ("positions and row_slots differ in type",
                                                dict(row_slots=ints([[0], [1]]), positions=ints(
                                                    [[0], [1]], np.int64))), (r"must have 1 to 32 columns",
                                                                              dict(cos=self.draw(8, 40), sin=self.draw(
                                                                                  8, 40)))):
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                attune.append_kv(k, v, cache, other, **{"kv_lengths": lengths, **call})
        if torch is not None:
            with self.assertRaisesRegex(
                    ValueError, "cos is a NumPy array and k is a PyTorch tensor; both must be of one library"):
                attune.append_kv(k, v, cache, other, lengths, cos=numbers(cos), sin=sin)
            from attune.torch import spec
            with self.assertRaisesRegex(ValueError,
                                        "interleaved is True without cos and sin"):  # as graphs of PyTorch have it
                torch.ops.attune.append_kv(k, v, cache, other, spec=spec(interleaved=True), kv_lengths=lengths)
        with self.assertRaisesRegex(ValueError, "interleaved is True without cos and sin"):
            attune.prepare(attune.append_kv, k, v, cache, other, lengths, interleaved=True)
        with self.assertRaisesRegex(ValueError, "v_cache and k_cache overlap"):
            attune.append_kv(k, v, cache, cache, lengths)

    def test_attention_reads_what_was_appended(self):
        """A prompt and steps through the cache equal attention over all rows."""
        total, heads, heads_kv, d = 21, 4, 2, 64
        q, k, v = self.draw(1, total, heads, d), self.draw(1, total, heads_kv, d), self.draw(1, total, heads_kv, d)
        k_cache, v_cache = filled((8, 4, heads_kv, d)), filled((8, 4, heads_kv, d))
        table, outs = ints([[3, 0, 7, 5, 1, 6]]), []
        for begin, end in ((0, 16), (16, 17), (17, 21)):
            lengths = ints([end])
            attune.append_kv(k[:, begin:end], v[:, begin:end], k_cache, v_cache, lengths, page_table=table)
            outs.append(
                attune.attention_kvcache(q[:, begin:end], k_cache, v_cache, lengths, page_table=table, is_causal=True))
        want = attune.attention(q, k, v, is_causal=True)
        self.close(np.concatenate([numbers(o) for o in outs], 1), numbers(want))


class RotaryTableTest(unittest.TestCase):
    def test_plain_and_linear(self):
        cos, sin = attune.rotary_table(100, 20, base=500.0, first_position=3)
        angle = (3 + np.arange(100))[:, None] * (1 / 500.0 ** (np.arange(10) / 10))
        for got, want in ((cos, np.cos(angle)), (sin, np.sin(angle))):
            np.testing.assert_allclose(got, want, atol=2e-5)
        half = attune.rotary_table(50, 20, base=500.0, scaling={"rope_type": "linear", "factor": 2.0})
        np.testing.assert_allclose(half[0][::2], attune.rotary_table(25, 20, base=500.0)[0], atol=1e-6)

    def test_a_factor_below_1_is_refused(self):
        with self.assertRaisesRegex(Exception, "factor is 1e-30; must be at least 1"):
            attune.rotary_table(2, 16, scaling={"rope_type": "linear", "factor": 1e-30})

    def test_llama3(self):
        """Checks the definition in float64: wavelengths above 8192 are divided by 8, those below 2048 stay."""
        scaling = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                       original_max_position_embeddings=8192)
        cos, sin = attune.rotary_table(2, 128, base=500000.0, scaling=scaling)
        plain = 1 / 500000.0 ** (np.arange(64) / 64)
        wave = 2 * np.pi / plain
        smooth = np.clip((8192 / wave - 1) / 3, 0, 1)
        want = (1 - smooth) * plain / 8 + smooth * plain
        np.testing.assert_allclose(np.arctan2(sin[1].astype(np.float64), cos[1]), want, rtol=1e-5)
        far = attune.rotary_table(1, 128, base=500000.0, scaling=scaling, first_position=131071)[0][0]
        np.testing.assert_allclose(far[40:], np.cos(131071 * want)[40:], atol=1e-3)

    def test_yarn(self):
        scaling = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=4096)
        cos, sin = attune.rotary_table(1, 64, scaling=scaling, first_position=1)
        magnitude = 0.1 * np.log(4.0) + 1
        np.testing.assert_allclose(np.hypot(cos, sin), magnitude, rtol=1e-6)
        plain = 1 / 10000.0 ** (np.arange(32) / 32)
        turns = lambda n: 64 * np.log(4096 / (n * 2 * np.pi)) / (2 * np.log(10000.0))  # noqa: E731
        ramp = np.clip((np.arange(32) - np.floor(turns(32))) / (np.ceil(turns(1)) - np.floor(turns(32))), 0, 1)
        np.testing.assert_allclose(np.arctan2(sin[0], cos[0]), plain / 4 * ramp + plain * (1 - ramp), rtol=1e-5)
        by_scales = attune.rotary_table(1, 64, scaling=dict(scaling, mscale=0.7, mscale_all_dim=1.0), first_position=1)
        np.testing.assert_allclose(np.hypot(*by_scales), (0.07 * np.log(4.0) + 1) / magnitude, rtol=1e-6)

    def test_frequencies_and_errors(self):
        own = attune.rotary_table(5, 6, frequencies=[1.0, 0.5, 0.25])
        np.testing.assert_allclose(own[1], np.sin(np.arange(5)[:, None] * [1.0, 0.5, 0.25]), atol=1e-6)
        for message, call in (("rotary_dim is 7", dict(rotary_dim=7)), ("rope_type 'longrope'",
                                                                        dict(rotary_dim=8, scaling={
                                                                            "rope_type": "longrope"})),
                              ("frequencies has 2 numbers; must be 4", dict(rotary_dim=8, frequencies=[
                                  1, 2])), ("original_max_position is 0",
                                            dict(rotary_dim=8, scaling={"rope_type": "yarn", "factor": 2.0}))):
            with self.assertRaisesRegex((ValueError, attune.Error), message):
                attune.rotary_table(4, **call)


@unittest.skipUnless(DEVICE == "cuda", "captured graphs are of CUDA")
class GraphTest(unittest.TestCase):
    def test_a_graph_follows_lengths(self):
        k, v = torch.randn(2, 1, 2, 64, device="cuda").bfloat16(), torch.randn(2, 1, 2, 64, device="cuda").bfloat16()
        caches = [torch.full((6, 4, 2, 64), float("nan"), device="cuda").bfloat16() for _ in range(2)]
        lengths, table = ints([1, 1]), ints([[0, 2, 4], [1, 3, 5]])
        cos, sin = attune.rotary_table(12, 64, like=k)
        call = lambda: attune.append_kv(k, v, *caches, lengths, page_table=table, cos=cos, sin=sin)  # noqa: E731
        attune.prepare(attune.append_kv, k, v, *caches, lengths, page_table=table, cos=cos, sin=sin)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        for step in range(1, 13):
            lengths.fill_(step)
            graph.replay()
            position = step - 1
            want = turned(numbers(k[0]), cos, sin, [position], False)
            at = caches[0][table[0, position // 4].item(), position % 4]
            np.testing.assert_allclose(numbers(at)[None], want, rtol=LIMIT, atol=LIMIT)


if __name__ == "__main__":
    unittest.main()
