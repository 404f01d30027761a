#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""seqlen_q and seqlen_kv in programs over caches are the rows and keys of each request, whatever the call's capacity.
Compared with float64, with NumPy on the CPU and with PyTorch on the device named by the first argument. Skips aloud
(status 77) without NumPy, or without PyTorch and that device."""
import unittest

import attune
from caches import LIMIT, Cache, close, ints, numbers, run_tests, tensor
from library_and_device import DEVICE, np, torch

SCORE = "return score * log(float(seqlen_kv + 2)) - 0.25 * float(kv_idx >= seqlen_kv - 5 ? seqlen_q : 0);"
MASK = "return kv_idx + 40 * seqlen_q >= seqlen_kv || q_idx - kv_idx > 90;"
# Page size (0: slots), rows of the longest request, heads, heads of K, head dim. On GPUs calls of many rows have a
# family of their own, which takes score programs alone.
SHAPES = ((16, 1, 8, 2, 64), (3, 4, 6, 2, 80), (0, 2, 4, 4, 128), (16, 70, 8, 2, 128), (64, 33, 4, 1, 64))


def programs(most_rows):
    return dict(score_mod=SCORE) if most_rows > 4 else dict(score_mod=SCORE, mask_mod=MASK)


def expected(q, keys, values, masked):
    """Attends one request with SCORE, and MASK if `masked`, in float64: q [rows, heads, d], keys [length, heads_kv, d]
    -> o [rows, heads, dv], lse [heads, rows]."""
    rows, heads, d = q.shape
    length, heads_kv = keys.shape[:2]
    o, lse = np.zeros((rows, heads, values.shape[2])), np.full((heads, rows), -np.inf)
    position, key = length - rows + np.arange(rows)[:, None], np.arange(length)[None]
    seen = (key <= position) & ((not masked) | (key + 40 * rows >= length) | (position - key > 90))
    for head in range(heads):
        of = head // (heads // heads_kv)
        score = q[:, head] @ keys[:, of].T / np.sqrt(d) * np.log(length + 2) - 0.25 * np.where(
            key >= length - 5, rows, 0)
        for row in np.flatnonzero(seen.any(1)):
            own = score[row][seen[row]]
            weights = np.exp(own - own.max())
            o[row, head] = weights @ values[:, of][seen[row]] / weights.sum()
            lse[head, row] = own.max() + np.log(weights.sum())
    return o, lse


def wider(cache, columns):
    """Returns the cache's lists with more table columns, which name no page."""
    table = numbers(cache.given["page_table"]).astype(np.int64)
    return {**cache.given, "page_table": ints(np.pad(table, ((0, 0), (0, columns)), constant_values=-1))}


def places_changed(cache, random):
    """Returns (k, v, table) with every page moved."""
    order = random.permutation(cache.k.shape[0])
    table = numbers(cache.given["page_table"]).astype(np.int64)
    index = order if torch is None else torch.from_numpy(order).to(DEVICE)
    return cache.k[index], cache.v[index], ints(np.where(table < 0, -1, np.argsort(order)[table]))


class ProgramLengthsTest(unittest.TestCase):
    def check(self, o, lse, q, keys, values, masked):
        want = expected(numbers(q), keys, values, masked)
        close(o, want[0], 4)
        close(lse, want[1], 4)

    def test_rows_and_keys_are_those_of_the_request(self):
        random = np.random.default_rng(1)
        for number, (page, rows, heads, heads_kv, d) in enumerate(SHAPES):
            cache = Cache(number, [200, rows, 117, 0, 160], 240, heads_kv, d, d, page)
            q = tensor(random.standard_normal((5, rows, heads, d)))
            with self.subTest(page=page, rows=rows, d=d):
                o, lse = attune.attention_kvcache(q, cache.k, cache.v, is_causal=True, return_lse=True,
                                                  **programs(rows), **cache.given)
                for request in range(5):
                    self.check(o[request], lse[request], q[request], cache.keys[request], cache.values[request], rows
                               <= 4)

    def test_packed_rows_and_keys(self):
        random = np.random.default_rng(2)
        for number, (page, most, heads, heads_kv, d) in enumerate(SHAPES):
            counts = [most, 1, max(most // 2, 1), 0]
            lengths = [150 + most, 33, most, 5]
            cache = Cache(20 + number, lengths, 240, heads_kv, d, d, page)
            begins = np.cumsum([0, *counts])
            q = tensor(random.standard_normal((begins[-1], heads, d)))
            packed = [tensor(np.concatenate(held)) for held in (cache.keys, cache.values)]
            ends = {"kv_begins": ints(np.cumsum([0, *lengths])), "seqlen_kv": max(lengths)}
            for k, v, lists in ((cache.k, cache.v, cache.given), (*packed, ends),
                                (*packed, {**ends, "seqlen_kv": max(lengths) + 77})):
                with self.subTest(page=page, rows=most, d=d, packed=k is packed[0]):
                    o, lse = attune.attention_kvcache(q, k, v, is_causal=True, return_lse=True, q_begins=ints(begins),
                                                      seqlen_q=most + number, **programs(most), **lists)
                    for request in range(4):
                        of = slice(begins[request], begins[request + 1])
                        self.check(o[of], lse[:, of], q[of], cache.keys[request], cache.values[request], most <= 4)

    def test_room_places_and_neighbours_change_nothing(self):
        """Equal up to rounding, and bit by bit with batch_invariant."""
        random = np.random.default_rng(3)
        for number, (page, rows, heads, heads_kv, d) in enumerate(shape for shape in SHAPES if shape[0]):
            cache = Cache(40 + number, [300, 90 + rows, rows], 304, heads_kv, d, d, page)
            q = tensor(random.standard_normal((3, rows, heads, d)))
            k, v, table = places_changed(cache, random)
            alone = {name: of[:1] for name, of in cache.given.items()}
            calls = [(q, cache.k, cache.v, cache.given),
                     *((q, cache.k, cache.v, wider(cache, more)) for more in (1, 40)),
                     (q, k, v, {**cache.given, "page_table": table}), (q[:1], cache.k, cache.v, alone)]
            for invariant in (False, True):
                results = [
                    numbers(
                        attune.attention_kvcache(q, k, v, is_causal=True, batch_invariant=invariant, **programs(rows),
                                                 **lists)[0]) for q, k, v, lists in calls]
                for result in results[1:]:
                    with self.subTest(page=page, rows=rows, invariant=invariant):
                        if invariant:
                            np.testing.assert_array_equal(result, results[0])
                        np.testing.assert_allclose(result, results[0], rtol=LIMIT, atol=LIMIT)

    def test_slopes_count_from_the_last_key(self):
        """ALiBi over caches whose room is larger than any request."""
        random = np.random.default_rng(4)
        slopes = np.float32([0.5, 0.25, 0.125, 0.0625])
        cache = Cache(50, [90, 7], 144, 2, 64, 64, 16)
        q = tensor(random.standard_normal((2, 3, 4, 64)))
        given = slopes if torch is None else torch.from_numpy(slopes).to(DEVICE)
        by_field = attune.attention_kvcache(q, cache.k, cache.v, is_causal=True, alibi_slopes=given, **cache.given)
        by_text = attune.attention_kvcache(
            q, cache.k, cache.v, is_causal=True, **cache.given, score_mod=attune.score_mod(
                "return score - slopes[head] * abs(q_idx - kv_idx);", slopes=given))
        np.testing.assert_allclose(numbers(by_field), numbers(by_text), rtol=LIMIT, atol=LIMIT)

    def test_caches_of_8_bits(self):
        random = np.random.default_rng(5)
        codes = random.integers(-9, 10, (2, 6, 16, 2, 64)).astype(np.int8)
        table, lengths, factor = np.array([[3, 0, 5], [1, 4, -1]]), [41, 20], 0.125
        k, v = codes if torch is None else torch.from_numpy(codes).to(DEVICE)
        q = random.standard_normal((2, 2, 8, 64)).astype(np.float16)
        q = q if torch is None else torch.from_numpy(q).to(DEVICE)
        o, lse = attune.attention_kvcache(q, k, v, ints(lengths), page_table=ints(table), is_causal=True,
                                          return_lse=True, k_scale=factor, v_scale=factor, **programs(2))
        for request, length in enumerate(lengths):
            keys, values = (held[table[request]].reshape(-1, 2, 64)[:length] * factor
                            for held in codes.astype(np.float64))
            want = expected(numbers(q[request]), keys, values, True)
            np.testing.assert_allclose(numbers(o[request]), want[0], rtol=4e-3, atol=4e-3)
            np.testing.assert_allclose(numbers(lse[request]), want[1], rtol=4e-3, atol=4e-3)

    @unittest.skipIf(DEVICE == "cuda", "programs over latent caches are for CPUs")
    def test_latent_caches(self):
        random = np.random.default_rng(6)
        cache = Cache(60, [130, 3, 64], 192, 1, 576, 512, 64)
        cache.values, cache.v = [keys[..., :512] for keys in cache.keys], cache.k[..., :512]
        q = tensor(random.standard_normal((3, 2, 16, 576)))
        o, lse = attune.attention_kvcache(q, cache.k, cache.v, is_causal=True, return_lse=True, **programs(2),
                                          **wider(cache, 3))
        for request in range(3):
            self.check(o[request], lse[request], q[request], cache.keys[request], cache.values[request], True)

    @unittest.skipIf(torch is None or DEVICE != "cuda", "of GPUs")
    def test_a_captured_graph_follows_lengths(self):
        cache = Cache(70, [500, 20, 300], 512, 2, 64, 64, 16)
        q = tensor(np.random.default_rng(7).standard_normal((3, 1, 8, 64)))
        attune.prepare(attune.attention_kvcache, q, cache.k, cache.v, **programs(1), **cache.given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = attune.attention_kvcache(q, cache.k, cache.v, **programs(1), **cache.given)
        for lengths in ([500, 20, 300], [1, 0, 299], [37, 20, 16]):
            cache.given["kv_lengths"].copy_(ints(lengths))
            graph.replay()
            for request, n in enumerate(lengths):
                close(out[request],
                      expected(numbers(q)[request], cache.keys[request][:n], cache.values[request][:n], True)[0], 4)

    @unittest.skipIf(torch is None or DEVICE != "cuda", "of GPUs")
    def test_families(self):
        """Every family that serves programs must serve the shapes above."""
        if torch.cuda.get_device_capability()[0] != 9:
            self.skipTest("of sm_90")
        found = set()
        for page, rows, heads, heads_kv, d in SHAPES:
            cache = Cache(80, [200, 90], 208, heads_kv, d, d, page)
            q = tensor(np.zeros((2, rows, heads, d)))
            found.add(
                attune.prepare(attune.attention_kvcache, q, cache.k, cache.v, is_causal=True, **programs(rows),
                                       **cache.given).kernel_template)
        self.assertEqual(found, {"decode_sm80", "cache_sm90"})


if __name__ == "__main__":
    run_tests()
