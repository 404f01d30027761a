#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.jit.trace keeps attune's calls as ops, also after an equal call became known. Functions without an op raise an
error that says so.

    jit_trace_test.py

Skips aloud (status 77) without PyTorch or the CPU target."""
import unittest
import warnings

from skips import run, torch
from serving_graphs_test import Module

import attune
import attune.flash
import attune.flex
import attune.sdpa

SCORE = attune.score_mod(lambda score, b, h, q_idx, kv_idx: score * 2 + h)


def operands(rows=8):
    torch.manual_seed(rows)
    return [torch.randn(1, rows, 4, 32) for _ in "qkv"]


def heads_first(*tensors):
    return [x.transpose(1, 2) for x in tensors]


def merged(q, k, v):
    return attune.merge(*attune.attention(q, k, v, return_lse=True), *attune.attention(q, k * 2, v, return_lse=True))[0]


FUNCTIONS = {
    "attention": lambda q, k, v: attune.attention(q, k, v, is_causal=True),
    "lse": lambda q, k, v: attune.attention(q, k, v, return_lse=True, softcap=3.0)[1],
    "out": lambda q, k, v: attune.attention(q, k, v, out=torch.empty_like(q)),
    "narrow heads": lambda q, k, v: attune.attention(q[..., :20], k[..., :20], v[..., :20], pad_head_dim=True),
    "quantise": lambda q, k, v: attune.quantise(q)[1],
    "merge": merged,
    "sdpa": lambda q, k, v: attune.sdpa.scaled_dot_product_attention(*heads_first(q, k, v), is_causal=True),
    "flash": lambda q, k, v: attune.flash.flash_attn_func(q, k, v, causal=True),
    "flex": lambda q, k, v: attune.flex.flex_attention(*heads_first(q, k, v), SCORE),
}


def traced(function, *given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about constant shapes, and about torch.jit itself
        return torch.jit.trace(Module(function), given, check_trace=False)


class JitTraceTest(unittest.TestCase):
    def same(self, function, calls_before):
        given = operands()
        for _ in range(calls_before):
            function(*given)
        call = traced(function, *given)
        self.assertIn("attune::", str(call.inlined_graph))
        for rows in (8, 11):
            with torch.no_grad():
                self.assertTrue(torch.equal(call(*operands(rows)), function(*operands(rows))))

    def test_calls_are_ops_of_the_trace(self):
        for name, function in FUNCTIONS.items():
            for calls_before in (0, 3):
                with self.subTest(name, calls_before=calls_before):
                    self.same(function, calls_before)

    def test_a_call_while_tracing_is_not_kept_as_known(self):
        seen = []
        function = lambda q, k, v: seen.append(attune.attention(q, k, v, window=(3, 0))) or seen[-1]  # noqa: E731
        given = operands(9)
        traced(function, *given)
        self.assertTrue(torch.equal(function(*given), attune.attention(*given, window=(3, 0))))

    def test_functions_without_an_op_are_refused(self):
        q, k, v = operands()
        plan = attune.Context("cpu", store="").plan("dtype=fp32,head_dim=32,heads=4,batch=1,seqlen=8")
        by_plan = lambda q, k, v, o: plan.run(q, k, v, o) or o  # noqa: E731
        with_map = lambda q, k, v: attune.block_map.build(q, k, key_lengths=torch.tensor([5], dtype=torch.int32)
                                                          ).granules  # noqa: E731
        for _ in range(3):
            by_plan(q, k, v, torch.empty_like(q))
        for name, function, given in (("Plan.run", by_plan, (q, k, v, torch.empty_like(q))), ("block_map.build",
                                                                                              with_map, (q, k, v))):
            with self.assertRaisesRegex(ValueError,
                                        rf"{name}\(\) is called while torch.jit.trace records, and has no op"):
                traced(function, *given)
            with self.assertRaisesRegex(ValueError, rf"{name}\(\) is called while make_fx records, and has no op"):
                torch.fx.experimental.proxy_tensor.make_fx(function)(*given)


if __name__ == "__main__":
    run()
