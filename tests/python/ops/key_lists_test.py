#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attention_kvcache() over lists of keys against float64, with NumPy on the CPU and with PyTorch on the device named by
the first argument: positions and places, lists of all heads and of each head, counts, entries that name no key, keys
that are named twice, and what is refused. Skips aloud (status 77) without NumPy, or without PyTorch and that device."""
import unittest

import attune
from caches import Cache, checking_context, close, expected, ints, numbers, run_tests, tensor
from library_and_device import np

LENGTHS = [200, 0, 1, 17, 199, 64]


def drawn_lists(random, lengths, rows, heads, length):
    """Returns lists [batch, rows, heads, length] of distinct positions with some -1, and counts [batch, rows]."""
    lists = np.full((len(lengths), rows, heads, length), -1)
    for request, keys in enumerate(lengths):
        for row in range(rows):
            for head in range(heads):
                chosen = random.permutation(keys)[:length]
                lists[request, row, head, :len(chosen)] = chosen
    lists[random.random(lists.shape) < 0.1] = -1
    counts = random.integers(0, length + 1, (len(lengths), rows))
    counts[0, 0] = length
    return lists, counts


class KeyListsTest(unittest.TestCase):
    def compare(self, cache, q, lists, counts, given, context=None, **keywords):
        """lists: [batch, rows, 1 or heads_kv, length], positions. given: the arguments that tell them."""
        o, lse = attune.attention_kvcache(q, cache.k, cache.v, return_lse=True, context=context, **given, **keywords)
        heads_kv, heads = cache.k.shape[2], q.shape[2]
        group = heads // heads_kv
        for request, row in np.ndindex(*lists.shape[:2]):
            for of in range(heads_kv):
                own = lists[request, row, of % lists.shape[2]]
                own = own[:None if counts is None else counts[request, row]]
                own = own[(own >= 0) & (own < cache.lengths[request])]
                mine = slice(of * group, of * group + group)
                want = expected(numbers(q)[request, row:row + 1, mine], cache.keys[request][own][:, of:of + 1],
                                cache.values[request][own][:, of:of + 1], softcap=keywords.get("softcap"))
                close(o[request, row:row + 1, mine], want[0])
                close(lse[request][mine, row:row + 1], want[1])
        return o

    def test_positions(self):
        random = np.random.default_rng(1)
        for number, (page, heads, heads_kv, rows, d, dv, length, by_head, counted) in enumerate(
            ((16, 8, 2, 1, 64, 64, 40, False, True), (1, 7, 1, 3, 128, 128, 100, False, False),
             (3, 12, 2, 4, 80, 64, 33, True, True), (64, 4, 4, 2, 128, 128, 1, True, False),
             (0, 8, 2, 1, 128, 128, 300, False, True), (0, 20, 1, 2, 64, 96, 64, False, True),
             (16, 6, 2, 1, 512, 512, 40, True, True))):
            cache = Cache(number, LENGTHS, 200, heads_kv, d, dv, page)
            q = tensor(random.standard_normal((len(LENGTHS), rows, heads, d)))
            lists, counts = drawn_lists(random, LENGTHS, rows, heads_kv if by_head else 1, length)
            given = {**cache.given, "key_indices": ints(lists if by_head else lists[:, :, 0])}
            if counted:
                given["key_counts"] = ints(counts)
            with self.subTest(page=page, heads=heads, rows=rows):
                self.compare(cache, q, lists, counts if counted else None, given)
                self.compare(cache, q, lists, counts if counted else None, given, batch_invariant=True, softcap=5.0)

    def test_places(self):
        random = np.random.default_rng(2)
        for page in (16, 0):
            cache = Cache(5, LENGTHS, 200, 2, 64, 64, page)
            q = tensor(random.standard_normal((len(LENGTHS), 2, 8, 64)))
            lists, counts = drawn_lists(random, LENGTHS, 2, 1, 50)
            places = lists.copy()
            for request, row, head, at in np.argwhere(lists >= 0):
                key, keys = lists[request, row, head, at], page or 200
                of = cache.given["page_table"][request, key // page] if page else cache.given["slots"][request]
                places[request, row, head, at] = int(of) * keys + key % keys
            given = {"key_places": ints(places[:, :, 0]), "key_counts": ints(counts)}
            with self.subTest(page=page):
                self.compare(cache, q, lists, counts, given)

    def test_entries_without_a_key_and_keys_twice(self):
        random = np.random.default_rng(3)
        cache = Cache(6, LENGTHS, 200, 2, 64, 64, 16)
        q = tensor(random.standard_normal((len(LENGTHS), 1, 8, 64)))
        lists = random.integers(-3, 230, (len(LENGTHS), 1, 1, 70))
        given = {**cache.given, "key_indices": ints(lists[:, :, 0])}
        self.compare(cache, q, lists, None, given)
        strict = checking_context()
        with self.assertRaisesRegex(attune.Error, r"key_indices\[0\]\[0\]\[\d+\] is .*(be -1 to 199|each key once)"):
            self.compare(cache, q, lists, None, given, strict)
        distinct = drawn_lists(random, LENGTHS, 1, 1, 70)[0]
        self.compare(cache, q, distinct, None, {**cache.given, "key_indices": ints(distinct[:, :, 0])}, strict)
        given["key_counts"] = ints(np.full((len(LENGTHS), 1), 71))
        with self.assertRaisesRegex(attune.Error, r"key_counts\[0\] is 71; must be 0 to 70"):
            self.compare(cache, q, lists, None, given, strict)

    def test_packed_rows(self):
        random = np.random.default_rng(4)
        cache = Cache(7, LENGTHS, 200, 2, 64, 64, 16)
        begins = np.array([1, 3, 3, 7, 8, 8, 13])
        rows = begins[-1] + 2  # the first row and the last two belong to no request
        q = random.standard_normal((rows, 8, 64))
        lists = np.full((rows, 30), -1)
        for request, keys in enumerate(LENGTHS):
            for row in range(begins[request], begins[request + 1]):
                chosen = random.permutation(keys)[:30]
                lists[row, :len(chosen)] = chosen
        o, lse = attune.attention_kvcache(tensor(q), cache.k, cache.v, q_begins=ints(begins), seqlen_q=5,
                                          return_lse=True, key_indices=ints(lists), **cache.given)
        q = numbers(tensor(q))
        for request in range(len(LENGTHS)):
            for row in range(begins[request], begins[request + 1]):
                own = lists[row][lists[row] >= 0]
                want = expected(q[row:row + 1], cache.keys[request][own], cache.values[request][own])
                close(o[row:row + 1], want[0])
                close(lse[:, row:row + 1], want[1])

    def test_latent_caches(self):
        """On Hopper mla_sm90: tiles of 64 rows, and of 16 and 32 with heads that do not fill them."""
        random = np.random.default_rng(5)
        for page, heads, rows, length, d, dv in ((64, 16, 2, 60, 576, 512), (1, 128, 1, 150, 576, 512),
                                                 (24, 64, 3, 64, 576, 512), (0, 8, 1, 129, 576, 512),
                                                 (16, 20, 2, 1, 448, 384)):
            cache = Cache(8, [130, 0, 64, 200], 200, 1, d, dv, page)
            cache.values, cache.v = [keys[..., :dv] for keys in cache.keys], cache.k[..., :dv]
            q = tensor(random.standard_normal((4, rows, heads, d)))
            lists, counts = drawn_lists(random, cache.lengths, rows, 1, length)
            given = {**cache.given, "key_indices": ints(lists[:, :, 0])}
            with self.subTest(page=page, heads=heads):
                self.compare(cache, q, lists, None, given)
                self.compare(cache, q, lists, counts, {**given, "key_counts": ints(counts)}, batch_invariant=True)

    def test_latent_caches_share_a_long_list(self):
        """Few rows of long lists, whose keys blocks share on a GPU, and joined parts."""
        random = np.random.default_rng(6)
        cache = Cache(9, [3000], 3000, 1, 576, 512, 16)
        cache.values, cache.v = [keys[..., :512] for keys in cache.keys], cache.k[..., :512]
        for heads in (16, 64):
            q = tensor(random.standard_normal((1, 2, heads, 576)))
            lists, _ = drawn_lists(random, cache.lengths, 2, 1, 2048)
            with self.subTest(heads=heads):
                self.compare(cache, q, lists, None, {**cache.given, "key_indices": ints(lists[:, :, 0])})

    def test_refusals(self):
        cache = Cache(9, [40, 30], 48, 2, 64, 64, 16)
        q = tensor(np.zeros((2, 1, 8, 64)))
        indices = np.zeros((2, 1, 5))
        for message, given in (
            ("is given with mask, is_causal or window", dict(key_indices=ints(indices), is_causal=True)),
            ("is given with mask, is_causal or window", dict(key_indices=ints(indices), window=(3, 0))),
            ("key_indices and key_places are given", dict(key_indices=ints(indices), key_places=ints(indices))),
            ("key_counts is given without", dict(key_counts=ints(indices[..., 0]))),
            ("key_places and kv_lengths are given", dict(key_places=ints(indices))),
            (r"key_indices has shape \(2, 2, 5\); must be \[2, 1\]", dict(key_indices=ints(np.zeros((2, 2, 5))))),
            (r"key_indices has shape \(2, 1, 3, 5\); must be", dict(key_indices=ints(np.zeros((2, 1, 3, 5))))),
            ("must be int32", dict(key_indices=tensor(indices))),
            (r"key_counts has shape \(2,\)", dict(key_indices=ints(indices), key_counts=ints(np.zeros(2)))),
            ("the last must be 1", dict(key_indices=ints(np.zeros((2, 1, 10)))[..., ::2])),
            ("by 1", dict(key_indices=ints(indices), key_counts=ints(np.zeros((4, 1)))[::2]))):
            with self.subTest(message=message), self.assertRaisesRegex(ValueError, message):
                attune.attention_kvcache(q, cache.k, cache.v, **cache.given, **given)
        for name, value in (("alibi_slopes", tensor(np.ones(8))), ("mask_mod", "return kv_idx > 3;"),
                            ("score_mod", "return score + kv_idx;")):
            with self.assertRaisesRegex(ValueError, f"key_places and {name} are given; give key_indices"):
                attune.attention_kvcache(q, cache.k, cache.v, key_places=ints(indices), **{name: value})


if __name__ == "__main__":
    run_tests()
