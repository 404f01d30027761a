#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Caches that are spread over 1 to 16 ranks, without processes: each key has one rank and one place, each visible pair
of row and key is computed once, new keys are written once, and each partial result is joined once. Skips aloud (status
77) without PyTorch."""
import itertools
import random
import types
import unittest

import numpy

from skips import torch

from attune.distributed.cache_layout import CacheLayout, joins_of

WORLDS = range(1, 17)


def layouts_of(world, block):
    return [CacheLayout(types.SimpleNamespace(rank=rank, world=world), block) for rank in range(world)]


class CacheLayoutTest(unittest.TestCase):
    def test_each_key_has_one_rank_and_one_place(self):
        for world, block in itertools.product(WORLDS, (1, 3, 16, 1000)):
            layouts = layouts_of(world, block)
            for keys in (0, 1, block, block * world - 1, block * world, 5 * block * world // 2 + 7):
                found = [layout.position_of(place) for layout in layouts for place in range(layout.count(keys))]
                self.assertEqual(sorted(found), list(range(keys)))
                self.assertEqual(layouts[0].most(keys), max(layout.count(keys) for layout in layouts))
                numbers = torch.tensor([keys], dtype=torch.int32)
                self.assertEqual([int(layout.count(numbers)) for layout in layouts],
                                 [layout.count(keys) for layout in layouts])
            for position in (0, block, block * world - 1, 3 * block * world + block // 2):
                layout = layouts[layouts[0].rank_of(position)]
                self.assertEqual(layout.position_of(layout.place_of(position)), position)

    def test_numbers_of_other_types_and_ranks_that_are_none(self):
        layout = layouts_of(2, 4)[0]
        self.assertEqual([layout.count(numpy.int64(9)), layout.most(numpy.int32(9)), layout.count(9, 1)], [5, 5, 4])
        for keys in (2.5, numpy.array([1, 2]), True):
            with self.assertRaisesRegex(ValueError, "keys is .*; must be a whole number"):
                layout.count(keys)
        for function in (layout.count, layout.position_of):
            for rank in (-1, 2):
                with self.assertRaisesRegex(ValueError, f"rank is {rank}; must be 0 to 1"):
                    function(3, rank)

    def test_no_rank_holds_more_of_successive_keys(self):
        for world, block in itertools.product((1, 2, 3, 5), (1, 3, 8)):
            layout = layouts_of(world, block)[0]
            for count in range(1, 3 * block * world):
                most = max(layout.count(first + count) - layout.count(first) for first in range(block * world + 1))
                self.assertEqual(layout.most(count), most)

    def test_each_visible_pair_is_computed_once(self):
        """The pairs that ranks compute: keys that a rank holds, that the window of the launch leaves, and that the
        program shows."""
        draw = random.Random(0)
        for world in WORLDS:
            for _ in range(20):
                block, keys, rows = draw.choice((1, 2, 7, 64)), draw.randrange(0, 150), draw.choice((1, 2, 5))
                left, right = draw.choice((-1, 0, 3, 40)), draw.choice((-1, 0, 2))
                seen = []
                for layout in layouts_of(world, block):
                    count = layout.count(keys)
                    reach = layout.most(left + 1) - 1 if left >= 0 else keys
                    for i, place in itertools.product(range(rows), range(count)):
                        row, at = keys - rows + i, layout.position_of(place)
                        if (right < 0 or at <= row + right) and (left < 0 or at >= row - left):
                            seen.append((i, at))
                            self.assertGreaterEqual(place, count - rows + i - reach)
                expected = [(i, key) for i in range(rows) for key in range(keys)
                            if (right < 0 or key <= keys - rows + i + right) and
                            (left < 0 or key >= keys - rows + i - left)]
                self.assertEqual(sorted(seen), expected)

    def test_joins(self):
        for world in WORLDS:
            held = [{rank} for rank in range(world)]
            for first, other, count in joins_of(world):
                for i in range(count):
                    self.assertFalse(held[first + i] & held[other + i])
                    held[first + i] |= held[other + i]
            self.assertEqual(held[0], set(range(world)))
        self.assertEqual([len(joins_of(world)) for world in (1, 2, 3, 4, 8, 16)], [0, 1, 2, 2, 3, 4])


class StepTest(unittest.TestCase):
    LENGTHS, PAGE, PAGES = (0, 1, 5, 23, 40), 4, 6

    def places(self, world, block, rows, **lists):
        """Returns what each rank writes: (rank, slot, request, position)."""
        lengths = torch.tensor(self.LENGTHS, dtype=torch.int32)
        found = []
        for layout in layouts_of(world, block):
            slots, positions = layout.step(lengths, **lists).places(rows, self.PAGE)
            self.assertEqual((slots.dtype, positions.dtype), (torch.int32, torch.int32))
            found.append((slots, positions))
        return found

    def test_new_rows_are_written_once(self):
        table = torch.randperm(len(self.LENGTHS) * self.PAGES, dtype=torch.int32).reshape(-1, self.PAGES)
        begins = torch.tensor([1, 1, 2, 4, 9, 9], dtype=torch.int32)  # rows of each request
        for world, block in itertools.product(WORLDS, (2, 4, 6)):
            for rows in (1, 3):
                self.check(self.places(world, block, rows, page_table=table), layouts_of(world, block), table, {
                    (request, row): length - rows + row
                    for request, length in enumerate(self.LENGTHS) for row in range(rows)})
            found = self.places(world, block, 10, page_table=table, q_begins=begins, seqlen_q=8)
            rows = {(row,): self.LENGTHS[request] - int(begins[request + 1]) + row for request in range(5)
                    for row in range(int(begins[request]), int(begins[request + 1]))}
            request_of = {row: request for request in range(5) for row in range(int(begins[request]),
                                                                              int(begins[request + 1]))}
            self.check(found, layouts_of(world, block), table, {**{(0,): -1, (9,): -1}, **rows}, request_of)

    def check(self, found, layouts, table, positions, request_of=None):
        for at, position in positions.items():
            written = [rank for rank, (slots, _) in enumerate(found) if int(slots[at]) >= 0]
            layout = layouts[layouts[0].rank_of(position)]
            place = layout.place_of(position)
            held = position >= 0 and place < self.PAGE * self.PAGES
            self.assertEqual(written, [layout.group.rank] if held else [])
            if held:
                request = at[0] if request_of is None else request_of[at[0]]
                slot = int(table[request, place // self.PAGE]) * self.PAGE + place % self.PAGE
                self.assertEqual(int(found[written[0]][0][at]), slot)
                self.assertEqual(int(found[0][1][at]), position)

    def test_slots(self):
        slots = torch.tensor([3, 1, 4, 0, 2], dtype=torch.int32)
        (first, _), (second, _) = self.places(2, 2, 1, slots=slots)
        self.assertEqual(first[:, 0].tolist(), [-1, 1 * 4, 4 * 4 + 2, -1, -1])  # 23 and 40 keys: beyond slots of 4
        self.assertEqual(second[:, 0].tolist(), [-1] * 5)

    def test_wrong_lists_are_named(self):
        layout = layouts_of(2, 4)[0]
        with self.assertRaisesRegex(TypeError, "kv_lengths is torch.float32 .*; must be an int32"):
            layout.step(torch.zeros(3))
        with self.assertRaisesRegex(ValueError, "q_begins and seqlen_q must both be given"):
            layout.step(torch.zeros(3, dtype=torch.int32), seqlen_q=3)
        with self.assertRaisesRegex(ValueError, "block is 0; must be at least 1"):
            layouts_of(2, 0)


if __name__ == "__main__":
    unittest.main()
