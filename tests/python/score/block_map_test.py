#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.block_map and attention(block_map=) on NumPy arrays and the CPU, against dense masks. Skips aloud (status 77)
without NumPy or the CPU target."""
import os
import tempfile
import unittest

from skips import np, skip
import attune

BATCH, HEADS, HEADS_KV, ROWS, KEYS, DIM = 2, 4, 2, 200, 330, 64
ROW, KEY = np.arange(ROWS)[:, None], np.arange(KEYS)[None, :]
random = np.random.default_rng(3)
Q, K, V = (random.standard_normal(shape).astype(np.float32) for shape in
           ((BATCH, ROWS, HEADS, DIM), (BATCH, KEYS, HEADS_KV, DIM), (BATCH, KEYS, HEADS_KV, DIM)))


def expected(seen):
    """Returns attention in float64; `seen` broadcasts to [batch, heads, rows, keys]."""
    k, v = (np.repeat(x.astype(np.float64), HEADS // HEADS_KV, axis=2) for x in (K, V))
    scores = np.where(seen, np.einsum("bihd,bjhd->bhij", Q, k) * DIM ** -0.5, -np.inf)
    weights = np.exp(scores)
    total = weights.sum(-1, keepdims=True)
    return np.einsum("bhij,bjhd->bihd", np.divide(weights, total, out=np.zeros_like(weights), where=total > 0), v)


def granules_of(seen):
    """Returns a map's granules by brute force, from a mask [batch, heads, rows, keys]."""
    shape = (*seen.shape[:2], -(-ROWS // 64), -(-KEYS // 16))
    made = np.zeros(shape, np.uint8)
    for b, h, i, j in np.ndindex(shape):
        part = seen[b, h, 64 * i:64 * i + 64, 16 * j:16 * j + 16]
        made[b, h, i, j] = 3 if part.all() else 1 if part.any() else 0
    return made


class BlockMapTest(unittest.TestCase):
    documents = (np.sort(random.integers(0, 3, (BATCH, ROWS))).astype(
        np.int32), np.sort(random.integers(0, 3, (BATCH, KEYS))).astype(np.int32))
    by_document = (documents[0][:, :, None] == documents[1][:, None, :])[:, None]

    def check_masks(self, seen, extents, **masks):
        """Checks that a map of masks describes them, granule by granule, and changes no bit of a result."""
        found = attune.block_map.build(Q, K, **{name: value for name, value in masks.items() if name != "window"})
        self.assertEqual(found.granules.shape[:2], extents)
        np.testing.assert_array_equal(found.granules, granules_of(np.broadcast_to(seen, (*extents, ROWS, KEYS))))
        without = attune.attention(Q, K, V, **masks)
        for _ in range(2):  # layers
            np.testing.assert_array_equal(attune.attention(Q, K, V, block_map=found, **masks), without)

    def test_maps_of_masks(self):
        self.check_masks(self.by_document, (BATCH, 1), documents=self.documents)
        bools = random.random((HEADS, ROWS, KEYS)) < 0.01
        bools[1, 64:128, 32:48] = True
        self.check_masks(bools[None], (BATCH, HEADS), mask_tensor=bools)
        lengths = np.array([70, 300], np.int32)
        self.check_masks(KEY[None, None] < lengths[:, None, None, None], (BATCH, 1), key_lengths=lengths)
        self.check_masks((KEY - ROW - (KEYS - ROWS) <= 0) & ((KEY // 64) == (ROW + KEYS - ROWS) // 64), (1, 1),
                         chunk=64, mask_mod=lambda b, h, q, k: k - q <= KEYS - ROWS)

    def test_maps_of_programs(self):
        self.check_masks((KEY <= ROW)[None, None], (1, 1), mask_mod=lambda b, h, q_idx, kv_idx: kv_idx <= q_idx)
        head = np.arange(HEADS)[:, None, None]
        self.check_masks(((ROW * 7 + KEY) % 5 != head)[None], (1, HEADS), mask_mod=lambda b, h, q_idx, kv_idx:
                         (q_idx * 7 + kv_idx) % 5 != h)
        self.check_masks(np.zeros((1, 1, ROWS, KEYS), bool), (1, 1), mask_mod=lambda b, h, q_idx, kv_idx: kv_idx < 0)

    def test_a_map_with_a_built_in_mask(self):
        found = attune.block_map.build(Q, K, documents=self.documents)
        o = attune.attention(Q, K, V, mask="causal_bottom_right", documents=self.documents, block_map=found)
        np.testing.assert_array_equal(o, attune.attention(Q, K, V, mask="causal_bottom_right",
                                                          documents=self.documents))

    def test_blocks_are_a_mask(self):
        for rows, keys, extents in ((64, 16, (BATCH, HEADS)), (128, 128, (1, HEADS)), (192, 48, (1, 1)), (256, 512,
                                                                                                          (BATCH, 1))):
            blocks = random.random((*extents, -(-ROWS // rows), -(-KEYS // keys))) < 0.4
            seen = blocks.repeat(rows, 2).repeat(keys, 3)[:, :, :ROWS, :KEYS]
            found = attune.block_map.from_blocks(blocks, rows, keys, ROWS, KEYS)
            self.assertLess(np.abs(attune.attention(Q, K, V, block_map=found) - expected(seen)).max(), 3e-5)
            causal = KEY - ROW <= KEYS - ROWS
            o = attune.attention(Q, K, V, mask="causal_bottom_right", block_map=found)
            self.assertLess(np.abs(o - expected(seen & causal)).max(), 3e-5)
            o = attune.attention(Q, K, V, documents=self.documents, block_map=found)
            self.assertLess(np.abs(o - expected(seen & self.by_document)).max(), 3e-5)

    def test_bits_of_cudnn(self):
        tiles = random.random((BATCH, HEADS, 2, 3)) < 0.5
        for order in ("little", "big"):
            bits = np.packbits(tiles, axis=3, bitorder=order)
            found = attune.block_map.from_cudnn(bits, ROWS, KEYS, bit_order=order)
            np.testing.assert_array_equal(found.granules,
                                          attune.block_map.from_blocks(tiles, 128, 128, ROWS, KEYS).granules)

    def test_a_map_of_a_longer_sequence_serves_a_part_of_it(self):
        """Uses the last rows of a sequence with the whole sequence's map."""
        seen = random.random((1, 1, 4, 21)) < 0.5
        found = attune.block_map.from_blocks(seen, 64, 16, ROWS, KEYS)
        first = ROWS - 72
        context = attune.Context("cpu")
        plan = context.plan(
            f"dtype=fp32,head_dim={DIM},heads={HEADS}/{HEADS_KV},batch={BATCH},seqlen_q=72,seqlen_kv={KEYS},"
            f"block_map=hides"
        )
        q = np.ascontiguousarray(Q[:, first:])
        o = np.empty_like(q)
        plan.run(q, K, V, o, block_map=found, q_position0=first)
        want = expected(seen.repeat(64, 2).repeat(16, 3)[:, :, :ROWS, :KEYS])[:, first:]
        self.assertLess(np.abs(o - want).max(), 3e-5)
        with self.assertRaisesRegex(attune.Error, r"operands->block_map->seqlen_q is 200; must be at least 201"):
            plan.run(q, K, V, o, block_map=found, q_position0=first + 1)

    def test_refusals(self):
        build, from_blocks = attune.block_map.build, attune.block_map.from_blocks
        from_cudnn = attune.block_map.from_cudnn
        blocks, built = np.ones((1, 1, 2, 3), bool), build(Q, K, documents=self.documents)
        small = from_blocks(np.ones((1, 1, 1, 1), bool), 128, 128, 100, 100)
        three = from_blocks(np.ones((3, 1, 2, 3), bool), 128, 128, ROWS, KEYS)
        heads = from_blocks(np.ones((1, 2, 2, 3), bool), 128, 128, ROWS, KEYS)
        plain = attune.Context("cpu").plan(
            f"dtype=fp32,head_dim={DIM},heads={HEADS}/{HEADS_KV},batch={BATCH},seqlen_q={ROWS},seqlen_kv={KEYS}")
        for wanted, kind, call in (
            ("no mask is given", ValueError, lambda: build(Q, K)), ("is one word|must be one word", ValueError,
                                                                    lambda: build(Q, K, mask="a,b", chunk=4)),
            ("block_map describes masks, and no mask is given", ValueError,
             lambda: attune.attention(Q, K, V, block_map=built)),
            ("block_map is of type ndarray", TypeError, lambda: attune.attention(Q, K, V, block_map=built.granules)),
            ("block_map->seqlen_q is 100; must be at least 200", attune.Error,
             lambda: attune.attention(Q, K, V, block_map=small)), ("block_map->batch is 3; must be 2", attune.Error,
                                                                   lambda: attune.attention(Q, K, V, block_map=three)),
            ("block_map->num_heads is 2; must be 4", attune.Error, lambda: attune.attention(Q, K, V, block_map=heads)),
            ("block_map is none", attune.Error, lambda: plain.run(Q, K, V, np.empty_like(Q), block_map=small)),
            ("block_rows is 32; must be a multiple of 64", ValueError,
             lambda: from_blocks(blocks, 32, 128, ROWS, KEYS)),
            ("block_keys is 24; must be a multiple of 16", ValueError,
             lambda: from_blocks(blocks, 64, 24, ROWS, KEYS)), (r"blocks has \(2, 3\) blocks.*must have \(4, 3\)",
                                                                ValueError,
                                                                lambda: from_blocks(blocks, 64, 128, ROWS, KEYS)),
            ("blocks is fp32; must be bool or uint8", ValueError,
             lambda: from_blocks(blocks.astype(np.float32), 128, 128, ROWS, KEYS)),
            ("block_mask is int32; must be uint8", ValueError, lambda: from_cudnn(blocks.astype(np.int32), ROWS, KEYS)),
            ("block_mask has 3 bytes of keys", ValueError, lambda: from_cudnn(blocks.astype(np.uint8), ROWS, KEYS)),
            ("bit_order is 'msb'", ValueError, lambda: from_cudnn(np.ones(
                (1, 1, 2, 1), np.uint8), ROWS, KEYS, bit_order="msb")), ("granules is bool; must be uint8", ValueError,
                                                                         lambda: attune.BlockMap(blocks, ROWS, KEYS)),
            ("granules has shape", ValueError, lambda: attune.BlockMap(blocks.astype(np.uint8), ROWS, KEYS)),
            ("hides is 1", TypeError, lambda: attune.BlockMap(built.granules, ROWS, KEYS, hides=1)),
            ("block_mask is of type str without kv_num_blocks", TypeError, lambda: attune.block_map.from_flex("mask"))):
            with self.assertRaisesRegex(kind, wanted):
                call()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        os.environ["ATTUNE_STORE"] = os.path.join(home, "store", "store.db")
        try:
            attune.Context("cpu")
        except attune.Error as error:
            skip(error)
        unittest.main()
