#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.block_map on PyTorch tensors: maps from FlexAttention's BlockMasks, and maps that are built on the device,
against dense masks. Arguments: cpu or cuda. Skips aloud (status 77) without PyTorch, its FlexAttention or the
device."""
import copy
import os
import pickle
import sys
import tempfile
import unittest

from skips import skip, without_modules

with without_modules():
    import torch
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask

import attune

DEVICE = sys.argv.pop() if sys.argv[-1] in ("cpu", "cuda") else "cpu"
BATCH, HEADS, HEADS_KV, ROWS, KEYS, DIM = 2, 4, 2, 300, 700, 64
DTYPE, ALLOWED = (torch.float32, 3e-5) if DEVICE == "cpu" else (torch.bfloat16, 2e-2)


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[1])).to(DEVICE, DTYPE)


def expected(q, k, v, seen):
    k, v = (x.double().repeat_interleave(HEADS // HEADS_KV, 2) for x in (k, v))
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), k) * DIM ** -0.5
    weights = torch.where(seen, scores, -torch.inf).softmax(-1).nan_to_num()
    return torch.einsum("bhij,bjhd->bihd", weights, v)


def first_keys(b, h, q_idx, kv_idx):
    return kv_idx < 100


class BlockMapTorchTest(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = draw(BATCH, ROWS, HEADS, DIM), draw(BATCH, KEYS, HEADS_KV, DIM), draw(
            BATCH, KEYS, HEADS_KV, DIM)
        self.row, self.key = torch.arange(ROWS, device=DEVICE)[:, None], torch.arange(KEYS, device=DEVICE)[None, :]
        self.kind = (torch.arange(KEYS, device=DEVICE) // 90).to(torch.int32)

    def masks(self):
        kind = self.kind
        return (lambda b, h, q_idx, kv_idx: kv_idx <= q_idx,
                lambda b, h, q_idx, kv_idx: kind[q_idx] == kind[kv_idx],
                lambda b, h, q_idx, kv_idx: (kv_idx - 100 * h <= q_idx) & (kv_idx > 40 * b))

    def seen_by(self, mask):
        batch, head = torch.arange(BATCH, device=DEVICE).view(-1, 1, 1, 1), torch.arange(HEADS, device=DEVICE).view(
            1, -1, 1, 1)
        return torch.broadcast_to(mask(batch, head, self.row, self.key), (BATCH, HEADS, ROWS, KEYS))

    def attend(self, **given):
        return attune.attention(self.q, self.k, self.v, **given)

    def flex(self, mask, block_size=128):
        return create_block_mask(mask, BATCH, HEADS, ROWS, KEYS, device=DEVICE, BLOCK_SIZE=block_size)

    def test_maps_of_block_masks_are_their_masks(self):
        for mask in self.masks():
            want = expected(self.q, self.k, self.v, self.seen_by(mask))
            for hides in (True, False):
                found = attune.block_map.from_flex(self.flex(mask), hides=hides)
                got = self.attend(mask_mod=mask, block_map=found).double()
                self.assertLess((got - want).abs().max().item(), ALLOWED)

    def test_built_maps_are_exact(self):
        for mask in self.masks():
            built = attune.block_map.build(self.q, self.k, mask_mod=mask)
            flex = attune.block_map.from_flex(self.flex(mask, (64, 16)), hides=False)
            granules = torch.broadcast_to(built.granules, flex.granules.shape)
            whole = (..., slice(ROWS // 64), slice(
                KEYS // 16))  # a granule that ends early is never full for FlexAttention
            self.assertTrue(torch.equal(granules[whole], flex.granules[whole]),
                            "as FlexAttention finds them by looking at each element")
            first, second = (self.attend(mask_mod=mask, block_map=built) for _ in range(2))
            self.assertTrue(torch.equal(first, second))
            self.assertLess((first.double() - expected(self.q, self.k, self.v, self.seen_by(mask))).abs().max().item(),
                            ALLOWED)

    def test_a_list_of_full_blocks_alone(self):
        blocks = torch.rand(BATCH, HEADS, 3, 6, generator=torch.Generator().manual_seed(1)).to(DEVICE) < 0.4
        counts = blocks.sum(-1).to(torch.int32)
        places = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True).to(torch.int32)
        none = torch.zeros_like(counts)
        listed = BlockMask.from_kv_blocks(none, torch.zeros_like(places), counts, places, BLOCK_SIZE=128,
                                          mask_mod=None, seq_lengths=(ROWS, KEYS))
        seen = blocks.repeat_interleave(128, 2).repeat_interleave(128, 3)[:, :, :ROWS, :KEYS]
        got = self.attend(block_map=attune.block_map.from_flex(listed)).double()
        self.assertLess((got - expected(self.q, self.k, self.v, seen)).abs().max().item(), ALLOWED)

    def test_lists_of_a_block_mask_without_mask_mod_are_its_mask(self):
        """Lists of from_kv_blocks(), and lists of blocks that no map had read, were once refused, even with a
        mask_mod."""
        import attune.flex
        causal = self.masks()[0]
        heads_first = [x.transpose(1, 2) for x in (self.q, self.k, self.v)]
        for size in (128, 32, (64, 100)):
            rows, keys = (size, size) if isinstance(size, int) else size
            blocks = torch.rand(BATCH, 1, -(-ROWS // rows), -(-KEYS // keys),
                                generator=torch.Generator().manual_seed(3)).to(DEVICE) < 0.4
            lists = blocks.sum(-1).to(torch.int32), torch.argsort(blocks.int(), dim=-1, descending=True,
                                                                  stable=True).to(torch.int32)
            seen = blocks.repeat_interleave(rows, 2).repeat_interleave(keys, 3)[:, :, :ROWS, :KEYS]
            for mask in (None, causal):
                listed = BlockMask.from_kv_blocks(*lists, BLOCK_SIZE=size, mask_mod=mask, seq_lengths=(ROWS, KEYS))
                with self.subTest(size=size, mask=mask):
                    got = attune.flex.flex_attention(*heads_first, block_mask=listed,
                                                     enable_gqa=True).transpose(1, 2).double()
                    want = expected(self.q, self.k, self.v, seen if mask is None else seen & self.seen_by(mask))
                    self.assertLess((got - want).abs().max().item(), ALLOWED)

    def test_block_masks_after_a_call(self):
        """Three old faults: after a call a BlockMask could not be copied or pickled; a map of deleted lists was used
        for new lists; a mask_mod set later was ignored."""
        import attune.flex
        heads_first = [x.transpose(1, 2) for x in (self.q, self.k, self.v)]
        attend = lambda mask: attune.flex.flex_attention(*heads_first, block_mask=mask, enable_gqa=True)
        mask = create_block_mask(first_keys, 1, 1, ROWS, KEYS, device=DEVICE)
        want = attend(mask)
        for again in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask)), copy.copy(mask)):
            self.assertTrue(torch.equal(attend(again), want))
        built = attune.block_map.build(self.q, self.k, mask_mod=first_keys)
        self.assertTrue(
            torch.equal(self.attend(mask_mod=first_keys, block_map=copy.deepcopy(built)),
                        self.attend(mask_mod=first_keys, block_map=built)))
        ones = torch.ones(1, 1, 3, dtype=torch.int32, device=DEVICE)
        listed = BlockMask.from_kv_blocks(ones, torch.zeros(1, 1, 3, 6, dtype=torch.int32, device=DEVICE),
                                          BLOCK_SIZE=128, seq_lengths=(ROWS, KEYS))
        for _ in range(3):
            before = attend(listed)
            self.assertGreater((before - want).abs().max().item(), 1e-3)
            listed.mask_mod = first_keys
            self.assertTrue(torch.equal(attend(listed), want))
            listed.mask_mod = None
            for block in (5, 2):  # the second list may get the first one's address
                listed.kv_indices = torch.full((1, 1, 3, 6), block, dtype=torch.int32, device=DEVICE)
            found = attend(listed).transpose(1, 2).double()
            self.assertLess((found - expected(self.q, self.k, self.v, self.key // 128 == 2)).abs().max().item(),
                            ALLOWED)
            listed.kv_indices = torch.zeros(1, 1, 3, 6, dtype=torch.int32, device=DEVICE)
        for sentence, wrong in ((
                r"block_mask is of 3 batch entries and 1 heads; must be 1, or those of query: 2 and 4", (3, 1, ROWS,
                                                                                                          KEYS)),
                                (r"block_mask is of 300 rows and 650 keys; must be at least .*, 300 and 700",
                                 (1, 1, ROWS, 650))):
            with self.assertRaisesRegex(ValueError, sentence):
                attend(create_block_mask(first_keys, *wrong, device=DEVICE))

    def test_masks_that_repeat_over_heads_and_batches(self):
        """One list serves all heads or batch entries between which the call's mask does not differ."""
        bools = torch.rand(ROWS, KEYS, generator=torch.Generator().manual_seed(2)).to(DEVICE) < 0.02
        bools[64:128, 128:256] = True
        one = self.attend(mask_tensor=bools)
        each = self.attend(mask_tensor=bools.expand(BATCH, HEADS, ROWS, KEYS).contiguous())
        self.assertTrue(torch.equal(one, each))
        self.assertLess((one.double() - expected(self.q, self.k, self.v, bools)).abs().max().item(), ALLOWED)

    def test_refusals(self):
        mask = self.masks()[1]
        with self.assertRaisesRegex(ValueError, "block_map describes masks, and no mask is given"):
            self.attend(block_map=attune.block_map.from_flex(self.flex(mask)))
        with self.assertRaisesRegex(ValueError, "block_keys is 8; must be a multiple of 16"):
            attune.block_map.from_flex(self.flex(mask, (64, 8)))
        broken = self.flex(mask)
        broken.kv_indices = broken.kv_indices + 100
        with self.assertRaisesRegex(ValueError, "kv_indices names block 1"):
            attune.block_map.from_flex(broken)


if __name__ == "__main__":
    if DEVICE == "cuda" and not torch.cuda.is_available():
        skip("no CUDA device was found")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATTUNE_STORE"] = os.path.join(folder, "store", "store.db")
        try:
            attune.Context(DEVICE)
        except attune.Error as error:
            skip(error)
        unittest.main()
