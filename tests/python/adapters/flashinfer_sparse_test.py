#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers of sparse blocks: blocks of any size, aligned to granules or not, masks of elements and of
bits, blocks of each head, against attention in float64. With PyTorch on the device named by the first argument; skips
aloud (status 77) without them."""
import unittest

from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("of PyTorch, on the device named by the first argument")

from attune import flashinfer
from flashinfer_test import DTYPE, LIMIT, D, drawn, ints

TYPES = dict(q_data_type=DTYPE, o_data_type=DTYPE)


def seen_attention(q, k, v, seen, softcap=None, scale=D**-0.5):
    """Returns o [heads, rows, head_dim] and lse in base 2 in float64. seen: bool [heads or 1, rows, keys]."""
    q, k, v = (x.double().cpu().numpy().transpose(1, 0, 2) for x in (q, k, v))
    ratio = q.shape[0] // k.shape[0]
    s = scale * (q @ np.repeat(k, ratio, 0).transpose(0, 2, 1))
    s = softcap * np.tanh(s / softcap) if softcap else s
    s = np.where(seen.cpu().numpy(), s, -np.inf)
    top = np.maximum(s.max(-1, keepdims=True), -1e300)
    p = np.exp(s - top)
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0] / np.log(2)
    return (p / np.where(total, total, 1)) @ np.repeat(v, ratio, 0), np.where(total[..., 0], lse, -np.inf)


def matrix(random, rows, columns):
    """Returns (indptr, indices, bools) of a block matrix whose second block row is empty."""
    blocks = random.random((rows, columns)) < 0.4
    blocks[1:2] = False
    counts = blocks.sum(1)
    return (ints([0, *counts.cumsum()]), ints(np.nonzero(blocks)[1]), torch.from_numpy(blocks))


def spread(blocks, rows, keys):
    return blocks.repeat_interleave(torch.as_tensor(rows), 0).repeat_interleave(torch.as_tensor(keys), 1)


class SparseTest(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(3)

    def operands(self, rows, keys, of_q=4, of_k=2):
        return drawn(self.random, rows, of_q, D), drawn(self.random, keys, of_k, D), drawn(self.random, keys, of_k, D)

    def check(self, wrapper, q, k, v, seen, **choices):
        o, lse = wrapper.run(q, k, v, return_lse=True)
        want, of_lse = seen_attention(q, k, v, seen, **choices)
        np.testing.assert_allclose(o.double().cpu(), want.transpose(1, 0, 2), rtol=LIMIT, atol=LIMIT)
        np.testing.assert_allclose(lse.cpu(), of_lse.T, rtol=1e-3, atol=1e-3)
        self.assertTrue(torch.equal(wrapper.run(q, k, v), o))

    def plan(self, sizes, extents, mask=None, packed=None, **choices):
        """Returns a wrapper with a drawn matrix, and what it shows of each element."""
        counts = [-(-extent // size) for extent, size in zip(extents, sizes)]
        indptr, indices, blocks = matrix(self.random, *counts)
        seen = spread(blocks, [sizes[0]] * counts[0], [sizes[1]] * counts[1])
        given = {}
        if mask or packed:
            elements = torch.from_numpy(self.random.random((indices.numel(), *sizes)) < 0.7)
            at = blocks.nonzero()
            inside = torch.zeros((counts[0], counts[1], *sizes), dtype=torch.bool).index_put_(
                (at[:, 0], at[:, 1]), elements).transpose(1, 2).reshape(seen.shape)
            seen = seen & inside
            given["mask"] = elements.to(DEVICE) if mask else None
            if packed:  # block row by block row, each row over all its blocks
                flat = [elements[a:b].transpose(0, 1).reshape(-1) for a, b in zip(indptr.tolist(), indptr.tolist()[1:])]
                begins = ints(np.cumsum([0, *(len(one) for one in flat)]))
                given["packed_mask"] = flashinfer.segment_packbits(torch.cat(flat).to(DEVICE), begins, "little")[0]
        wrapper = flashinfer.BlockSparseAttentionWrapper(torch.empty(0, device=DEVICE))
        wrapper.plan(indptr, indices, *extents, *sizes, 4, 2, D, **given, **TYPES, **choices)
        return wrapper, seen[None, :extents[0], :extents[1]]

    def test_blocks_of_any_size(self):
        for sizes, extents in (((64, 16), (300, 200)), ((128, 64), (256, 256)), ((1, 1), (7, 50)),
                               ((16, 24), (100, 130)), ((3, 5), (31, 64)), ((64, 20), (128, 100))):
            wrapper, seen = self.plan(sizes, extents)
            self.check(wrapper, *self.operands(*extents), seen)

    def test_masks_of_elements_and_bits(self):
        for sizes, extents in (((4, 6), (20, 60)), ((64, 16), (128, 64)), ((5, 7), (18, 33))):
            for kind in ("mask", "packed"):
                wrapper, seen = self.plan(sizes, extents, **{kind: True})
                self.check(wrapper, *self.operands(*extents), seen)

    def test_choices_and_buffers(self):
        wrapper, seen = self.plan((64, 32), (128, 96), logits_soft_cap=5.0, sm_scale=0.3)
        q, k, v = self.operands(128, 96)
        self.check(wrapper, q, k, v, seen, softcap=5.0, scale=0.3)
        out, lse = torch.full_like(q, 7), torch.zeros(128, 4, device=DEVICE)
        found = wrapper.run(q, k, v, out=out, lse=lse, return_lse=True)
        self.assertIs(found[0], out)
        self.assertTrue(torch.equal(out, wrapper.run(q, k, v)) and torch.equal(lse, wrapper.run_return_lse(q, k, v)[1]))
        want = seen_attention(q, k, v, seen)[0].transpose(1, 0, 2)
        np.testing.assert_allclose(wrapper.forward(q, k, v).double().cpu(), want, rtol=LIMIT, atol=LIMIT)

    def test_blocks_of_each_head(self):
        for sizes, extents in (((64, 16), (150, 90)), ((10, 9), (40, 45))):
            counts = [-(-extent // size) for extent, size in zip(extents, sizes)]
            for heads in (2, 4):
                blocks = torch.from_numpy(self.random.random((heads, *counts)) < 0.5)
                wrapper = flashinfer.BlockSparseAttentionWrapper(torch.empty(0, device=DEVICE))
                wrapper.plan(None, None, *extents, *sizes, 4, 2, D, block_mask=blocks.to(DEVICE), **TYPES)
                seen = torch.stack([spread(one, [sizes[0]] * counts[0], [sizes[1]] * counts[1]) for one in blocks])
                self.check(wrapper, *self.operands(*extents),
                           seen.repeat_interleave(4 // heads, 0)[:, :extents[0], :extents[1]])

    def test_blocks_of_variable_sizes(self):
        for rows, keys in (((64, 128, 64), (16, 48, 32, 16)), ((5, 0, 20, 7), (9, 1, 30))):
            sizes = [np.stack([one, self.random.permutation(one)]) for one in (rows, keys)]
            blocks = torch.from_numpy(self.random.random((2, len(rows), len(keys))) < 0.6)
            wrapper = flashinfer.VariableBlockSparseAttentionWrapper(torch.empty(0, device=DEVICE))
            wrapper.plan(blocks.to(DEVICE), *(ints(one.tolist()) for one in sizes), 4, 2, D, q_data_type=DTYPE)
            q, k, v = self.operands(sum(rows), sum(keys))
            seen = torch.stack([spread(*one) for one in zip(blocks, sizes[0], sizes[1])]).repeat_interleave(2, 0)
            given = [x.transpose(0, 1).contiguous() for x in (q, k, v)]
            o, lse = wrapper.run(*given, return_lse=True)
            want, of_lse = seen_attention(q, k, v, seen)
            np.testing.assert_allclose(o.double().cpu(), want, rtol=LIMIT, atol=LIMIT)
            np.testing.assert_allclose(lse.cpu(), of_lse, rtol=1e-3, atol=1e-3)
            out, kept = torch.empty_like(given[0]), torch.empty_like(lse)
            self.assertIs(wrapper.run(*given, out=out, lse=kept), out)
            self.assertTrue(torch.equal(out, o) and torch.equal(kept, lse))

    def test_errors_name_the_argument(self):
        wrapper = flashinfer.BlockSparseAttentionWrapper(torch.empty(0, device=DEVICE))
        q, k, v = self.operands(8, 6)
        with self.assertRaisesRegex(RuntimeError, "run.. is called before plan"):
            wrapper.run(q, k, v)
        good = dict(indptr=ints([0, 1, 2]), indices=ints([0, 1]), M=8, N=6, R=4, C=3, num_qo_heads=4, num_kv_heads=2,
                    head_dim=D, **TYPES)
        wrapper.plan(**good)
        for change, words in ((dict(indptr=ints([0, 1])), "indptr is .* must be 3 numbers that rise from 0"),
                              (dict(indices=ints([0, 2])), "indices has 2 numbers up to 2; must be 2 numbers below 2"),
                              (dict(mask=torch.ones(1, 4, 3, dtype=torch.bool, device=DEVICE)), "mask has shape"),
                              (dict(causal=True), "causal is True; must be False"),
                              (dict(R=0), "R is 0; must be at least 1"),
                              (dict(num_qo_heads=3), "num_qo_heads is 3; must be a multiple of num_kv_heads, 2"),
                              (dict(q2k_num=q), "q2k_num is given; must be None")):
            with self.assertRaisesRegex(ValueError, words):
                wrapper.plan(**{**good, **change})
        with self.assertRaisesRegex(ValueError, r"k has shape .*; must be \(6, 2, 32\)|k has shape .*must be"):
            wrapper.run(q, k[:5], v)


if __name__ == "__main__":
    unittest.main()
