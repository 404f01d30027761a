#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""world_invariant: attention() and its gradients have the same bits on one, two and four ranks over gloo, for several
problems, and are right. Other algorithms and layouts are refused. Starts the processes itself.
Skips aloud (status 77) without PyTorch, gloo or the CPU target."""
import unittest

from skips import torch
import torch.distributed as dist

import attune
import attune.distributed as ad
from attune.distributed import invariant
import ranks

WORLD, HEAD_DIM = 4, 16
# (seqlen, documents, keywords); 2048 has 16 blocks of 128 rows, shorter sequences have empty ones
PROBLEMS = (
    (2048, None, {"mask": "causal", "dropout_p": 0.2, "seed": 3}), (1311, (0, 500, 1311), {"mask": "causal"}),
    (700, None, {"window": (150, 60)}))


class RankTest(ranks.WithGroups):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for one in range(WORLD):
            alone = dist.new_group([one])
            if one == dist.get_rank():
                cls.groups[1] = ad.Group(alone)

    def results(self, group, kind, seqlen, documents, choices, **others):
        """Returns o and the gradients of the whole, and the bits of lse."""
        layout = group.layout(seqlen, kind=kind, documents=documents)
        draw = lambda count, seed: torch.randn(
            1, seqlen, count, HEAD_DIM, generator=torch.Generator().manual_seed(seed + seqlen))
        mine = [layout.shard(draw(count, place)).requires_grad_() for place, count in enumerate((4, 2, 2))]
        o, lse = ad.attention(*mine, group=group, layout=layout, context="cpu:1", return_lse=True, **choices, **others)
        ((o * layout.shard(draw(4, 5))).sum() + lse.sum() * 0.1).backward()
        return [layout.unshard(x.detach()) for x in (o, *(x.grad for x in mine))] + [layout.unshard(lse.detach(), 2)]

    def test_1_bits_are_those_of_one_rank(self):
        for number, problem in enumerate(PROBLEMS):
            if dist.get_rank():
                dist.barrier()  # rank 0 compiles the kernels of one rank, which are those of all
            wanted = self.results(self.groups[1], "contiguous", *problem, world_invariant=True)
            if dist.get_rank() == 0:
                self.compare_with_one_launch(problem, wanted)
                dist.barrier()
            for world, kind in ((2, "zigzag"), (4, "zigzag"), (4, "contiguous")):
                if self.groups[world] is None:
                    continue
                found = self.results(self.groups[world], kind, *problem, world_invariant=True)
                for x, y in zip(found, wanted):
                    self.assertTrue(torch.equal(x, y), (number, world, kind))

    def compare_with_one_launch(self, problem, wanted):
        """Compares with what one launch computes: close, and other bits, else this test sees nothing."""
        plain = self.results(self.groups[1], "contiguous", *problem)
        for x, y in zip(plain, wanted):
            self.assertLess((x.double() - y).abs().max().item(), 1e-4 * max(1, y.abs().max().item()))
        if problem is PROBLEMS[0]:
            self.assertFalse(all(torch.equal(x, y) for x, y in zip(plain, wanted)))

    def test_2_what_is_not_invariant_is_refused(self):
        group = self.groups[WORLD]
        layout, packed = group.layout(2048), group.layout(4100, documents=(0, 1300, 4100), kind="balanced")
        q, k, v = (layout.shard(torch.randn(1, 2048, 4, HEAD_DIM)) for _ in range(3))
        call = dict(group=group, layout=layout, world_invariant=True)
        with self.assertRaisesRegex(attune.Error, "world_invariant is asked with algorithm exchange.*must be gather"):
            ad.attention(q, k, v, algorithm="exchange", **call)
        with self.assertRaisesRegex(attune.Error, "layout has a border at token .*; must be at borders of 16 equal"):
            mine = [packed.shard(torch.randn(1, 4100, 4, HEAD_DIM)) for _ in range(3)]
            ad.attention(*mine, group=group, layout=packed, world_invariant=True)
        with self.assertRaisesRegex(ValueError, "sinks requires a gradient, and world_invariant serves"):
            ad.attention(q, k, v, sinks=torch.zeros(4, requires_grad=True), **call)
        with self.assertRaisesRegex(ValueError, "deterministic is False with world_invariant"):
            ad.attention(q, k, v, deterministic=False, **call)
        with self.assertRaisesRegex(TypeError, "world_invariant is 1; must be True or False"):
            ad.attention(q, k, v, **{**call, "world_invariant": 1})


class TreeTest(unittest.TestCase):
    def test_a_zigzag_rank_has_one_node_under_a_causal_mask(self):
        borders = [number * 128 for number in range(17)]
        order = invariant.tree_order(16, True)
        self.assertEqual(sorted(order), list(range(16)))
        for world in (1, 2, 4, 8):
            part = 2048 // (2 * world)
            for rank in range(world):
                ranges = ((rank * part, (rank + 1) * part), (2048 - (rank + 1) * part, 2048 - rank * part))
                ranges = ((0, 2048),) if world == 1 else ranges
                self.assertEqual(invariant.nodes_of(ranges, borders, order), [(4 - (world.bit_length() - 1), rank)])

    def test_sums_have_one_order_for_each_way_to_hold_the_blocks(self):
        borders, order = [0, 0, *(number * 128 for number in range(1, 16))], invariant.tree_order(16, False)
        values = torch.randn(16, generator=torch.Generator().manual_seed(0)) * 1e4
        leaf = lambda node: True if node[0] else None if node[1] == 0 else values[node[1]].clone()
        wanted = invariant.add_up((4, 0), leaf)
        for cuts in ((0, 1920), (0, 896, 1920), (0, 128, 384, 1152, 1920)):
            nodes = [node for pair in zip(cuts, cuts[1:]) for node in invariant.nodes_of((pair,), borders, order)]
            found = {node: invariant.add_up(node, leaf) for node in nodes}
            total = invariant.add_up((4, 0), lambda node: found[node] if node in found else node[0] > 0 or None)
            self.assertTrue(torch.equal(total, wanted), cuts)


if __name__ == "__main__":
    ranks.main(RankTest, WORLD, alone=(TreeTest,))
