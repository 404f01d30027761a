#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dropout in PyTorch: the kept elements against attune.dropout_mask(), gradients against autograd in float64 with that
mask, and equal masks in forward, backward, recomputation and compiled graphs. dropout_test.py covers NumPy.

    dropout_torch_test.py [cuda] [whole]     whole: inductor and more features

Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a GPU."""
import unittest

import gradient_cases
import torch
from gradient_cases import ALLOWED, BIAS, DEVICE, PLACE, SLOPES, WHOLE, GradientsTest, draw, leaf
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

import attune
import attune.flash
import attune.sdpa
import attune.torch

P = 0.3


def formula(q, k, v, keep, dropout_p, bias=0.0, hidden=None):
    """Returns, in float64, softmax(q k^T / sqrt(head_dim) + bias) with dropped weights, times v. keep: bool [batch,
    num_heads_q, seqlen_q, seqlen_kv]."""
    repeats = q.shape[2] // k.shape[2]
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(repeats, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5 + bias
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    weights = scores.softmax(3) * keep / (1 - attune.dropout_rate(dropout_p))
    return (weights @ v).transpose(1, 2)


def inputs(dtype=torch.float32, rows=33, keys=40, heads=(4, 2)):
    return [
        leaf(draw(2, length, of, 32, dtype=dtype))
        for length, of in ((rows, heads[0]), (keys, heads[1]), (keys, heads[1]))]


def shown():
    """Returns q, k and v that make masks visible: all scores are 0 and v has rows of an identity, so o holds the
    dropped weights. If they are square and dout is an identity, dv is the transpose of o."""
    eye = torch.eye(32, device=DEVICE).view(1, 32, 1, 32).repeat(2, 1, 3, 1)
    return leaf(torch.zeros_like(eye)), leaf(torch.zeros_like(eye)), leaf(eye), eye


def masks_of(function):
    """Returns the elements that a call keeps, in forward and backward: [batch, num_heads, seqlen_q, seqlen_kv]."""
    q, k, v, eye = shown()
    o = function(q, k, v)
    dv, = torch.autograd.grad(o, v, eye)
    return o.detach().permute(0, 2, 1, 3) > 0, dv.permute(0, 2, 3, 1) > 0


def attend(q, k, v):
    return attune.attention(q, k, v, dropout_p=P)


class MaskTest(GradientsTest):
    def test_seed_and_offset_choose_the_mask(self):
        given = [x.detach() for x in inputs()]
        run = lambda *seeds: attune.attention(*given, dropout_p=P, seed=seeds[0], offset=seeds[1], **PLACE)
        first = run(5, 7)
        self.assertTrue(torch.equal(first, run(5, 7)))
        for seeds in ((6, 7), (5, 8), (5 + 2**40, 7), (-5, 7), (5, 2**63)):
            self.assertFalse(torch.equal(first, run(*seeds)), seeds)
            keep = attune.dropout_mask((2, 4, 33, 40), P, *seeds, like=given[0])
            self.assertEqual((keep.dtype, keep.device.type), (torch.bool, DEVICE))
            self.assertTrue(torch.allclose(run(*seeds).double(), formula(*given, keep, P), atol=1e-5), seeds)
        self.assertTrue(torch.equal(run(-5, 7), run(2**64 - 5, 7)))
        whole = attune.attention(*given, **PLACE)
        self.assertTrue(torch.equal(whole, attune.attention(*given, dropout_p=0.0, seed=3, **PLACE)))
        self.assertTrue(
            torch.equal(*(attune.attention(*given, return_lse=True, dropout_p=p, seed=3, **PLACE)[1]
                          for p in (0.0, 0.5))))

    def test_tensors_are_read_when_the_kernel_runs(self):
        given = [x.detach() for x in inputs()]
        seed, offset = torch.tensor([5, 6], device=DEVICE)[1:], torch.tensor(2**40, device=DEVICE)
        run = lambda seed, offset: attune.attention(*given, dropout_p=P, seed=seed, offset=offset, **PLACE)
        self.assertTrue(torch.equal(run(seed, offset), run(6, 2**40)))
        seed.add_(3)
        self.assertTrue(torch.equal(run(seed, 1), run(9, 1)))

    def test_forward_and_backward_keep_the_same(self):
        for function in (attend, lambda q, k, v: attune.attention(q, k, v, dropout_p=P, seed=11)):
            forward, backward = masks_of(function)
            self.assertTrue(torch.equal(forward, backward))
            self.assertLess(abs(forward.float().mean().item() - 0.7), 0.05)
        self.assertTrue(torch.equal(forward, attune.dropout_mask((2, 3, 32, 32), P, 11, like=forward)))

    def test_the_generator_draws_once_a_call(self):
        torch.manual_seed(1)
        first, second = masks_of(attend)[0], masks_of(attend)[0]
        self.assertFalse(torch.equal(first, second))
        torch.manual_seed(1)
        self.assertTrue(torch.equal(first, masks_of(attend)[0]))
        with torch.no_grad():
            q, k, v, _ = shown()
            self.assertTrue(torch.equal(second, attend(q, k, v).permute(0, 2, 1, 3) > 0))
        state_of = torch.cuda.get_rng_state if DEVICE == "cuda" else torch.get_rng_state
        state = state_of()
        attune.attention(q, k, v, dropout_p=P, seed=1)
        attune.attention(q, k, v, dropout_p=0.0)
        self.assertTrue(torch.equal(state, state_of()))
        attune.attention(q, k, v, dropout_p=P)
        self.assertFalse(torch.equal(state, state_of()))

    @unittest.skipUnless(DEVICE == "cuda", "graphs are of GPUs")
    def test_captured_graphs(self):
        given = [x.detach() for x in inputs(torch.bfloat16)]
        seed = torch.tensor(5, device=DEVICE)
        run = lambda seed: attune.attention(*given, dropout_p=P, seed=seed)
        attune.prepare(attune.attention, *given, dropout_p=P)
        numbers, drawn = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(numbers):
            o = run(seed)
        with torch.cuda.graph(drawn):
            of_drawn = run(None)
        seen = []
        for number in (5, 6):
            seed.fill_(number)
            numbers.replay()
            self.assertTrue(torch.equal(o, run(number)), number)
            drawn.replay()
            seen.append(of_drawn.clone())
        self.assertFalse(torch.equal(*seen))


class DropoutGradientsTest(GradientsTest):
    def one(self, dtype, keywords, **of_formula):
        q, k, v = inputs(dtype)
        keep = attune.dropout_mask((2, 4, 33, 40), P, 5, 7, like=q)
        wanted_leaves = [leaf(x) for x in (q, k, v)]
        want = formula(*wanted_leaves, keep, P, **of_formula)
        dout = draw(*want.shape, dtype=dtype)
        wanted = torch.autograd.grad(want, wanted_leaves, dout.double())
        given = dict(dropout_p=P, seed=5, offset=7, **keywords, **PLACE)
        o = attune.attention(q, k, v, **given)
        self.assertNear([o], [want], ALLOWED[dtype], f"o {keywords}")
        self.assertNear(torch.autograd.grad(o, (q, k, v), dout), wanted, 2 * ALLOWED[dtype], str(keywords))
        q, k, v = (x.detach() for x in (q, k, v))
        o, lse = attune.attention(q, k, v, return_lse=True, **given)
        self.assertNear(attune.attention_backward(dout, q, k, v, o, lse, **given), wanted, 2 * ALLOWED[dtype],
                        f"by hand {keywords}")

    def test_gradients(self):
        hidden = torch.ones(33, 40, device=DEVICE).triu(8).bool()
        for dtype in (torch.float32, torch.bfloat16):
            self.one(dtype, {})
            self.one(dtype, {"mask": "causal_bottom_right"}, hidden=hidden)
        self.one(torch.float32, {"bias": BIAS}, bias=BIAS.double())
        if WHOLE:
            distance = (torch.arange(33, device=DEVICE)[:, None] + 7 - torch.arange(40, device=DEVICE)).abs()
            self.one(torch.float32, {"alibi_slopes": SLOPES}, bias=-SLOPES[:, None, None].double() * distance)
            self.one(torch.float16, {"mask_tensor": ~hidden}, hidden=hidden)

    def test_head_dims_between(self):
        q, k, v = (leaf(draw(2, 20, 2, 27)) for _ in range(3))
        keep = attune.dropout_mask((2, 2, 20, 20), P, 5, like=q)
        o = attune.attention(q, k, v, dropout_p=P, seed=5, pad_head_dim=True, **PLACE)
        want = formula(q, k, v, keep, P)
        dout = draw(*o.shape)
        self.assertNear(torch.autograd.grad(o, (q, k, v), dout), torch.autograd.grad(want, (q, k, v), dout.double()),
                        1e-4)

    def test_a_graph_that_is_kept_gives_the_same_twice(self):
        q, k, v = inputs()
        o = attend(q, k, v)
        dout = draw(*o.shape)
        first, second = (torch.autograd.grad(o, (q, k, v), dout, retain_graph=True) for _ in range(2))
        for x, y in zip(first, second):
            self.assertTrue(torch.equal(x, y))


class RecomputeTest(GradientsTest):
    def test_checkpoint(self):
        given = inputs()
        loss = lambda q, k, v: attend(q * 2, k, v).square().sum()
        torch.manual_seed(3)
        wanted = torch.autograd.grad(loss(*given), given)
        for use_reentrant in (False, True):
            torch.manual_seed(3)
            for x in given:
                x.grad = None
            checkpoint(loss, *given, use_reentrant=use_reentrant).backward()
            for x, want in zip(given, wanted):
                self.assertTrue(torch.equal(x.grad, want))

    def test_compiled_functions(self):
        for backend in ("aot_eager", "inductor") if WHOLE else ("aot_eager",):
            torch._dynamo.reset()
            compiled = torch.compile(attend, fullgraph=True, backend=backend)
            torch.manual_seed(2)
            masks = [masks_of(compiled) for _ in range(3)]
            for forward, backward in masks:
                self.assertTrue(torch.equal(forward, backward), backend)
                self.assertLess(abs(forward.float().mean().item() - 0.7), 0.05)
            self.assertFalse(torch.equal(masks[0][0], masks[1][0]), backend)
            torch.manual_seed(2)
            self.assertTrue(torch.equal(masks[0][0], masks_of(compiled)[0]), backend)
            if backend == "aot_eager":
                torch.manual_seed(2)
                self.assertTrue(torch.equal(masks[0][0], masks_of(attend)[0]))

    def test_compiled_checkpoint(self):
        torch._dynamo.reset()
        run = torch.compile(
            lambda q, k, v: checkpoint(lambda q, k, v: attend(q * 1, k, v), q, k, v, use_reentrant=False),
            fullgraph=True, backend="aot_eager")
        forward, backward = masks_of(run)
        self.assertTrue(torch.equal(forward, backward))

    def test_seeds_of_compiled_functions(self):
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda q, k, v, seed, offset: attune.attention(q, k, v, dropout_p=P, seed=seed, offset=offset),
            fullgraph=True, backend="aot_eager")
        for seed, offset in ((3, 0), (4, 0), (5, 9), (2**63, 2**64 - 1), (-2**63, 2**63 - 1), (torch.tensor(
                8, device=DEVICE), 2), (torch.tensor(8, device=DEVICE), torch.tensor(9, device=DEVICE))):
            forward, backward = masks_of(lambda q, k, v: compiled(q, k, v, seed, offset))
            self.assertTrue(torch.equal(forward, attune.dropout_mask((2, 3, 32, 32), P, seed, offset, like=forward)))
            self.assertTrue(torch.equal(forward, backward))
        with self.assertRaisesRegex(Exception, f"seed is {2**64}; must be a whole number of 64 bits"):
            compiled(*inputs(), 2**64, 0)

    def test_fake_tensors_and_opcheck(self):
        q, k, v = inputs()
        plain = [x.detach() for x in (q, k, v)]
        with FakeTensorMode() as mode:
            fake = attend(*map(mode.from_tensor, plain))
        self.assertEqual(fake.shape, (2, 33, 4, 32))
        spec = attune.torch.spec(dropout_p=P, context=PLACE.get("context"))
        tests = ("test_schema", "test_autograd_registration", "test_faketensor") + (
            ("test_aot_dispatch_dynamic", ) if WHOLE else ())
        for seeds in ({"seed": 4, "offset": 1}, {"seed_tensor": torch.tensor(4, device=DEVICE)}):
            torch.library.opcheck(torch.ops.attune.attention.default, (q, k, v), {"spec": spec, **seeds},
                                  test_utils=tests)


class SignaturesTest(GradientsTest):
    def test_sdpa_and_flash(self):
        functions = {
            "sdpa": lambda q, k, v: attune.sdpa.scaled_dot_product_attention(*(x.transpose(1, 2) for x in
                                                                               (q, k, v)), dropout_p=P).transpose(1, 2),
            "flash": lambda q, k, v: attune.flash.flash_attn_func(q, k, v, dropout_p=P),
            "packed": lambda q, k, v: attune.flash.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), P)}
        for name, function in functions.items():
            with self.subTest(name):
                torch.manual_seed(4)
                forward, backward = masks_of(function)
                torch.manual_seed(4)
                self.assertTrue(torch.equal(forward, masks_of(attend)[0]))
                self.assertTrue(torch.equal(forward, backward))

    def test_refusals(self):
        q, k, v = (x.detach() for x in inputs())
        for keywords, error, sentence in (({
                "dropout_p": 1.0}, ValueError, "dropout_p is 1.0; must be in \[0, 1\)"), ({
                    "dropout_p": -0.1
                }, ValueError, "dropout_p is -0.1"), ({"dropout_p": "0.1"}, ValueError, "dropout_p is '0.1'"), ({
                    "dropout_p": P, "seed": 0.5}, ValueError, "seed is 0.5; must be a whole number"), ({
                        "dropout_p": P, "seed": 2**64
                    }, ValueError, "seed is 18446744073709551616; must be a whole number of 64 bits"), ({
                        "dropout_p": P, "seed": torch.zeros(
                            2, dtype=torch.int64, device=DEVICE)}, ValueError, r"seed is int64 of shape \(2,\)"), ({
                                "dropout_p": P, "seed": 1, "offset": torch.zeros(
                                    (), device=DEVICE)}, ValueError, r"offset is fp32 of shape \(\)")):
            with self.assertRaisesRegex(error, sentence):
                attune.attention(q, k, v, **keywords)
        o, lse = attune.attention(q, k, v, return_lse=True)
        with self.assertRaisesRegex(ValueError, "seed is missing; with dropout_p it must be"):
            attune.attention_backward(o, q, k, v, o, lse, dropout_p=P)
        spec = attune.torch.spec(dropout_p=P)
        with self.assertRaisesRegex(ValueError, "seed is missing and the spec has dropout_p"):
            torch.ops.attune.attention(q, k, v, spec=spec)
        with self.assertRaisesRegex(ValueError, "seed and seed_tensor are given"):
            torch.ops.attune.attention(q, k, v, spec=spec, seed=1, seed_tensor=torch.tensor(1, device=DEVICE))


if __name__ == "__main__":
    gradient_cases.main()
