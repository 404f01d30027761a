#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Direct calls of attention_backward() on PyTorch's tensors: single gradients, finite differences, laws, strides,
outputs, refusals. Arguments: cuda, whole. Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a
GPU."""
import random

import gradient_cases
import published_grids as grids
import torch
import torch.utils.flop_counter
from gradient_cases import BIAS, DEVICE, PLACE, RELATIVE, SLOPES, WHOLE, GradientsTest, draw, leaf, wanted

import attune


class BackwardTest(GradientsTest):
    """Calls attention_backward() directly."""

    def setUp(self):
        self.q, self.k, self.v = draw(2, 33, 4, 32), draw(2, 40, 2, 32), draw(2, 40, 2, 32)
        self.o, self.lse = attune.attention(self.q, self.k, self.v, mask="causal_bottom_right", return_lse=True,
                                            **PLACE)
        self.dout, self.dlse = draw(*self.o.shape), draw(*self.lse.shape)

    def backward(self, dout=None, **keywords):
        dout = self.dout if dout is None else dout
        return attune.attention_backward(dout, self.q, self.k, self.v, self.o, self.lse, **{
            "mask": "causal_bottom_right", "deterministic": True, **PLACE, **keywords})

    def test_each_gradient_alone(self):
        want = self.backward(dlse=self.dlse)
        self.assertNear(
            want,
            wanted(self.q, self.k, self.v, self.dout, self.dlse, seen=grids.visible(33, 40, "bottom_right",
                                                                                    device=DEVICE)), 2e-5)
        for asked in ("q", "k", "v", "qk", "qv", "kv", (True, False, True)) if WHOLE else ("q", "kv", (True, False,
                                                                                                       True)):
            found = self.backward(dlse=self.dlse, gradients=asked)
            letters = asked if isinstance(asked, str) else "qv"
            self.assertEqual([x is not None for x in found], [name in letters for name in "qkv"])
            self.assertTrue(all(x is None or torch.allclose(x, y, atol=1e-5) for x, y in zip(found, want)))

    def test_finite_differences(self):
        step, found = 1e-2, self.backward()
        for name, gradient in zip("qkv", found):
            x = getattr(self, name)
            direction = torch.nn.functional.normalize(draw(x.numel() + 1)[:-1], dim=0).view(x.shape)
            at = lambda move: (attune.attention(
                *(y + move * direction if y is x else y for y in
                  (self.q, self.k, self.v)), mask="causal_bottom_right", **PLACE).double() * self.dout.double()).sum()
            self.assertAlmostEqual(((at(step) - at(-step)) / (2 * step)).item(),
                                   (gradient.double() * direction).sum().item(), delta=2e-3)

    def test_laws(self):
        dq, dk, dv = (x.double() for x in self.backward())
        self.assertLess((dv.sum((1, 2)) - self.dout.double().sum((1, 2))).abs().max().item(), 1e-4)
        self.assertAlmostEqual((self.q * dq).sum().item(), (self.k * dk).sum().item(), delta=1e-3)
        for twice, once in zip(self.backward(2 * self.dout), self.backward()):
            self.assertTrue(torch.equal(twice, 2 * once))
        self.assertTrue(all(not x.any() for x in self.backward(torch.zeros_like(self.dout))))
        dq, dk, dv = self.backward(torch.zeros_like(self.dout), dlse=self.dlse)  # of lse alone
        self.assertNear((dq, dk, dv),
                        wanted(self.q, self.k, self.v, 0 * self.dout, self.dlse, seen=grids.visible(
                            33, 40, "bottom_right", device=DEVICE)), 2e-5)
        self.assertFalse(dv.any())

    def test_laws_of_random_problems(self):
        """With any features: sum of dv = sum of dout, <q, dq> = <k, dk>, and if all keys or all values are equal, the
        softmax has no gradient."""
        features = ({}, {"softcap": 2.0}, {"bias": BIAS}, {"relative_bias": RELATIVE}, {"alibi_slopes": SLOPES}, {
            "window": (7, 4)}, {"mask": "causal_top_left"}, {"chunk": 16}, {
                "key_lengths": torch.tensor([7, 40], dtype=torch.int32, device=DEVICE)}, {
                    "score_mod": lambda s, b, h, i, j: s + SLOPES[h] * (i - j)})
        for number in range(len(features) if WHOLE else 5):
            chance = random.Random(number)
            given = {**features[number], **chance.choice(features[:5])}
            q, k, v = self.q, self.k, self.v
            run = lambda q=q, k=k, v=v, dlse=None: self.laws_of(q, k, v, dlse, given)
            dq, dk, dv, sees = run()
            self.assertLess((dv.sum((1, 2)) - (self.dout * sees).double().sum((1, 2))).abs().max().item(), 1e-4, given)
            self.assertAlmostEqual((q * dq).sum().item(), (k * dk).sum().item(), delta=1e-3, msg=given)
            equal = v[:, :1].expand_as(v).contiguous()
            self.assertTrue(all(x.abs().max().item() < 1e-5 for x in run(v=equal)[:2]), given)
            equal = k[:, :1].expand_as(k).contiguous()
            self.assertLess(run(k=equal)[0].abs().max().item(), 1e-5, given)
            dq, dk, dv, _ = run(dlse=self.dlse)
            self.assertTrue(dq.any() and dk.any(), given)
            self.assertFalse(dv.any(), given)

    def laws_of(self, q, k, v, dlse, given):
        """Returns gradients (of lse alone if there is dlse), and which rows see a key."""
        o, lse = attune.attention(q, k, v, return_lse=True, **given, **PLACE)
        dout = self.dout if dlse is None else torch.zeros_like(self.dout)
        found = attune.attention_backward(dout, q, k, v, o, lse, dlse=dlse, **given, **PLACE)
        return *(x.double() for x in found), (lse != -torch.inf).transpose(1, 2)[..., None]

    def test_strides_of_dlse(self):
        for name, dlse in (("of sum()", torch.ones((), device=DEVICE).expand(
                2, 4, 33)), ("transposed", draw(2, 33, 4).transpose(1, 2)), ("of one head", draw(2, 1, 33).expand(
                    2, 4, 33)), ("between others", draw(2, 4, 40)[..., 3:36])):
            with self.subTest(name):
                for x, y in zip(self.backward(dlse=dlse), self.backward(dlse=dlse.contiguous())):
                    self.assertTrue(torch.equal(x, y))

    def test_out(self):
        want = self.backward()
        out = tuple(torch.full_like(x, torch.nan) for x in want)
        found = self.backward(out=out)
        self.assertTrue(all(x is y and torch.equal(x, z) for x, y, z in zip(found, out, want)))
        half = self.backward(gradients="q", out=(out[0], None, None))
        self.assertTrue(half[0] is out[0] and half[1:] == (None, None))
        with self.assertRaisesRegex(ValueError, "out has no dk, and gradients is 'qkv'"):
            self.backward(out=(out[0], None, out[2]))
        with self.assertRaisesRegex(ValueError, "out has dk, and gradients is 'q'"):
            self.backward(gradients="q", out=(out[0], out[1], None))
        with self.assertRaisesRegex(ValueError, "dk and k overlap in memory"):
            self.backward(out=(out[0], self.k, out[2]))
        with self.assertRaisesRegex(ValueError, "dv and dk overlap in memory"):
            self.backward(out=(out[0], out[1], out[1]))
        with self.assertRaisesRegex(ValueError, r"dq has shape \(2, 33, 4, 16\); must be \(2, 33, 4, 32\)"):
            self.backward(out=(out[0][..., :16], *out[1:]))

    def test_out_of_padded_head_dims(self):
        q, k, v = (draw(2, 18, 4, 20) for _ in range(3))
        k, v = k + 1, v + 2
        o, lse = attune.attention(q, k, v, return_lse=True, pad_head_dim=True, **PLACE)
        dout = draw(*o.shape) + 3
        backward = lambda out, **choices: attune.attention_backward(dout, q, k, v, o, lse, out=out, pad_head_dim=True,
                                                                    deterministic=True, **PLACE, **choices)
        want, empty = backward(None), torch.empty_like
        packed = torch.empty(2, 18, 3, 4, 20, device=DEVICE).unbind(2)
        for out in ((empty(q), empty(k), empty(v)), packed):
            found = backward(out)
            self.assertTrue(all(x is y and torch.equal(x, z) for x, y, z in zip(found, out, want)))
        alone = backward((None, packed[1].fill_(0), None), gradients="k")
        self.assertTrue(alone[0] is None and torch.equal(packed[1], want[1]))
        kept = [x.clone() for x in (q, dout, lse)]
        for sentence, out in (
            (r"dq is fp32 of shape \(2, 18, 4, 16\), .*; dq must be fp32 of shape \(2, 18, 4, 20\)",
             (empty(q)[..., :16], empty(k), empty(v))), ("dk is float64 of shape .*; dk must be fp32",
                                                         (empty(q), empty(k).double(), empty(v))),
            ("dv is on meta and q is on", (empty(q), empty(k), empty(v).to("meta"))),
            ("dq and q overlap in memory; dq must have memory of its own",
             (q, empty(k), empty(v))), ("dk and dq overlap in memory", (packed[0], packed[0], packed[2])),
            ("dv and dout overlap in memory", (empty(q), empty(k),
                                               dout)), ("dq and lse overlap in memory", (lse.as_strided(
                                                   q.shape, (0, 0, 0, 1)), empty(k), empty(v)))):
            with self.assertRaisesRegex(ValueError, sentence):
                backward(out)
        self.assertTrue(all(torch.equal(x, y) for x, y in zip((q, dout, lse), kept)))

    def test_out_under_dispatch_modes(self):
        out = [torch.empty_like(x) for x in (self.q, self.k, self.v)]
        with torch.utils.flop_counter.FlopCounterMode(display=False):
            self.assertTrue(torch.equal(self.backward(out=out)[0], self.backward()[0]))
            for sentence, wrong in ((r"dq is torch.float32 of shape \(2, 33, 4, 16\); must be", out[0][..., :16]),
                                    ("dq is torch.float64", out[0].double())):
                with self.assertRaisesRegex(ValueError, sentence):
                    self.backward(out=(wrong, *out[1:]))

    def test_accumulate(self):
        """Gradients of two halves of the keys, with o and lse of the whole, sum up to the whole's gradients."""
        for dtype in (torch.float32, torch.bfloat16):
            q, k, v = draw(2, 33, 4, 32, dtype=dtype), draw(2, 48, 2, 32, dtype=dtype), draw(2, 48, 2, 32, dtype=dtype)
            o, lse = attune.attention(q, k, v, return_lse=True, **PLACE)
            dout = draw(*o.shape, dtype=dtype)
            sums = [torch.zeros(x.shape, dtype=torch.float32, device=DEVICE) for x in (q, k, v)]
            for part in (slice(0, 20), slice(20, 48)):
                out = (sums[0], sums[1][:, part], sums[2][:, part])
                found = attune.attention_backward(dout, q, k[:, part], v[:, part], o, lse, out=out, accumulate=True,
                                                  **PLACE)
                self.assertTrue(all(x is y for x, y in zip(found, out)))
            self.assertNear(sums, wanted(q, k, v, dout), gradient_cases.ALLOWED[dtype])
            once = [x.clone() for x in sums]
            attune.attention_backward(dout, q, k, v, o, lse, out=(sums[0], None, None), gradients="q", accumulate=True,
                                      **PLACE)
            self.assertNear((sums[0],), (2 * once[0].double(),), 1e-5)
        with self.assertRaisesRegex(ValueError, "accumulate is True and out is None; out must hold fp32 tensors"):
            self.backward(accumulate=True)
        with self.assertRaisesRegex(ValueError, "dq is bf16; must be fp32"):
            attune.attention_backward(dout, q, k, v, o, lse, out=(torch.empty_like(q), None, None), gradients="q",
                                      accumulate=True, **PLACE)

    def test_lengths_of_zero(self):
        for rows, keys in ((0, 9), (9, 0)):
            q, k, v = leaf(draw(2, rows, 4, 32)), leaf(draw(2, keys, 2, 32)), leaf(draw(2, keys, 2, 32))
            attune.attention(q, k, v, **PLACE).sum().backward()
            self.assertTrue(all(x.grad is not None and x.grad.shape == x.shape and not x.grad.any() for x in (q, k, v)))

    def test_refusals(self):
        q, k, v, o, lse = self.q, self.k, self.v, self.o, self.lse
        backward = lambda dout=self.dout, q=q, k=k, v=v, o=o, lse=lse, **keywords: attune.attention_backward(
            dout, q, k, v, o, lse, **keywords)
        for sentence, call in (("gradients is 'vq'; must be q, k, v, qk", lambda: backward(gradients="vq")),
                               ("gradients is ''; must be",
                                lambda: backward(gradients="")), (r"gradients is \(False, False, False\); must be",
                                                                  lambda: backward(gradients=(False, ) * 3)),
                               (r"dout has shape \(2, 33, 4, 16\); must be \(2, 33, 4, 32\)",
                                lambda: backward(self.dout[..., :16].contiguous())),
                               ("dout is fp16; must be fp32",
                                lambda: backward(self.dout.half())), ("dout has 3 dimensions",
                                                                      lambda: backward(self.dout[0])),
                               (r"o has shape \(2, 33, 2, 32\); must be",
                                lambda: backward(o=o[:, :, :2])), ("o is bf16; must be fp32",
                                                                   lambda: backward(o=o.bfloat16())),
                               (r"lse has shape \(2, 4, 1\); must be \(2, 4, 33\)",
                                lambda: backward(lse=lse[..., :1])), ("lse is bf16; must be fp32",
                                                                      lambda: backward(lse=lse.bfloat16())),
                               (r"dlse has shape \(2, 33, 4\); must be \(2, 4, 33\)",
                                lambda: backward(dlse=lse.transpose(1, 2).contiguous())),
                               ("k is fp16 and q is fp32", lambda: backward(k=k.half())),
                               ("dout requires a gradient, and attune gives none of it here; give dout.detach",
                                lambda: backward(leaf(self.dout))), ("bias requires a gradient",
                                                                     lambda: backward(bias=leaf(BIAS))),
                               ("mask is 'diagonal'; must be",
                                lambda: backward(mask="diagonal")), ("out is int; must be None or a tuple",
                                                                     lambda: backward(out=3))):
            with self.assertRaisesRegex(ValueError, sentence):
                call()
        stopped = lambda score, b, h, q_idx, kv_idx: score.detach() * 0.5  # noqa: E731
        for score_mod in (stopped, attune.score_mod(stopped)):
            for run in (backward, torch.compile(
                    backward, backend="eager"), torch.compile(backward, backend="eager", fullgraph=True)):
                torch._dynamo.reset()
                with self.assertRaisesRegex(
                        Exception,
                        "score_mod computes with the score behind detach"):  # fullgraph puts it into words of its own
                    run(score_mod=score_mod)
            self.assertIsNone(torch.compile(backward, backend="eager")(score_mod=score_mod, gradients="v")[0])
        with self.assertRaisesRegex(TypeError, r"backward\(\) got .* argument .dropout.; dropout is dropout_p"):
            backward(dropout=0.1)
        with self.assertRaisesRegex(TypeError, "lse is of type NoneType"):
            backward(lse=None)


if __name__ == "__main__":
    gradient_cases.main()
