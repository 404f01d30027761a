#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arguments that do not fit: every function refuses them in a sentence that names the caller's own argument, never with
an error of Python or PyTorch, and never computes another result in silence. On PyTorch's tensors of a CPU; skips aloud
(status 77) without."""
import math
import sys
import unittest
import warnings

try:
    import numpy as np
    import torch
except ImportError:
    print("SKIP: PyTorch and NumPy are wanted")
    sys.exit(77)

import attune
from attune import flash
from attune.flash import cute

ints = lambda *values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
rows, dense = torch.randn(6, 2, 32), torch.randn(1, 6, 2, 32)


def of_rows(function=flash.flash_attn_varlen_func, **choices):
    return function(**{
        **dict(q=rows, k=rows, v=rows, cu_seqlens_q=ints(0, 6), cu_seqlens_k=ints(0, 6), max_seqlen_q=6,
               max_seqlen_k=6), **choices})


def of_cache(**choices):
    return flash.flash_attn_with_kvcache(**{
        **dict(q=dense, k_cache=dense.clone(), v_cache=dense.clone(), cache_seqlens=ints(6)), **choices})


def of_dense(function=flash.flash_attn_func, **choices):
    return function(**{**dict(q=dense, k=dense, v=dense), **choices})


FLASH = {
    "dense": of_dense, "rows": of_rows, "cache": of_cache, "cute": lambda **x: of_dense(cute.flash_attn_func, **x),
    "cute rows": lambda **x: of_rows(cute.flash_attn_varlen_func, **x)}


class RefusalsTest(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def refused(self, call, argument, *values, says=None):
        """call(argument=value) raises, for each value, a sentence with the argument's name."""
        for value in values:
            with self.subTest(argument=argument, value=str(value)[:60]):
                with self.assertRaises((TypeError, ValueError, attune.Error)) as raised:
                    call(**{argument: value})
                text = str(raised.exception)
                self.assertRegex(text, rf"\b{argument}\b" if says is None else says)
                self.assertRegex(text, r"must|give|requires|needs|refuse")

    def each(self, names):
        for name in names.split(", "):
            with self.subTest(function=name):
                yield FLASH[name]

    def test_attention_chunk(self):
        wrong = (-1, 1.5, True, math.nan, 2 ** 40, "2", [0], [], torch.tensor([2]), torch.tensor(True), np.bool_(True))
        for call in self.each("dense, rows, cache"):
            self.refused(call, "attention_chunk", *wrong)
            whole, off = call(causal=True, attention_chunk=0), call(causal=True, attention_chunk=None)
            self.assertTrue(torch.equal(whole, off))
            two = call(causal=True, attention_chunk=2)
            self.assertTrue(torch.equal(two, call(causal=True, attention_chunk=np.int64(2))))

    def test_numbers(self):
        for call in self.each("dense, rows, cache, cute, cute rows"):
            self.refused(call, "softcap", [], [0], "x", True, -1.0, math.nan, torch.ones(2), np.ones(3))
            self.refused(call, "softmax_scale", [], "x", True, -1.0, math.nan, torch.ones(2), np.ones(3))
            self.refused(call, "num_splits", [], "x", 1.5, torch.ones(2), np.ones(3))
            self.refused(call, "pack_gqa", [], "x", 1.5, torch.ones(2), np.ones(3))
        for call in self.each("dense, rows"):
            self.refused(call, "dropout_p", [], "x", True, -1.0, 1.0, math.nan, torch.ones(2), np.ones(3))

    def test_longest_sequences(self):
        for call in self.each("rows, cute rows"):
            for name in ("max_seqlen_q", "max_seqlen_k"):
                self.refused(call, name, "6", 6.9, 6.0, True, math.nan, [6], torch.tensor([6]), torch.tensor(True))
        self.assertTrue(torch.equal(of_rows(max_seqlen_q=np.int32(6), max_seqlen_k=torch.tensor(6)), of_rows()))

    def test_tensors(self):
        wrong = ("x", 3, [1.0], True)
        for call in self.each("dense, rows, cute, cute rows"):
            for name in ("q", "k", "v", "learnable_sink"):
                self.refused(call, name, *wrong)
        for name in ("q", "k_cache", "v_cache", "out", "qv"):
            self.refused(of_cache, name, *wrong)
        for name in ("qv", "out"):
            self.refused(of_rows, name, *wrong)
        self.refused(of_dense, "qv", *wrong)

    def test_probabilities_are_not_kept(self):
        for call in self.each("dense, rows"):
            _, _, none = call(return_attn_probs=True)
            self.assertEqual(tuple(none.shape), (0, ))
            out, lse, kept = call(return_attn_probs=True, dropout_p=0.25)
            self.assertEqual((out.shape, lse.shape[-1]), (call().shape, 6))
            for use in (lambda: kept.shape, lambda: kept[0], lambda: torch.abs(kept), lambda: kept > 0):
                with self.assertRaisesRegex(ValueError, "return_attn_probs is True with dropout_p"):
                    use()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
