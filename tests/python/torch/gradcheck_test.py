#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.autograd.gradcheck on attention(): each gradient of o and lse against differences of the forward's results,
element by element. Kernels have no float64; steps of 1e-2 in fp32 leave errors below 1e-3. (gradient_oracle_test.cpp
compares the float64 gradients with differences.)

    gradcheck_test.py [cuda] [whole]     whole: larger cases

Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a GPU."""
import warnings

import gradient_cases
import torch
from gradient_cases import DEVICE, PLACE, WHOLE, GradientsTest, draw, leaf

import attune

BATCH, ROWS, KEYS, HEADS, DIM = (2, 7, 9, 4, 32) if WHOLE else (1, 3, 4, 2, 16)
STEP = dict(eps=1e-2, atol=2e-3, rtol=2e-2, nondet_tol=0.0)


def operands():
    return [
        leaf(draw(BATCH, extent, heads, DIM))
        for extent, heads in ((ROWS, HEADS), (KEYS, HEADS // 2), (KEYS, HEADS // 2))]


def small(*shape):
    return leaf(0.3 + 0.2 * draw(*shape).abs())


# By name: fixed keywords, and learned keywords with the shape of their tensor.
CASES = {
    "plain": ({}, {}),
    "causal": ({"mask": "causal_bottom_right"}, {}),
    "softcap": ({"softcap": 2.0}, {}),
    "dropout": ({"dropout_p": 0.25, "seed": 3}, {}),
    "key lengths": ({"key_lengths": torch.full((BATCH, ), KEYS - 1, dtype=torch.int32, device=DEVICE)}, {}),
    "biases": ({"mask": "causal_bottom_right"}, {
        "bias": (HEADS, ROWS, KEYS), "relative_bias": (HEADS, ROWS + KEYS - 1)}),
    "slopes and sinks": ({}, {"alibi_slopes": (BATCH, HEADS), "sinks": (HEADS, )}), }
if WHOLE:
    CASES.update({
        "top left": ({"mask": "causal_top_left"}, {}), "window": ({"window": (1, 1)}, {}), "one row for all": ({}, {
            "bias": (1, KEYS)})})


class GradcheckTest(GradientsTest):
    def check(self, function, inputs, name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gradcheck warns that inputs are not float64
            self.assertTrue(torch.autograd.gradcheck(function, inputs, **STEP), name)

    def test_attention(self):
        for name, (fixed, shapes) in CASES.items():
            learned = {keyword: small(*shape) for keyword, shape in shapes.items()}

            def function(q, k, v, *tensors, fixed=fixed, names=tuple(learned)):
                return attune.attention(q, k, v, return_lse=True, **fixed, **dict(zip(names, tensors)), **PLACE)

            self.check(function, (*operands(), *learned.values()), name)

    def test_tensors_that_a_score_mod_reads(self):
        def function(q, k, v, scale, table, keys):
            mod = lambda s, b, h, i, j: torch.tanh(s * scale[h]) + table[h, i - j + KEYS] * keys[j]
            return attune.attention(q, k, v, score_mod=mod, return_lse=True, **PLACE)
        self.check(function, (*operands(), small(HEADS), small(HEADS, ROWS + KEYS), small(KEYS)), "score_mod")


if __name__ == "__main__":
    gradient_cases.main()
