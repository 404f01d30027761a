#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of tensors that a score_mod reads, by PyTorch's autograd and by direct calls, against autograd in float64
through the function itself.

    capture_gradient_test.py [cuda] [whole]     whole: also every function in 16 bits

Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a GPU."""
import gradient_cases
import published_grids as grids
import torch
from gradient_cases import DEVICE, PLACE, WHOLE, GradientsTest, draw, leaf

import attune
import attune.flex
import attune.torch

BATCH, ROWS, KEYS, HEADS = 2, 33, 40, 4
SEEN = grids.visible(ROWS, KEYS, "bottom_right", device=DEVICE)
ALLOWED = {torch.float32: 2e-5, torch.bfloat16: 3e-2}
DOCUMENTS = (torch.arange(ROWS, device=DEVICE) // 10).int(), (torch.arange(KEYS, device=DEVICE) // 15).int()
BUCKETS = (torch.arange(ROWS + KEYS, device=DEVICE).float().sqrt()).long()

# By name: shapes of the learned tensors, and the function of (score, b, h, i, j, tensors).
FUNCTIONS = {
    "scale of a head": (((4,),), lambda s, b, h, i, j, a: s * a[h]),
    "temperature": (((),), lambda s, b, h, i, j, a: s * a),
    "each row and key": (((2, 4, 33, 40),), lambda s, b, h, i, j, a: s + a[b, h, i, j]),
    "each row and key of a head, axes turned": (((40, 4, 33),), lambda s, b, h, i, j, a: s + a[j, h, i]),
    "larger tensor": (((50, 60),), lambda s, b, h, i, j, a: s + a[i, j]),
    "rows": (((33,),), lambda s, b, h, i, j, a: s * a[i]),
    "keys of a batch entry": (((2, 40),), lambda s, b, h, i, j, a: s + a[b, j]),
    "distances": (((4, 73),), lambda s, b, h, i, j, a: s + a[h, i - j + 40]),
    "distances of each batch entry": (((2, 73),), lambda s, b, h, i, j, a: s + a[b, i - j + 40]),
    "buckets of distances": (((9, 4),), lambda s, b, h, i, j, a: s + a[BUCKETS[i - j + 40].int(), h]),
    "distances beyond the ends": (((20,),), lambda s, b, h, i, j, a: s + a[torch.clamp(i - j + 10, 0, 19)]),
    "half distances": (((4, 80),), lambda s, b, h, i, j, a: s + a[h, (i - j + 45) // 2]),
    "distance of absolute value": (((4, 73),), lambda s, b, h, i, j, a: s - a[h, abs(i - j)]),
    "products of positions": (((12,),), lambda s, b, h, i, j, a: s + a[(i * j) % 12]),
    "pairs of documents": (((4, 3),), lambda s, b, h, i, j, a: s + a[DOCUMENTS[0][i], DOCUMENTS[1][j]]),
    "heads in pairs": (((2,),), lambda s, b, h, i, j, a: s * a[h // 2]),
    "two loads of one tensor": (((40,),), lambda s, b, h, i, j, a: s + a[i] * a[j]),
    "two tensors": (((4,), (40,)), lambda s, b, h, i, j, a, c: torch.tanh(s * a[h]) * c[j]),
    "where": (((4,), (4,)), lambda s, b, h, i, j, a, c: torch.where(i >= j, s + a[h], s - c[h] * (j - i))),
}


def mod_of(function, learned):
    """Returns the function in attention()'s form."""
    if len(learned) == 1:
        a, = learned
        return lambda s, b, h, i, j: function(s, b, h, i, j, a)
    a, c = learned
    return lambda s, b, h, i, j: function(s, b, h, i, j, a, c)


def reference(q, k, v, function, learned, **features):
    """Returns attention in float64, with mask causal_bottom_right."""
    return grids.reference(q, k, v, seen=SEEN, score_mod=lambda *at: function(*at, *learned), **features)


def operands(dtype=torch.float32, dim=32):
    return draw(BATCH, ROWS, HEADS, dim, dtype=dtype), draw(BATCH, KEYS, 2, dim, dtype=dtype), draw(
        BATCH, KEYS, 2, dim, dtype=dtype)


def drawn(shapes, dtype=torch.float32):
    return [leaf((0.5 + draw(*shape, 2)[..., 0].abs()).to(dtype)) for shape in shapes]


class CaptureGradientTest(GradientsTest):
    def check(self, found, want, allowed, what):
        self.assertTrue(found.isfinite().all(), what)
        error = (found.double() - want).norm() / want.norm().clamp_min(1e-6)
        self.assertLess(error.item(), allowed, what)

    def one(self, name, dtype=torch.float32, dim=32, with_dlse=False, **features):
        shapes, function = FUNCTIONS[name]
        q, k, v = operands(dtype, dim)
        learned = drawn(shapes, dtype)
        o, lse = attune.attention(q, k, v, mask="causal_bottom_right", return_lse=True, score_mod=mod_of(
            function, learned), **features, **PLACE)
        dout, dlse = draw(*o.shape, dtype=dtype), draw(*lse.shape)
        doubled = [leaf(x.double()) for x in learned]
        want_o, want_lse = reference(q, k, v, function, doubled, **features)
        outputs, douts, want = [o], [dout], (want_o * dout).sum()
        if with_dlse:
            outputs, douts, want = outputs + [lse], douts + [dlse], want + (want_lse * dlse).sum()
        found = torch.autograd.grad(outputs, learned, douts)
        for x, gradient, wanted in zip(learned, found, torch.autograd.grad(want, doubled)):
            self.assertEqual((gradient.shape, gradient.dtype), (x.shape, x.dtype))
            self.check(gradient, wanted, ALLOWED[dtype], f"{name} {dtype} {features}")

    def test_each_function(self):
        for number, name in enumerate(FUNCTIONS):
            self.one(name, dim=(32, 64)[number % 2], with_dlse=number % 3 == 0)
            if WHOLE or DEVICE == "cuda":
                self.one(name, torch.bfloat16, 64)

    def test_16_bits(self):
        self.one("two tensors", torch.bfloat16, 64)

    def test_with_other_features(self):
        self.one("distances", softcap=2.0, bias=draw(ROWS, KEYS))
        self.one("two tensors", dim=24, softcap=1.5, with_dlse=True)

    def test_together_with_gradients_of_q_k_and_v(self):
        a, = drawn(((4, 73),))
        q, k, v = map(leaf, operands())
        mod = lambda s, b, h, i, j: s * a[h, i - j + 40]
        o = attune.attention(q, k, v, score_mod=mod, mask="causal_bottom_right", **PLACE)
        dout = draw(*o.shape)
        found = torch.autograd.grad(o, (q, k, v, a), dout)
        doubled = [leaf(x.double()) for x in (q, k, v, a)]
        want, _ = reference(*doubled[:3], lambda s, b, h, i, j, a: s * a[h, i - j + 40], doubled[3:])
        for name, x, y in zip("qkva", found, torch.autograd.grad((want * dout).sum(), doubled)):
            self.check(x, y, 2e-5, name)
        # Calls of the same shapes with and without history, in turns.
        for _ in range(2):
            with torch.no_grad():
                self.assertIsNone(attune.attention(q, k, v, score_mod=mod, mask="causal_bottom_right", **PLACE).grad_fn)
            again = attune.attention(q.detach(), k.detach(), v.detach(), score_mod=mod, mask="causal_bottom_right",
                                     **PLACE)
            self.assertTrue(torch.equal(torch.autograd.grad(again, a, dout)[0], found[3]))

    def test_dropout(self):
        a, = drawn(((4, 73),))
        q, k, v = operands()
        dropped = dict(dropout_p=0.25, seed=7)
        o = attune.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * a[h, i - j + 40], mask="causal_bottom_right",
                             **dropped, **PLACE)
        mask = attune.dropout_mask((BATCH, HEADS, ROWS, KEYS), 0.25, 7, like=q)
        kept = mask.double() / (1 - attune.dropout_rate(0.25))
        dout, doubled = draw(*o.shape), leaf(a.double())
        want, _ = reference(q, k, v, lambda s, b, h, i, j, a: s * a[h, i - j + 40], [doubled], kept=kept)
        self.check(
            torch.autograd.grad(o, a, dout)[0],
            torch.autograd.grad((want * dout).sum(), doubled)[0], 2e-5, "dropout")

    def test_equal_bits(self):
        for name in ("scale of a head", "distances", "buckets of distances", "pairs of documents",
                     "two loads of one tensor"):
            shapes, function = FUNCTIONS[name]
            q, k, v = operands(torch.bfloat16, 64)
            learned = drawn(shapes)
            o = attune.attention(q, k, v, score_mod=mod_of(function, learned), **PLACE)
            dout = draw(*o.shape, dtype=torch.bfloat16)
            first, = torch.autograd.grad(o, learned, dout, retain_graph=True)
            for _ in range(3):
                self.assertTrue(torch.equal(torch.autograd.grad(o, learned, dout, retain_graph=True)[0], first), name)

    def test_flex(self):
        a, = drawn(((4, 73),))
        q, k, v = (x.transpose(1, 2) for x in operands())
        o = attune.flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + a[h, i - j + 40], enable_gqa=True)
        dout, doubled = draw(*o.shape), leaf(a.double())
        theirs = torch.nn.functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), enable_gqa=True,
            attn_mask=doubled[:, torch.arange(ROWS, device=DEVICE)[:, None] - torch.arange(KEYS, device=DEVICE) + 40])
        self.check(
            torch.autograd.grad(o, a, dout)[0],
            torch.autograd.grad(theirs, doubled, dout.double())[0], 2e-5, "flex")

    def test_compiled_and_opcheck(self):
        a, = drawn(((4,),))
        q, k, v = operands()
        mod = attune.score_mod("return score * slopes[head];", slopes=a)
        function = lambda q, k, v: attune.attention(q, k, v, score_mod=mod) * 2
        dout = draw(BATCH, ROWS, HEADS, 32)
        want, = torch.autograd.grad(function(q, k, v), a, dout)
        found, = torch.autograd.grad(torch.compile(function, fullgraph=True, backend="aot_eager")(q, k, v), a, dout)
        self.assertTrue(torch.allclose(found, want, atol=1e-5))
        spec = attune.torch.spec(score_mod=mod)
        captures = [a.detach()]
        with torch.no_grad():
            o, lse = torch.ops.attune.attention(q, k, v, spec=spec, captures=captures)
        torch.library.opcheck(torch.ops.attune.score_gradient.default, (dout, q, k, v, o, lse),
                              {"of": "captures[0]", "spec": spec, "captures": captures},
                              test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))

    def test_by_hand_and_refusals(self):
        q, k, v = operands()
        a = draw(4).abs()
        mod = attune.score_mod("return score * slopes[head];", slopes=a)
        o, lse = attune.attention(q, k, v, score_mod=mod, return_lse=True, **PLACE)
        call = lambda of="slopes", score_mod=mod: attune.score_gradient(of, o, q, k, v, o, lse, score_mod=score_mod, **
                                                                        PLACE)
        learnt = leaf(a)
        want, = torch.autograd.grad(attune.attention(q, k, v, score_mod=lambda s, b, h, i, j: s * learnt[h], **PLACE),
                                    learnt, o)
        self.assertTrue(torch.equal(call(), want))
        self.assertTrue(torch.equal(call("captures[0]"), want))
        if DEVICE == "cpu":
            arrays = [x.numpy() for x in (o, q, k, v, o, lse)]
            for text, shape in (("score * slopes[head]", (4, )), ("score + slopes[q_idx * kv_idx % 4]",
                                                                  (4, )), ("score + slopes[q_idx][kv_idx]", (33, 40)),
                                ("score + slopes[q_idx - kv_idx + 40]",
                                 (80, )), ("score + slopes[int(floor(sqrt(float(q_idx))))]", (9, ))):
                table = draw(*shape)
                both = [
                    attune.score_gradient("slopes", *given, score_mod=attune.score_mod(f"return {text};", slopes=x),
                                          **PLACE)
                    for given, x in (((o, q, k, v, o, lse), table), (arrays, table.numpy()))]
                self.assertTrue(torch.allclose(both[0], torch.from_numpy(both[1]), atol=1e-6), text)
        by_score = attune.score_mod("return score + slopes[int(score)];", slopes=a)
        for sentence, refused in (
            ("of is 'mask'; must be one of bias, relative_bias, alibi_slopes, sinks, slopes", lambda: call("mask")),
            ("score_mod loads by an index that depends on the score", lambda: call(score_mod=by_score)),
            ("table requires a gradient",
             lambda: attune.attention(q, k, v, mask_mod=attune.mask_mod("return table[kv_idx] > 0.0;", table=leaf(
                 draw(40))), **PLACE)), ("learnt requires a gradient", lambda: attune.attention(
                     q, k, v, score_mod=lambda s, b, h, i, j: s * learnt[h], out=torch.empty_like(o), **PLACE))):
            with self.assertRaisesRegex(ValueError, sentence):
                refused()


if __name__ == "__main__":
    gradient_cases.main()
