#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plans and layouts of groups without processes: what the package reads from the library's schedules, the masks of
slices, and tensors that are dealt and put together again. Skips aloud (status 77) without PyTorch."""
import types
import unittest

from skips import torch

import attune
from attune.distributed.layout import Layout, ranges_of
from attune.distributed.plan import Launch, Transfer, make_plan, mask_of
from attune.distributed.run import Held, overlaps

CAUSAL = "dtype=bf16,head_dim=64,heads=4/2,seqlen=512,mask=causal_bottom_right"


class PlanTest(unittest.TestCase):
    def test_a_gather(self):
        plan = make_plan(CAUSAL, 2, 1, "zigzag", "gather")
        self.assertEqual(plan.ranges, (((0, 128), (384, 512)), ((128, 384),)))
        self.assertEqual(plan.algorithm, "gather")
        kv = 2 * (64 + 64) * 2  # bytes of a token: heads, columns, bytes
        self.assertEqual(plan.forward.received, (256 * kv, 128 * kv))
        self.assertEqual(plan.forward.transfers, [
            Transfer(0, "kv", 1, 0, (128, 384), (0, 2), 256 * kv), Transfer(0, "kv", 0, 1, (0, 128), (0, 2), 128 * kv)])
        self.assertEqual(plan.forward.launches, [Launch(1, (128, 384), (0, 384), (0, 4), -1, 0)])
        self.assertEqual([join.tokens for join in plan.backward.joins], [(128, 384)])
        self.assertEqual(plan.backward.transfers[-2], Transfer(1, "dkv", 1, 0, (0, 128), (0, 2), 256 * kv))

    def test_an_exchange(self):
        plan = make_plan(CAUSAL, 2, 0, "contiguous", "exchange")
        self.assertEqual(plan.forward.launches, [Launch(1, (0, 512), (0, 512), (0, 2), -1, 0)])
        self.assertEqual({step.what for step in plan.forward.transfers}, {"q", "kv", "o"})
        self.assertEqual({step.what for step in plan.backward.transfers}, {"dout", "dq", "dkv"})

    def test_documents_and_windows(self):
        text = "dtype=bf16,head_dim=64,heads=1,seqlen=512,window=100:30"
        plan = make_plan(text, 2, 0, "contiguous", "gather", (0, 200, 512))
        self.assertEqual([(step.rows, step.keys) for step in plan.forward.launches],
                         [((0, 200), (0, 200)), ((200, 256), (200, 286))])
        self.assertEqual(plan.forward.launches[1][-2:], (-1, 0))  # the diagonal of the slice ends 30 keys later

    def test_masks_of_slices(self):
        for sides, wanted in {(-1, -1): (None, None), (-1, 0): ("causal_bottom_right", None),
                              (7, 0): ("causal_bottom_right", (7, None)), (7, -1): (None, (7, None)),
                              (7, 3): (None, (7, 3))}.items():
            self.assertEqual(tuple(mask_of(Launch(1, (0, 9), (0, 9), (0, 1), *sides)).values()), wanted)

    def test_refusals_name_what_is_wrong(self):
        for arguments, words in {(2, 0, "zigzag", "star"): "algorithm is", (2, 5, "zigzag", "gather"): "rank is",
                                 (3, 0, "zigzag", "exchange"): "4/2 heads on 3 ranks"}.items():
            with self.assertRaisesRegex(attune.Error, words):
                make_plan(CAUSAL, *arguments)


class LayoutTest(unittest.TestCase):
    def test_shards_hold_each_token_once(self):
        x = torch.arange(2 * 700).reshape(2, 700)
        for kind in ("contiguous", "zigzag", "balanced"):
            plan = make_plan("dtype=bf16,head_dim=64,heads=1,seqlen=700", 3, 0, kind, "gather", (0, 90, 700))
            layouts = [Layout(types.SimpleNamespace(rank=rank), 700, (0, 90, 700), plan.layout) for rank in range(3)]
            shards = [layout.shard(x) for layout in layouts]
            self.assertEqual([shard.shape[1] for shard in shards], list(layouts[0].lengths))
            self.assertEqual(sorted(torch.cat(shards, 1)[0].tolist()), list(range(700)))
            self.assertEqual(sorted(torch.cat([layout.positions() for layout in layouts]).tolist()),
                             sorted([*range(90), *range(610)]))
            for rank, layout in enumerate(layouts):
                layout.group.gather_parts = lambda part, lengths: [shard.movedim(1, 0) for shard in shards]
                self.assertTrue(torch.equal(layout.unshard(shards[rank]), x))

    def test_wrong_lengths_are_named(self):
        layout = Layout(types.SimpleNamespace(rank=1), 300, None, "0-256/256-300")
        self.assertEqual((layout.length, layout.mine), (44, ((256, 300),)))
        with self.assertRaisesRegex(ValueError, "x has 299 tokens in dim 1; must have 300"):
            layout.shard(torch.zeros(1, 299))
        with self.assertRaisesRegex(ValueError, "dim is 2; must be an axis"):
            layout.shard(torch.zeros(1, 300), dim=2)
        with self.assertRaisesRegex(ValueError, "x requires a gradient"):
            layout.unshard(torch.zeros(1, 44, requires_grad=True))

    def test_parts_of_held_tokens(self):
        held = Held(torch.arange(20).reshape(1, 10, 2, 1), ((0, 4), (8, 14)), first_head=6)
        self.assertEqual(held.part((9, 12), (7, 8)).flatten().tolist(), [11, 13, 15])
        self.assertIsNone(held.slice_of((3, 9)))
        self.assertEqual(list(overlaps(((0, 5), (7, 9)), ((3, 8),))), [(3, 5), (7, 8)])
        self.assertEqual(ranges_of("/0-4+8-14"), ((), ((0, 4), (8, 14))))


if __name__ == "__main__":
    unittest.main()
