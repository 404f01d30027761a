#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of biases, tables of distances, ALiBi's slopes and sinks, by PyTorch's autograd and by direct calls,
against autograd in float64.

    score_gradient_test.py [cuda] [whole]     whole: every dtype

Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a GPU."""
import gradient_cases
import published_grids as grids
import torch
from gradient_cases import DEVICE, PLACE, WHOLE, GradientsTest, draw, leaf

import attune
import attune.sdpa
import attune.torch

ROWS, KEYS, HEADS = 33, 40, 4
SEEN = grids.visible(ROWS, KEYS, "bottom_right", device=DEVICE)
I, J = torch.arange(ROWS, device=DEVICE)[:, None], torch.arange(KEYS, device=DEVICE)[None]
DISTANCE = (I + KEYS - ROWS - J).abs()
# A slope's gradient sums terms of both signs times the distance, so rounding o to 16 bits matters more.
ALLOWED = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
ALLOWED_OF_SLOPES = {torch.float32: 1e-4, torch.bfloat16: 0.15}
SHAPES = {
    "bias": ((2, 4, 33, 40), (4, 33, 40), (2, 1, 33, 40), (1, 1, 33, 40), (33, 40), (2, 4, 1, 40), (2, 1, 1, 40),
             (40, )), "relative_bias": ((4, 72), (1, 72), (72, )), "alibi_slopes": ((2, 4), (4, ), (2, 1), (1, )),
    "sinks": ((4, ), (1, ))}


def reference(q, k, v, bias=None, relative_bias=None, alibi_slopes=None, sinks=None):
    """In float64: causal_bottom_right, sinks as a column of scores."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) / q.shape[3] ** 0.5
    if bias is not None:
        scores = scores + bias
    if relative_bias is not None:
        scores = scores + relative_bias[..., J - I + ROWS - 1]
    if alibi_slopes is not None:
        scores = scores - alibi_slopes[..., None, None] * DISTANCE
    scores = scores.masked_fill(~SEEN, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.expand(HEADS).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    weights = scores.softmax(-1)[..., :KEYS]
    lse = scores.logsumexp(-1)
    return (weights @ v.repeat_interleave(group, 1)).transpose(1, 2), lse


def operands(dtype=torch.float32, dim=32):
    return draw(2, ROWS, HEADS, dim, dtype=dtype), draw(2, KEYS, 2, dim, dtype=dtype), draw(
        2, KEYS, 2, dim, dtype=dtype)


def learned(name, shape, dtype):
    made = draw(*shape)
    return leaf(made.abs() if name == "alibi_slopes" else made.to(dtype))


class ScoreGradientTest(GradientsTest):
    def check(self, found, want, allowed, what):
        error = (found.double() - want).norm() / want.norm().clamp_min(1e-6)
        self.assertLess(error.item(), allowed, what)

    def one(self, dtype, dim, with_dlse, **given):
        q, k, v = operands(dtype, dim)
        o, lse = attune.attention(q, k, v, mask="causal_bottom_right", return_lse=True, pad_head_dim=True, **given,
                                  **PLACE)
        dout, dlse = draw(*o.shape, dtype=dtype), draw(*lse.shape)
        doubled = {name: leaf(x.double()) for name, x in given.items()}
        want_o, want_lse = reference(q, k, v, **doubled)
        outputs, douts, want = [o], [dout], (want_o * dout).sum()
        if with_dlse:
            outputs, douts, want = outputs + [lse], douts + [dlse], want + (want_lse * dlse).sum()
        found = torch.autograd.grad(outputs, list(given.values()), douts)
        for (name, x), gradient, wanted in zip(given.items(), found, torch.autograd.grad(want, list(doubled.values()))):
            self.assertEqual((gradient.shape, gradient.dtype), (x.shape, x.dtype))
            allowed = ALLOWED_OF_SLOPES if name == "alibi_slopes" else ALLOWED
            self.check(gradient, wanted, allowed[dtype], f"{name} {tuple(x.shape)} {dtype} dim {dim} dlse {with_dlse}")

    def test_each_shape(self):
        for dtype in (torch.float32, torch.bfloat16) if WHOLE or DEVICE == "cuda" else (torch.float32,):
            for name, shapes in SHAPES.items():
                for number, shape in enumerate(shapes):
                    self.one(dtype, (32, 64)[number % 2], number % 2 == 1, **{name: learned(name, shape, dtype)})

    def test_16_bits(self):
        self.one(torch.bfloat16, 64, False, bias=learned("bias", (1, 4, 33, 40), torch.bfloat16), sinks=learned(
            "sinks", (4, ), torch.bfloat16))

    def test_several_at_once_and_head_dims_between(self):
        self.one(torch.float32, 24, True, bias=learned("bias", (33, 40), torch.float32), relative_bias=learned(
            "relative_bias", (4, 72), torch.float32), alibi_slopes=learned("alibi_slopes", (4, ), torch.float32),
                 sinks=learned("sinks", (4, ), torch.float32))

    def test_together_with_gradients_of_q_k_and_v(self):
        q, k, v = map(leaf, operands())
        bias = learned("bias", (4, 33, 40), torch.float32)
        dout = draw(2, ROWS, HEADS, 32)
        known = attune.attention(q.detach(), k.detach(), v.detach(), bias=bias.detach(), mask="causal_bottom_right",
                                 **PLACE)
        o = attune.attention(q, k, v, bias=bias, mask="causal_bottom_right", **PLACE)
        self.assertTrue(torch.equal(o, known))
        of_all = torch.autograd.grad(o, (q, k, v, bias), dout)
        without = attune.attention(q, k, v, bias=bias.detach(), mask="causal_bottom_right", **PLACE)
        for x, y in zip(of_all, torch.autograd.grad(without, (q, k, v), dout)):
            self.assertTrue(torch.equal(x, y))
        # Calls that are known without autograd's history, then calls with it.
        for _ in range(3):
            self.assertIsNone(
                attune.attention(q.detach(), k.detach(), v.detach(), bias=bias.detach(), mask="causal_bottom_right",
                                 **PLACE).grad_fn)
            o = attune.attention(q.detach(), k.detach(), v.detach(), bias=bias, mask="causal_bottom_right", **PLACE)
            self.assertTrue(torch.equal(torch.autograd.grad(o, bias, dout)[0], of_all[3]))

    def test_equal_bits(self):
        for name, shape in (("bias", (1, 1, 33, 40)), ("bias", (40, )), ("relative_bias", (1, 72)),
                            ("alibi_slopes", (1, )), ("sinks", (1, ))):
            q, k, v = operands(torch.bfloat16, 64)
            x = learned(name, shape, torch.float32)
            o = attune.attention(q, k, v, **{name: x}, **PLACE)
            dout = draw(*o.shape, dtype=torch.bfloat16)
            first, = torch.autograd.grad(o, x, dout, retain_graph=True)
            for _ in range(3):
                self.assertTrue(torch.equal(torch.autograd.grad(o, x, dout, retain_graph=True)[0], first))

    def test_calls_without_scores(self):
        for batch, rows, keys in ((2, 0, 16), (0, 5, 16), (2, 5, 0)):
            q, k = (torch.randn(batch, count, 2, 64, device=DEVICE) for count in (rows, keys))
            for name, shape in (("bias", (1, 1, 1, 1)), ("relative_bias", (2, 1)), ("alibi_slopes", (1, 2))):
                if name == "relative_bias" and rows + keys - 1 != 1 and keys:
                    shape = (2, rows + keys - 1)
                elif name == "relative_bias":
                    shape = (2, max(rows + keys - 1, 1))
                learned = torch.randn(shape, device=DEVICE).requires_grad_()
                with self.subTest(name=name, batch=batch, rows=rows, keys=keys):
                    for _ in range(3):  # reused memory that holds other data
                        torch.full((64,), 7.0, device=DEVICE)
                        learned.grad = None
                        attune.attention(q, k, k, **{name: learned}).sum().backward()
                        self.assertTrue((learned.grad == 0).all())

    def test_constants_along_keys_change_nothing(self):
        """A bias per row moves no weight: only lse changes."""
        q, k, v = operands()
        bias = learned("bias", (2, 4, 33, 1), torch.float32)
        o, lse = attune.attention(q, k, v, bias=bias, return_lse=True, **PLACE)
        dlse = draw(*lse.shape)
        found, = torch.autograd.grad((o, lse), bias, (draw(*o.shape), dlse))
        self.check(found[..., 0], dlse.double(), 1e-5, "dlse")

    def test_dropout(self):
        q, k, v = operands()
        bias = learned("bias", (4, 33, 40), torch.float32)
        o = attune.attention(q, k, v, bias=bias, dropout_p=0.25, seed=7, **PLACE)
        dout, step = draw(*o.shape), 1e-2
        found, = torch.autograd.grad(o, bias, dout)
        direction = torch.nn.functional.normalize(draw(4, 33, 41)[..., :40].flatten(), dim=0).view(4, 33, 40)
        at = lambda move: (attune.attention(q, k, v, bias=bias.detach() + move * direction, dropout_p=0.25, seed=7, **
                                            PLACE).double() * dout.double()).sum()
        self.assertAlmostEqual(((at(step) - at(-step)) / (2 * step)).item(), (found.double() * direction).sum().item(),
                               delta=2e-3)

    def test_sdpa(self):
        q, k, v = (draw(2, heads, 33, 32) for heads in (4, 4, 4))
        ours, theirs = (learned("bias", (33, 33), torch.float32) for _ in range(2))
        dout = draw(*q.shape)
        attune.sdpa.scaled_dot_product_attention(q, k, v, attn_mask=ours).backward(dout)
        torch.nn.functional.scaled_dot_product_attention(q.double(), k.double(), v.double(),
                                                         attn_mask=theirs.double()).backward(dout.double())
        self.check(ours.grad, theirs.grad, 2e-5, "attn_mask")

    def test_compiled_and_opcheck(self):
        q, k, v = (x.detach() for x in operands())
        bias, sinks = learned("bias", (4, 33, 40), torch.float32), learned("sinks", (4,), torch.float32)
        function = lambda q, k, v, bias, sinks: attune.attention(q, k, v, bias=bias, sinks=sinks, is_causal=False) * 2
        dout = draw(2, ROWS, HEADS, 32)
        want = torch.autograd.grad(function(q, k, v, bias, sinks), (bias, sinks), dout)
        found = torch.autograd.grad(
            torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v, bias, sinks), (bias, sinks), dout)
        for x, y in zip(found, want):
            self.assertTrue(torch.allclose(x, y, atol=1e-5))
        with torch.no_grad():
            o, lse = torch.ops.attune.attention(q, k, v, bias=bias)
        torch.library.opcheck(torch.ops.attune.score_gradient.default, (dout, q, k, v, o, lse),
                              {"of": "bias", "bias": bias.detach()},
                              test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))

    def test_by_hand_and_refusals(self):
        q, k, v = operands()
        bias = draw(4, 33, 40)
        o, lse = attune.attention(q, k, v, bias=bias, return_lse=True, **PLACE)
        call = lambda of="bias", **more: attune.score_gradient(of, o, q, k, v, o, lse, **{"bias": bias, **more}, **PLACE
                                                               )
        want, learnt = call(), leaf(bias)
        self.assertTrue(
            torch.equal(want,
                        torch.autograd.grad(attune.attention(q, k, v, bias=learnt, **PLACE), learnt, o)[0]))
        if DEVICE == "cpu":
            arrays = [x.numpy() for x in (o, q, k, v, o, lse)]
            self.assertTrue((attune.score_gradient("bias", *arrays, bias=bias.numpy(), **PLACE) == want.numpy()).all())
        for sentence, refused in (("of is 'mask'; must be one of bias, relative_bias", lambda: call("mask")),
                                  ("of is 'sinks', and sinks is not given", lambda: call("sinks")),
                                  ("bias has 5 dimensions; must be at most 4", lambda: call(bias=bias[None, None])),
                                  ("bias has shape", lambda: call(bias=bias[:, :5])),
                                  ("o requires a gradient",
                                   lambda: attune.score_gradient("bias", o, q, k, v, leaf(o), lse, bias=bias))):
            with self.assertRaisesRegex(ValueError, sentence):
                refused()
        with self.assertRaisesRegex(TypeError, r"score_gradient\(\) got an unexpected keyword argument .dropout."):
            call(dropout=0.1)


if __name__ == "__main__":
    gradient_cases.main()
