#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls of attention() that autograd records, and calls that run through attune's op, take the arguments of other calls
with equal meaning: score features as NumPy's arrays and in lists, seeds of 64 bits, and refusals.

    recorded_features_test.py [cuda] [whole]

Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a GPU."""
import unittest

import gradient_cases
import numpy as np
import torch
from gradient_cases import DEVICE, draw, leaf

import attune
import attune.flash
import attune.sdpa
from attune.torch import train as _train

ROWS = 12
IDS = torch.tensor([[0] * 6 + [1] * 6], dtype=torch.int32)
NUMBERS = np.random.default_rng(1).standard_normal((2, 2, ROWS, ROWS)).astype(np.float32)
ARRAYS = ({"documents": IDS.numpy()}, {"documents": [IDS.numpy(), IDS.numpy()]}, {"documents": (IDS.numpy(), IDS)}, {
    "mask_tensor": np.tril(np.ones((ROWS, ROWS), bool))}, {"key_lengths": np.array([3, 7], np.int32)}, {
        "prefix": np.array([4], np.int32)}, {"bias": NUMBERS}, {"bias": NUMBERS[0, 0].T.astype(np.float16)}, {
            "relative_bias": NUMBERS.reshape(-1)[:46].reshape(2, 23)}, {
                "alibi_slopes": np.array(attune.alibi_slopes(2), np.float32)}, {"sinks": np.ones(2, np.float32)}, {
                    "dropout_p": 0.5, "seed": np.array([3]), "offset": np.array(2**63 + 1, np.uint64)})
PLAIN = ({"dropout_p": 0.5, "seed": np.int64(3)}, {"dropout_p": 0.5, "seed": 2**63 + 5}, {
    "dropout_p": 0.5, "seed": -1, "offset": 2**64 - 1}, {"dropout_p": None}, {"offset": None}, {
        "softcap": np.float32(2)}, {"scale": torch.tensor(0.5)}, {"dtype": "fp32"}, {"scale_block": np.int64(0)})
REFUSED = ({"documents": [IDS]}, {"documents": [IDS] * 3}, {"bias": [torch.zeros(ROWS, ROWS)]}, {
    "bias": [torch.zeros(ROWS, ROWS)] * 2}, {"mask_tensor": NUMBERS}, {"key_lengths": 3}, {
        "key_lengths": np.int32(3)}, {"prefix": 4}, {"bias": "nonsense"}, {"bias": NUMBERS.astype(np.float64)}, {
            "bias": NUMBERS[..., :5]}, {"bias": np.ma.masked_array(NUMBERS)}, {"sinks": 1.0}, {
                "alibi_slopes": attune.alibi_slopes(2)}, {"dropout_p": 0.5, "seed": True}, {
                    "dropout_p": 0.5, "seed": 2.5}, {"dropout_p": 0.5, "seed": 2**64}, {
                        "dropout_p": 0.5, "seed": 1, "offset": -2**63 - 1}, {"block_map": 3}, {"v_layout": None}, {
                            "q_scale": 1.0})


def operands(head_dim=16):
    return [draw(2, ROWS, 2, head_dim) for _ in range(3)]


def outcome(call):
    try:
        return call()
    except (TypeError, ValueError) as error:
        return type(error), str(error)


def both(q, k, v, attend=attune.attention, **choices):
    """Returns the outcomes of a call that is not recorded, and of one that is."""
    return outcome(lambda: attend(q, k, v, **choices)), outcome(lambda: attend(leaf(q), k, v, **choices))


class RecordedFeaturesTest(unittest.TestCase):
    def assertSame(self, found, choices):
        plain, recorded = found
        self.assertIsInstance(plain, torch.Tensor, (choices, plain))
        self.assertIsInstance(recorded, torch.Tensor, (choices, recorded))
        self.assertIsNotNone(recorded.grad_fn, choices)
        self.assertTrue(torch.equal(plain, recorded.detach()), choices)

    def test_features_other_than_tensors_are_not_dropped(self):
        q, k, v = operands()
        ids = IDS.to(DEVICE)
        for choices in ({"documents": [ids, ids]}, *PLAIN, *(ARRAYS if DEVICE == "cpu" else ())):
            self.assertSame(both(q, k, v, **choices), choices)

    @unittest.skipUnless(DEVICE == "cpu", "arrays can only be mixed with CPU tensors")
    def test_arrays_in_other_ways_to_the_same_call(self):
        q, k, v = operands()
        for choices in ARRAYS:
            self.assertSame(both(*operands(20), pad_head_dim=True, **choices), choices)
            with torch.autocast("cpu", torch.bfloat16):
                self.assertSame(both(q, k, v, **choices), choices)
        slopes = np.array(attune.alibi_slopes(2), np.float32)
        self.assertSame(both(q, k, v, attune.flash.flash_attn_func, alibi_slopes=slopes), "slopes")

    @unittest.skipUnless(DEVICE == "cpu", "arrays can only be mixed with CPU tensors")
    def test_gradients_equal_those_of_tensors(self):
        given = operands()
        dout = draw(2, ROWS, 2, 16) + 1
        for choices in ARRAYS:
            found = []
            to_tensor = lambda x: [to_tensor(one) for one in x] if isinstance(x, (list, tuple)) else torch.from_numpy(
                x) if isinstance(x, np.ndarray) else x
            for kind in (choices, {name: to_tensor(x) for name, x in choices.items()}):
                leaves = [leaf(x) for x in given]
                found.append(torch.autograd.grad(attune.attention(*leaves, deterministic=True, **kind), leaves, dout))
            for x, y in zip(*found):
                self.assertTrue(torch.equal(x, y), choices)

    @unittest.skipUnless(DEVICE == "cpu", "arrays can only be mixed with CPU tensors")
    def test_arrays_that_change_between_forward_and_backward(self):
        for name, array, other in (("bias", NUMBERS.copy(), 0), ("seed", np.array([3]), 4)):
            choices = {name: array, "dropout_p": 0.5 if name == "seed" else 0.0}
            leaves = [leaf(x) for x in operands()]
            run = lambda: attune.attention(*leaves, deterministic=True, **choices)
            want = torch.autograd.grad(run(), leaves, draw(2, ROWS, 2, 16))
            o = run()
            array[...] = other
            for x, y in zip(torch.autograd.grad(o, leaves, draw(2, ROWS, 2, 16)), want):
                self.assertTrue(torch.equal(x, y), name)

    def test_refusals_have_equal_words(self):
        q, k, v = operands()
        for choices in REFUSED:
            plain, recorded = both(q, k, v, **choices)
            self.assertIsInstance(plain, tuple, choices)
            self.assertEqual(plain, recorded, choices)
        plain, recorded = both(q, k, v, bias=NUMBERS[:, :, ::-1])
        if DEVICE == "cpu":
            for sentence in (plain[1], recorded[1]):
                self.assertRegex(sentence, "bias has strides .*; strides must be at least 0")
        plain, recorded = both(q, k, v, attune.flash.flash_attn_func, alibi_slopes=attune.alibi_slopes(2))
        self.assertEqual(plain, recorded)

    def test_a_call_leaves_no_state_behind(self):
        with self.assertRaisesRegex(RuntimeError, "internal error: .*bias"):
            _train._record(*(leaf(x) for x in operands()), {"bias": "nonsense"}, False, False)
        with self.assertRaisesRegex(RuntimeError, "internal error: .*new_feature"):
            _train._record(*(leaf(x) for x in operands()), {"new_feature": 1}, False, False)

    def test_seeds_of_64_bits_where_a_call_takes_the_op(self):
        given = operands(20)
        for seed, offset in ((2**63, 0), (2**64 - 1, 2**63 + 7), (-1, 5), (np.uint64(2**63 + 9), np.int64(-4))):
            choices = {"dropout_p": 0.3, "seed": seed, "offset": offset, "pad_head_dim": True}
            plain, recorded = both(*given, **choices)
            self.assertSame((plain, recorded), choices)
            q, k, v = (leaf(x) for x in given)
            ones = torch.ones_like(v)
            dv, = torch.autograd.grad(attune.attention(q, k, v, **choices), v, ones)
            o, lse = attune.attention(*given, return_lse=True, **choices)
            self.assertTrue(
                torch.allclose(dv,
                               attune.attention_backward(ones, *given, o, lse, gradients="v", **choices)[2]), choices)


if __name__ == "__main__":
    gradient_cases.main()
