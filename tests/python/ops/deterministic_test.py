#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests for gradients with equal bits in every run: `deterministic` by direct calls,
torch.use_deterministic_algorithms(), FlashAttention's argument. Each must reach the problem that the backward plans,
and no plan may serve both kinds. Arguments: cuda. Skips aloud (status 77) without PyTorch, the CPU target or, with
cuda, a GPU."""
import contextlib
import itertools
import unittest
import unittest.mock

import gradient_cases
import torch
from gradient_cases import DEVICE, PLACE, SLOPES, draw, leaf

import attune
import attune.flash
import attune.flex
import attune.sdpa
import attune.torch
from attune.ops.context import Context

_lengths = itertools.count(17)  # new lengths need new plans


@contextlib.contextmanager
def told(value, **how):
    """Sets torch.use_deterministic_algorithms(value) in a scope."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(value, **how)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


@contextlib.contextmanager
def planned():
    """Returns a scope that collects the texts of gradient problems planned in it."""
    texts, plan = [], Context.plan_with_strides

    def spy(self, problem, *arguments, **keywords):
        if problem.startswith("op=attention_backward"):
            texts.append(problem)
        return plan(self, problem, *arguments, **keywords)

    with unittest.mock.patch.object(Context, "plan_with_strides", spy):
        yield texts


class DeterministicTest(unittest.TestCase):
    def assertAsked(self, texts, asked, count=1):
        self.assertEqual(len(texts), count, texts)
        for text in texts:
            self.assertEqual(",deterministic=1" in text, asked, text)

    def operands(self, head_dim=32):
        rows = next(_lengths)
        return [leaf(draw(1, rows, 2, head_dim)) for _ in "qkv"]

    def test_by_hand(self):
        for asked, flag, want in ((True, False, True), (False, False, False), (None, False, False), (True, True, True),
                                  (False, True, False), (None, True, True)):
            q, k, v = (x.detach() for x in self.operands())
            o, lse = attune.attention(q, k, v, return_lse=True, bias=draw(1, 2, 1, k.shape[1]), **PLACE)
            with self.subTest(asked=asked, flag=flag), told(flag), planned() as texts:
                attune.attention_backward(o, q, k, v, o, lse, deterministic=asked, bias=draw(1, 2, 1, k.shape[1]),
                                          **PLACE)
                attune.score_gradient("bias", o, q, k, v, o, lse, deterministic=asked, bias=draw(1, 2, 1, k.shape[1]),
                                      **PLACE)
                attune.score_gradient("slopes", o, q, k, v, o, lse, deterministic=asked, score_mod=attune.score_mod(
                    "return score - slopes[head];", slopes=SLOPES), **PLACE)
                self.assertAsked(texts, want, 3)
        q, k, v = (x.detach() for x in self.operands())
        o, lse = attune.attention(q, k, v, return_lse=True, **PLACE)
        with told(True, warn_only=True), planned() as texts:
            attune.attention_backward(o, q, k, v, o, lse, **PLACE)
            self.assertAsked(texts, True)

    def test_head_dims_between(self):
        q, k, v = (x.detach() for x in self.operands(head_dim=35))
        o, lse = attune.attention(q, k, v, return_lse=True, pad_head_dim=True, **PLACE)
        with planned() as texts:
            attune.attention_backward(o, q, k, v, o, lse, pad_head_dim=True, deterministic=True, **PLACE)
            self.assertAsked(texts, True)

    def calls(self):
        """Yields (name, call) of attention that autograd records, on [batch, rows, heads, head_dim]."""
        turned = lambda call: lambda q, k, v: call(*(x.transpose(1, 2) for x in (q, k, v)))
        yield "attention", lambda q, k, v: attune.attention(q, k, v, **PLACE)
        yield "by the op", lambda q, k, v: torch.ops.attune.attention(q, k, v)[0]
        yield "padded", lambda q, k, v: attune.attention(*(x[..., :29] for x in (q, k, v)), pad_head_dim=True, **PLACE)
        yield "sdpa", turned(attune.sdpa.scaled_dot_product_attention)
        yield "flex", turned(attune.flex.flex_attention)
        yield "flash", attune.flash.flash_attn_func

    def test_the_setting_at_the_backward_counts(self):
        for name, call in self.calls():
            for forward, backward in ((False, True), (True, False)):
                operands = self.operands()
                with told(forward):
                    o = call(*operands)
                with self.subTest(name, backward=backward), told(backward), planned() as texts:
                    torch.autograd.grad(o, operands, torch.ones_like(o))
                    self.assertAsked(texts, backward)

    def test_gradients_of_what_is_learned(self):
        operands = self.operands()
        bias = leaf(draw(1, 2, 1, operands[0].shape[1]))
        with told(True), planned() as texts:
            torch.autograd.grad(attune.attention(*operands, bias=bias, **PLACE).sum(), (*operands, bias))
            self.assertAsked(texts, True, 2)

    def test_the_forwards_argument_reaches_its_backward(self):
        flash = attune.flash
        ends = lambda q: torch.tensor([0, q.shape[1]], dtype=torch.int32, device=DEVICE)
        calls = {
            "attention": lambda q, k, v, asked: attune.attention(q, k, v, deterministic=asked, **PLACE),
            "padded": lambda q, k, v, asked: attune.attention(*(x[..., :29] for x in (q, k, v)), pad_head_dim=True,
                                                              deterministic=asked, **PLACE),
            "the op": lambda q, k, v, asked: torch.ops.attune.attention(q, k, v, spec=attune.torch.spec(deterministic=
                                                                                                        asked))[0],
            "flash": lambda q, k, v, asked: flash.flash_attn_func(q, k, v, deterministic=asked),
            "flash, packed": lambda q, k, v, asked: flash.flash_attn_kvpacked_func(q, torch.stack(
                (k, v), 2), deterministic=asked),
            "flash, end to end": lambda q, k, v, asked: flash.flash_attn_varlen_func(
                *(x[0] for x in (q, k, v)), ends(q), ends(q), q.shape[1], q.shape[1], deterministic=asked), }
        for name, call in calls.items():
            for asked in (True, False):
                operands = self.operands()
                with self.subTest(name, asked=asked), planned() as texts:
                    torch.autograd.grad(call(*operands, asked).sum(), operands)
                    self.assertAsked(texts, asked)
            of_flash = name.startswith("flash")  # False is FlashAttention's default, so it requests nothing
            operands = self.operands()
            with self.subTest(name, under="flag"), told(True), planned() as texts:
                torch.autograd.grad(call(*operands, False).sum(), operands)
                self.assertAsked(texts, of_flash)

    def test_known_calls_are_not_mixed(self):
        for name, call in self.calls():
            operands = self.operands()
            run = lambda: [torch.autograd.grad(o, operands, torch.ones_like(o)) for o in [call(*operands)]][0]
            with self.subTest(name), planned() as texts:
                plain = [run() for _ in range(3)]
                self.assertAsked(texts, False)
                with told(True):
                    asked = [run() for _ in range(3)]
                self.assertAsked(texts[1:], True)
                plain.append(run())
                self.assertEqual(len(texts), 2, texts)
                for other in (*plain[1:], *asked):
                    self.assertTrue(all(torch.allclose(x, y, atol=1e-6) for x, y in zip(other, plain[0])))
                for other in asked[1:]:
                    self.assertTrue(all(torch.equal(x, y) for x, y in zip(other, asked[0])))

    @unittest.skipUnless(DEVICE == "cuda", "of kernels whose blocks fill a GPU")
    def test_bits_of_many_blocks(self):
        """Runs dq, dk and dv, together and alone, of every form of the kernels, again and again. No copy may overwrite
        data that a step still reads."""
        for head_dim, gradients in itertools.product((64, 96, 128, 192, 256), ("qkv", "k", "v", "q")):
            torch.manual_seed(1)
            q, k, v, dout = (torch.randn(8, 1024, 8, head_dim, device=DEVICE, dtype=torch.bfloat16) for _ in range(4))
            o, lse = attune.attention(q, k, v, return_lse=True, **PLACE)
            run = lambda: attune.attention_backward(dout, q, k, v, o, lse, gradients=gradients, deterministic=True, **
                                                    PLACE)
            first, *others = ([x for x in run() if x is not None] for _ in range(12))
            for other in others:
                for x, y in zip(first, other):
                    self.assertTrue(
                        torch.equal(x, y),
                        f"head dim {head_dim}, gradients {gradients}: {int((x != y).sum())} of {x.numel()} differ")

    def test_refuses_values_other_than_bools(self):
        q, k, v = (x.detach() for x in self.operands())
        o, lse = attune.attention(q, k, v, return_lse=True, **PLACE)
        for call in (lambda: attune.attention(q, k, v, deterministic=1, **PLACE),
                     lambda: attune.attention_backward(o, q, k, v, o, lse, deterministic=1, **PLACE),
                     lambda: attune.torch.spec(deterministic=1)):
            with self.assertRaisesRegex(TypeError, "deterministic is 1; must be True, False or None"):
                call()
        self.assertEqual((attune.torch.spec(deterministic=True), attune.torch.spec(deterministic=False)),
                         ("deterministic=1", "deterministic=0"))


if __name__ == "__main__":
    gradient_cases.main()
