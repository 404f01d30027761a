#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attention() of DTensors over gloo: sharded on heads or batch entries, with features and gradients, it equals the
whole, and moves nothing; what needs the whole is gathered and right. Starts the processes itself.
Skips aloud (status 77) without PyTorch, gloo or the CPU target."""
import unittest

from skips import skip, torch

import attune
import ranks

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode
except ImportError:
    skip("this PyTorch has no DTensor")

WORLD, BATCH, ROWS, HEADS = 4, 4, 33, 8
HEAD, ENTRY, WHOLE = Shard(2), Shard(0), Replicate()


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def operands(heads_kv=4):
    return [draw(BATCH, ROWS, count, 16, seed=place) for place, count in enumerate((HEADS, heads_kv, heads_kv))]


class RankTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.line, cls.square = init_device_mesh("cpu", (WORLD,)), init_device_mesh("cpu", (2, 2))

    def check(self, mesh, placements, tensors, moves=0, heads_kv=4, **choices):
        """Compares o and gradients with those of whole tensors. placements: of q, k and v. tensors: placements of
        feature tensors, and these. moves: the collectives of the forward and backward; None: some."""
        whole = [x.requires_grad_() for x in operands(heads_kv)]
        features = {name: x.requires_grad_(x.is_floating_point()) for name, (_, x) in tensors.items()}
        dout = draw(BATCH, ROWS, HEADS, 16, seed=9)
        o = attune.attention(*whole, **choices, **features)
        o.backward(dout)
        place = lambda x, where: distribute_tensor(x.detach(), mesh, where)
        parts = [place(x, placements).requires_grad_() for x in whole]
        of_parts = {name: place(x, tensors[name][0]).requires_grad_(x.requires_grad) for name, x in features.items()}
        of_dout = place(dout, placements)
        with CommDebugMode() as moved:
            found = attune.attention(*parts, **choices, **of_parts)
            found.backward(of_dout)
        if moves is None:
            self.assertGreater(moved.get_total_counts(), 0)
        else:
            self.assertEqual(found.placements, tuple(placements))
            self.assertEqual(moved.get_total_counts(), moves)
        self.assertTrue(torch.equal(found.full_tensor(), o))
        for x, y in zip((*parts, *of_parts.values()), (*whole, *features.values())):
            if y.requires_grad:
                self.assertLess((x.grad.full_tensor() - y.grad).abs().max().item(), 2e-5)

    def test_1_heads_move_nothing(self):
        features = {
            "sinks": ([Shard(0)], draw(HEADS)), "alibi_slopes": ([Shard(0)], draw(HEADS).abs()),
            "bias": ([Shard(1)], draw(1, HEADS, ROWS, ROWS))}
        self.check(self.line, [HEAD], {}, mask="causal")
        self.check(self.line, [HEAD], features, window=(9, 3), softcap=20)

    def test_2_batch_entries_move_nothing(self):
        documents = torch.arange(ROWS, dtype=torch.int32).div(7, rounding_mode="floor").expand(BATCH, ROWS)
        features = {
            "key_lengths": ([ENTRY], torch.tensor([33, 5, 20, 1], dtype=torch.int32)), "sinks": ([WHOLE], draw(HEADS)),
            "bias": ([ENTRY], draw(BATCH, 1, ROWS, ROWS))}
        self.check(self.line, [ENTRY], {}, mask="causal")
        self.check(self.line, [ENTRY], features)
        *parts, of_documents = [
            distribute_tensor(x, self.line, [ENTRY]) for x in (*operands(), documents.contiguous())]
        with CommDebugMode() as moved:
            found = attune.attention(*parts, documents=of_documents)
        self.assertEqual(moved.get_total_counts(), 0)
        wanted = attune.attention(*operands(), documents=documents.contiguous())
        self.assertTrue(torch.equal(found.full_tensor(), wanted))

    def test_3_both_move_nothing(self):
        self.check(self.square, [ENTRY, HEAD], {"sinks": ([WHOLE, Shard(0)], draw(HEADS))}, mask="causal")

    def test_4_what_needs_the_whole_is_gathered(self):
        self.check(self.line, [HEAD], {}, moves=None, heads_kv=4, mask="causal", dropout_p=0.3, seed=4)
        self.check(self.line, [HEAD], {}, moves=None, score_mod="return score + float(head);")
        self.check(self.line, [Shard(1)], {}, moves=None, mask="causal")

    def test_5_heads_of_k_that_the_mesh_does_not_divide(self):
        self.check(self.line, [ENTRY], {}, heads_kv=2)
        q, k, v = operands(heads_kv=2)
        place = lambda x, where: distribute_tensor(x, self.line, [where])
        found = attune.attention(place(q, HEAD), place(k, WHOLE), place(v, WHOLE))
        self.assertTrue(torch.equal(found.full_tensor(), attune.attention(q, k, v)))

    def test_6_lse_and_calls_without_it(self):
        q, k, v = (distribute_tensor(x, self.line, [HEAD]) for x in operands())
        o, lse = attune.attention(q, k, v, return_lse=True)
        wanted = attune.attention(*operands(), return_lse=True)
        self.assertEqual((lse.placements, tuple(lse.shape)), ((Shard(1),), (BATCH, HEADS, ROWS)))
        for x, y in zip((o, lse), wanted):
            self.assertTrue(torch.equal(x.full_tensor(), y))
        o, lse = torch.ops.attune.attention(q, k, v, return_lse=False)
        self.assertTrue(torch.equal(o.full_tensor(), wanted[0]))
        self.assertEqual(lse.numel(), 0)

    def test_7_tensors_of_programs_are_refused(self):
        q, k, v, slopes = (distribute_tensor(x, self.line, [WHOLE]) for x in (*operands(), draw(HEADS)))
        program = "\n=== score_mod\n// capture slopes: fp32[1]\nreturn score - slopes[head];"
        with self.assertRaisesRegex(ValueError, "score_mod or mask_mod reads is a DTensor; must be a plain tensor"):
            torch.ops.attune.attention(q, k, v, spec=program, captures=[slopes])


if __name__ == "__main__":
    ranks.main(RankTest, WORLD)
