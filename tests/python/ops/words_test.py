#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Masks, windows and scales that the Python module understands, and refusals of others; texts of help() and repr().
NumPy on the CPU. Skips aloud (status 77) without NumPy or the CPU target."""
import fractions
import inspect
import os
import sys
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)

import attune


def draw(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


class WordsTest(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = draw(1, 9, 2, 16), draw(1, 9, 2, 16) * 2, draw(1, 9, 2, 16) + 1

    def attend(self, **choices):
        return attune.attention(self.q, self.k, self.v, **choices)

    def refused(self, sentence, kind=ValueError, **choices):
        with self.assertRaisesRegex(kind, sentence):
            self.attend(**choices)

    def test_names_that_others_use_are_explained(self):
        cases = {
            "causal": 'causal is mask="causal" or is_causal=True here', "attn_mask": r"attn_mask is mask_tensor \(bool",
            "softmax_scale": "softmax_scale is scale here", "window_size": "window_size is window here",
            "dropout": "dropout is dropout_p here"}
        for name, hint in cases.items():
            self.refused(f"attention.* unexpected keyword argument '{name}'; {hint}", TypeError, **{name: None})
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'no_such_word'$"):
            self.attend(no_such_word=1)

    def test_scales_of_every_kind(self):
        want = self.attend(scale=0.125)
        self.assertGreater(np.abs(want - self.attend()).max(), 1e-3)
        for scale in (1 / np.sqrt(np.float64(64)), np.float32(0.125), np.float16(0.125), np.array(0.125),
                      fractions.Fraction(1, 8)):
            np.testing.assert_array_equal(self.attend(scale=scale), want)
        np.testing.assert_array_equal(self.attend(scale=1), self.attend(scale=np.int64(1)))
        for scale in (0, -1.0, float("nan"), float("inf"), 1e-60, 1e60):
            self.refused(r"scale is .*; must be above 0", scale=scale)
        for scale in ("0.1", True, np.array([0.125]), np.complex64(1), object(), np.array(True)):
            self.refused("scale is .*; must be a real number", scale=scale)

    def test_every_name_is_listed(self):
        names = dir(attune)
        self.assertEqual(names, sorted(names))
        modules = {
            "block_map", "diffusers", "flash", "flash_mla", "flashinfer", "flex", "sdpa", "torch", "transformers"}
        self.assertLessEqual({*attune.__all__, *modules, "TuneReport", "Why", "__version__"}, set(names))

    def test_masks(self):
        none, causal = self.attend(mask="none"), self.attend(mask="causal_top_left")
        self.assertGreater(np.abs(none - causal).max(), 1e-2)
        for choices in ({}, {"mask": None}, {"is_causal": False}, {"is_causal": None}, {"window": None}, {
                "window": (None, -1)}):
            np.testing.assert_array_equal(self.attend(**choices), none)
        for choices in ({"mask": "causal"}, {"is_causal": True}, {"mask": "causal", "is_causal": True}, {
                "is_causal": np.bool_(True)}, {"mask": "causal_bottom_right"}):
            np.testing.assert_array_equal(self.attend(**choices), causal)

    def test_masks_that_are_refused(self):
        self.k, self.v = self.k[:, :7], self.v[:, :7]
        self.refused("9 queries and 7 keys; must be 'causal_bottom_right'", mask="causal")
        self.refused("9 queries and 7 keys; must be 'causal_bottom_right'", is_causal=True)
        self.refused("mask is 'causal_top_left' and is_causal is True; give one of the two", mask="causal_top_left",
                     is_causal=True)
        self.refused("is_causal is 'yes'; must be True or False", TypeError, is_causal="yes")
        self.refused("is_causal is 1;", TypeError, is_causal=1)
        for mask in (True, np.ones((9, 7), bool), 3):
            self.refused("mask is of type .*; must be None, 'none', 'causal'", mask=mask)
        for mask in ("none,head_dim_qk=256", "none\0", "causal ", "", "full"):
            self.refused("mask is .*; must be None, 'none', 'causal'", mask=mask)

    def test_windows(self):
        want = self.attend(mask="causal", window=(3, 0))
        for window in ([3, 0], (np.int64(3), 0)):
            np.testing.assert_array_equal(self.attend(mask="causal", window=window), want)
        np.testing.assert_array_equal(self.attend(mask="causal", window=(3, None)), want)
        for window in (16, (1, 2, 3), "3:0", np.array([3, 0])):
            self.refused(r"window is .*; must be a pair \(left, right\)", window=window)
        for window in ((1.5, 0), (True, 0), ("1", 0)):
            self.refused("window is .*; must be a whole number", window=window)

    def test_other_words(self):
        self.refused("scale_block is 'x'; must be a whole number", scale_block="x")
        self.refused(r"scale_block is \(1, 2, 3\); must be a number or a pair", scale_block=(1, 2, 3))
        self.refused("v_layout is 'columns'; must be 'rows' or 'transposed'", v_layout="columns")
        self.refused("context is of type int; must be an attune.Context, a target", TypeError, context=4)
        with self.assertRaisesRegex(ValueError, "problem is .*; must be a text such as"):
            attune.Context("cpu", store="").plan("dtype=fp32,head_dim=64,heads=4,seqlen=8\0,mask=none")
        with self.assertRaisesRegex(ValueError, "target is 3; must be auto"):
            attune.Context(3)

    def test_shapes_say_which_dimension_is_which(self):
        with self.assertRaisesRegex(
                ValueError,
                r"q has 3 dimensions, shape \(9, 2, 16\); must be 4: \[batch, seqlen, num_heads, head_dim\]"):
            attune.attention(self.q[0], self.k, self.v)
        turned = [x.transpose(0, 2, 1, 3).copy() for x in (draw(1, 5, 4, 16), draw(1, 9, 2, 16), draw(1, 9, 2, 16))]
        with self.assertRaisesRegex(ValueError, r"For \[batch, num_heads, seqlen, head_dim\] give x.transpose\(1, 2\)"):
            attune.attention(*turned)
        with self.assertRaisesRegex(ValueError, "v has shape .* and k"):
            attune.attention(self.q, self.k, self.v[:, 1:])
        with self.assertRaisesRegex(ValueError, "batch and head_dim must be equal"):
            attune.attention(self.q, draw(1, 9, 2, 32), self.v)
        self.assertEqual(attune.attention(self.q[:, :0], self.k, self.v).shape, (1, 0, 2, 16))
        o, lse = attune.attention(self.q, self.k[:, :0], self.v[:, :0], return_lse=True)
        self.assertTrue((o == 0).all() and np.isneginf(lse).all())

    def test_out_of_its_own_memory(self):
        packed = draw(2, 9, 6, 16)
        q, k, v = packed[:, :, :2], packed[:, :, 2:4], packed[:, :, 4:]
        want = attune.attention(q, k, v)
        for out in (k, v, packed[:, :, 1:3], packed.reshape(-1)[:q.size].reshape(q.shape)):
            with self.assertRaisesRegex(ValueError, "out and [qkv] overlap in memory"):
                attune.attention(q, k, v, out=out)
        np.testing.assert_array_equal(attune.attention(q, k, v, out=q),
                                      want)  # in the very place of q; k and v lie between
        np.testing.assert_array_equal(packed[:, :, :2], want)
        wide = draw(2, 9, 12, 16)
        given = wide[:, :, :4], wide[:, :, 4:6], wide[:, :, 10:]
        want = attune.attention(*given)
        np.testing.assert_array_equal(attune.attention(*given, out=wide[:, :, 6:10]), want)  # between k and v
        plan, o = attune.Context("cpu", store="").plan("dtype=fp32,head_dim=16,heads=2,batch=2,seqlen=9"), np.empty(
            (2, 9, 2, 16), np.float32)
        with self.assertRaisesRegex(ValueError, "lse and o overlap in memory"):
            plan.run(q, k, v, o, o.reshape(-1)[:36].reshape(2, 2, 9))

    def test_contexts_are_chosen(self):
        np.testing.assert_allclose(self.attend(context="cpu:1"), self.attend(), atol=1e-6)
        with self.subTest("a context that may not compile, and has no kernel"):
            self.refused("no_jit|compile", attune.Error, context=attune.Context("cpu", store="", no_jit=True))
        with self.assertRaises(attune.Error) as caught:
            attune.quantise(self.q, context=attune.Context("cpu", store="", policy="strict"))
        self.assertEqual(caught.exception.status, "not_tuned")

    def test_help_and_repr(self):
        self.assertEqual(attune.__version__, attune.version())
        for words in ("[batch, seqlen_q, num_heads_q, head_dim]", "causal_top_left", "8-bit", "context", "16 bytes"):
            self.assertIn(words, inspect.getdoc(attune.attention))
        self.assertEqual(list(inspect.signature(attune.attention).parameters)[:4], ["q", "k", "v", "mask"])
        context = attune.Context("cpu", store="")
        self.assertRegex(repr(context), r"<attune.Context 'cpu': cpu:\w+ ")
        plan = attune.prepare(attune.attention, self.q, self.k, self.v, mask="causal", context=context)
        self.assertRegex(
            repr(plan),
            r"<attune.Plan for dtype=fp32,.*mask=causal_bottom_right on cpu: prefill_cpu .*, default_config>")
        self.assertIs(attune.prepare(attune.attention, self.q, self.k, self.v, mask="causal", context=context), plan)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""  # nothing of the user's is read or written
    try:
        attune.Context("cpu")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    unittest.main()
