#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention through PyTorch's autograd against autograd in float64: random problems, layouts, douts and
features, refusals, known signatures. attention_backward_torch_test.py calls the backward directly; training_test.py
covers compilers, checkpoints and training loops.

    autograd_test.py [cuda] [whole]     whole: all features and many random problems

Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a GPU."""
import random
import unittest
import warnings

import gradient_cases
import published_grids as grids
import torch
from gradient_cases import (ALLOWED, BIAS, CASES, DEVICE, PLACE, RELATIVE, SLOPES, TABLE, WHOLE, GradientsTest, draw,
                            leaf, wanted)

import attune
import attune.flash
import attune.flex
import attune.sdpa
import attune.torch
from attune.torch import graph as _graph
from attune.core.library import module

SCORE = attune.score_mod("return score - slopes[head] * abs(q_idx - kv_idx);", slopes=SLOPES)


def layouts(rows, heads, dim, dtype, batch=2):
    """Yields (name, tensor [batch, rows, heads, dim]) in several memory orders."""
    yield "plain", draw(batch, rows, heads, dim, dtype=dtype)
    yield "heads first", draw(batch, heads, rows, dim, dtype=dtype).transpose(1, 2)
    yield "of a packed tensor", draw(batch, rows, 3, heads, dim, dtype=dtype)[:, :, 1]
    yield "rows first", draw(rows, batch, heads, dim, dtype=dtype).transpose(0, 1)


def douts(o):
    """Yields (name, gradient of o) as autograd makes them; kernels refuse some of the strides."""
    yield "plain", torch.randn_like(o)
    yield "of sum()", torch.ones((), dtype=o.dtype, device=o.device).expand(o.shape)
    yield "of a mean over rows", draw(o.shape[0], 1, *o.shape[2:], dtype=o.dtype).expand(o.shape)
    yield "of a sum over columns", draw(*o.shape[:3], 1, dtype=o.dtype).expand(o.shape)
    yield "transposed", draw(o.shape[0], o.shape[3], o.shape[2], o.shape[1], dtype=o.dtype).permute(0, 3, 2, 1)
    yield "heads first", draw(o.shape[0], o.shape[2], o.shape[1], o.shape[3], dtype=o.dtype).transpose(1, 2)
    yield "between others", draw(*o.shape[:3], o.shape[3] + 3, dtype=o.dtype)[..., 1:-2]


class RandomTest(GradientsTest):
    def test_random_problems(self):
        for seed in range(CASES):
            self.one(random.Random(seed))

    def one(self, chance):
        dtype = chance.choice(list(ALLOWED))
        rows, keys = chance.choice(((33, 33), (64, 64), (17, 40), (40, 17), (1, 30), (65, 128)))
        heads_kv = chance.choice((1, 2))
        heads, dim, dim_v = heads_kv * chance.choice((1, 3)), *chance.choice(
            ((32, 32), (64, 64), (48, 32), (40, 24), (59, 59)))
        causal = chance.choice((None, "top_left", "bottom_right"))
        window = chance.choice((None, (5, None), (3, 2), (None, 4)))
        scale = chance.choice((None, 0.3))
        kinds = [
            list(layouts(*of, dtype)) for of in ((rows, heads, dim), (keys, heads_kv, dim), (keys, heads_kv, dim_v))]
        names, given = zip(*(chance.choice(kind) for kind in kinds))
        needs = chance.choice(
            ((True, True, True), (True, False, False), (False, True, True), (False, False, True), (True, True, False)))
        q, k, v = (leaf(x) if need else x for x, need in zip(given, needs))
        what = f"{dtype} {rows}x{keys} heads {heads}/{heads_kv} dims {dim}/{dim_v} {causal} {window} {names} {needs}"
        with_lse = chance.random() < 0.5
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # head dim 59 is padded
            found = attune.attention(q, k, v, causal and f"causal_{causal}", window, scale, return_lse=with_lse,
                                     **PLACE)
            o, lse = found if with_lse else (found, None)
            kind, dout = chance.choice(list(douts(o)))
            seen = grids.visible(rows, keys, causal, window, device=DEVICE)
            dlse = draw(*lse.shape) * seen.any(-1) if with_lse else None
            if with_lse:
                torch.autograd.backward([o, lse], [dout, dlse])
            else:
                o.backward(dout)
        # In the float64 reference rows that see no key see all keys, so their dout is set to 0.
        dout = dout * seen.any(-1)[:, None, None]
        want = wanted(q, k, v, dout, dlse, seen=seen | ~seen.any(-1, keepdim=True), scale=scale)
        found = [x.grad for x in (q, k, v)]
        self.assertEqual([x is not None for x in found], list(needs), what)
        self.assertNear(found, want, ALLOWED[dtype], f"{what} {kind}")
        for x, gradient in zip((q, k, v), found):
            if gradient is not None:
                self.assertEqual((gradient.dtype, gradient.shape), (dtype, x.shape))

    def test_memory_of_gradients_is_ordered_as_their_tensors(self):
        for name, q in layouts(33, 4, 32, torch.float32):
            k, v = draw(2, 20, 2, 32), draw(2, 20, 2, 32)
            o, lse = attune.attention(q, k, v, return_lse=True, **PLACE)
            dq, dk, dv = attune.attention_backward(torch.ones_like(o), q, k, v, o, lse, **PLACE)
            order = lambda x: sorted(range(4), key=lambda axis: -x.stride(axis))
            self.assertEqual((order(dq), dq.stride(3)), (order(q), 1), name)
            self.assertTrue(dq.is_contiguous() or name != "plain")
        repeated = draw(1, 20, 2, 32).expand(2, -1, -1, -1)  # keys for all batch entries
        leaf_k = leaf(draw(1, 20, 2, 32))
        attune.attention(draw(2, 33, 4, 32), leaf_k.expand(2, -1, -1, -1), repeated, **PLACE).sum().backward()
        self.assertEqual(leaf_k.grad.shape, (1, 20, 2, 32))


KEEP = draw(2, 1, 33, 40) > 0
LENGTHS, PREFIX = torch.tensor([7, 40], dtype=torch.int32, device=DEVICE), torch.tensor([3, 20], dtype=torch.int32,
                                                                                        device=DEVICE)
ROWS = torch.arange(66, dtype=torch.int32, device=DEVICE).view(2, 33) % 33 // 9
KEYS = torch.arange(80, dtype=torch.int32, device=DEVICE).view(2, 40) % 40 // 9
I, J = torch.arange(33, device=DEVICE)[:, None], torch.arange(40, device=DEVICE)[None]


def features():
    """Returns (keywords of attention(), keywords of the reference)."""
    yield {"softcap": 2.0}, {"softcap": 2.0}
    yield {"bias": BIAS}, {"bias": BIAS}
    yield {"relative_bias": RELATIVE}, {"bias": RELATIVE[:, J - I + 32]}
    yield {"alibi_slopes": SLOPES}, {"alibi": SLOPES.expand(2, 4)}
    yield {"mask_tensor": KEEP}, {"seen": KEEP}
    yield {"key_lengths": LENGTHS}, {"seen": (J < LENGTHS[:, None, None])[:, None]}
    yield {"documents": (ROWS, KEYS)}, {"seen": (ROWS[:, :, None] == KEYS[:, None, :])[:, None]}
    yield {"prefix": PREFIX}, {"seen": ((J <= I + 7) | (J < PREFIX[:, None, None]))[:, None]}
    yield {"sinks": TABLE}, {"sinks": TABLE}
    yield {"score_mod": SCORE}, {"score_mod": lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs()}
    yield {"score_mod": lambda s, b, h, i, j: s * s * 0.3 + TABLE[h]}, {
        "score_mod": lambda s, b, h, i, j: s * s * 0.3 + TABLE[h]}
    yield {"mask_mod": lambda b, h, i, j: (i - j) % 3 != 1}, {"seen": (I - J) % 3 != 1}
    yield {"softcap": 3.0, "bias": BIAS, "mask": "causal_bottom_right"}, {
        "softcap": 3.0, "bias": BIAS, "seen": grids.visible(33, 40, "bottom_right", device=DEVICE)}


class FeaturesTest(GradientsTest):
    def test_features(self):
        q, k, v = leaf(draw(2, 33, 4, 32)), leaf(draw(2, 40, 2, 32)), leaf(draw(2, 40, 2, 48)[..., :32])
        for keywords, of_reference in list(features())[::1 if WHOLE or DEVICE == "cuda" else 6]:
            with self.subTest(keywords=list(keywords)):
                o = attune.attention(q, k, v, **keywords, **PLACE)
                dout = draw(*o.shape)
                self.assertNear(torch.autograd.grad(o, (q, k, v), dout), wanted(q, k, v, dout, **of_reference), 3e-5)

    def test_maps_of_masks(self):
        q, k, v = leaf(draw(2, 200, 4, 32)), leaf(draw(2, 300, 2, 32)), leaf(draw(2, 300, 2, 32))
        causal = attune.mask_mod(lambda b, h, q_idx, kv_idx: kv_idx <= q_idx + 100)
        found = attune.block_map.build(q.detach(), k.detach(), mask_mod=causal)
        o = attune.attention(q, k, v, mask_mod=causal, block_map=found, **PLACE)
        dout = draw(*o.shape)
        self.assertNear(torch.autograd.grad(o, (q, k, v), dout),
                        wanted(q, k, v, dout, seen=grids.visible(200, 300, "bottom_right", device=DEVICE)), 3e-5)
        blocks = attune.BlockMap(torch.ones((1, 1, 4, 19), dtype=torch.uint8, device=DEVICE), 200, 300)
        blocks.granules[..., 3:7] = 0
        o = attune.attention(q, k, v, block_map=blocks, **PLACE)
        seen = blocks.granules[0, 0].repeat_interleave(64, 0).repeat_interleave(16, 1)[:200, :300] > 0
        self.assertNear(torch.autograd.grad(o, (q, k, v), dout), wanted(q, k, v, dout, seen=seen), 3e-5)


class SignaturesTest(GradientsTest):
    """Adapters give the gradients of attention()."""

    def test_sdpa(self):
        q, k, v = leaf(draw(2, 4, 33, 32)), leaf(draw(2, 2, 33, 32)), leaf(draw(2, 2, 33, 32))
        theirs = torch.nn.functional.scaled_dot_product_attention
        for keywords in ({}, {"is_causal": True}, {"attn_mask": draw(33, 33)}, {
                "attn_mask": draw(1, 1, 33, 33) > -1, "scale": 0.2}):
            dout = draw(2, 4, 33, 32)
            found = torch.autograd.grad(attune.sdpa.scaled_dot_product_attention(q, k, v, enable_gqa=True, **keywords),
                                        (q, k, v), dout)
            doubled = [leaf(x.double()) for x in (q, k, v)]
            if keywords.get("attn_mask") is not None and keywords["attn_mask"].is_floating_point():
                keywords = {"attn_mask": keywords["attn_mask"].double()}
            self.assertNear(found,
                            torch.autograd.grad(theirs(*doubled, enable_gqa=True, **keywords), doubled, dout.double()),
                            3e-5)
        flat = [leaf(draw(2, 33, 32)) for _ in range(3)]
        self.assertEqual(
            torch.autograd.grad(attune.sdpa.scaled_dot_product_attention(*flat).sum(), flat)[0].shape, (2, 33, 32))
        dropped = attune.sdpa.scaled_dot_product_attention(q, k, v, dropout_p=1.0,
                                                           enable_gqa=True)  # PyTorch takes it, and nothing is left
        self.assertEqual(dropped.abs().max().item(), 0.0)
        with self.assertRaisesRegex(ValueError, "dropout_p is 1.5"):
            attune.sdpa.scaled_dot_product_attention(q, k, v, dropout_p=1.5, enable_gqa=True)

    def test_any_of_q_k_and_v_may_require_a_gradient(self):
        """attune.sdpa once refused calls in which k or v require a gradient and q does not, as with a frozen query or a
        learned prefix."""
        shown = lambda x: x.transpose(1, 2)
        calls = (lambda q, k, v: shown(
            attune.sdpa.scaled_dot_product_attention(*map(shown, (q, k, v)), is_causal=True, scale=0.2)),
                 lambda q, k, v: shown(
                     attune.sdpa.scaled_dot_product_attention(*map(shown,
                                                                   (q, k, v)), torch.zeros(9, 9, device=DEVICE))),
                 lambda q, k, v: attune.flash.flash_attn_func(q, k, v, causal=True),
                 lambda q, k, v: shown(attune.flex.flex_attention(*map(shown, (q, k, v)))))
        given = [draw(2, 9, 3, 64) for _ in "qkv"]
        for number, call in enumerate(calls):
            every = [leaf(x) for x in given]
            want = torch.autograd.grad(call(*every).square().sum(), every)
            call(*given)  # now a known call without history
            for learned in ("k", "v", "kv", "q", "qv"):
                some = [leaf(x) if name in learned else x for name, x in zip("qkv", given)]
                found = torch.autograd.grad(call(*some).square().sum(), [x for x in some if x.requires_grad])
                with self.subTest(call=number, learned=learned):
                    self.assertNear(found, [want["qkv".index(name)] for name in learned], 3e-5)

    def test_flash(self):
        q, k, v = leaf(draw(2, 33, 4, 32)), leaf(draw(2, 40, 2, 32)), leaf(draw(2, 40, 2, 32))
        o, lse = attune.flash.flash_attn_func(q, k, v, causal=True, window_size=(9, -1), alibi_slopes=SLOPES,
                                              return_lse=True, deterministic=True)
        dout, dlse = draw(*o.shape), draw(*lse.shape)
        found = torch.autograd.grad((o, lse), (q, k, v), (dout, dlse))
        of_reference = {
            "seen": grids.visible(33, 40, "bottom_right", (9, None), device=DEVICE), "alibi": SLOPES.expand(2, 4)}
        self.assertNear(found, wanted(q, k, v, dout, dlse, **of_reference), 3e-5)
        qkv = leaf(draw(2, 33, 3, 4, 32))
        attune.flash.flash_attn_qkvpacked_func(qkv, causal=True).backward(dout)
        want = wanted(*qkv.unbind(2), dout, seen=grids.visible(33, 33, "bottom_right", device=DEVICE))
        self.assertNear(qkv.grad.unbind(2), want, 3e-5)

    def test_flex(self):
        from torch.nn.attention.flex_attention import create_block_mask
        q, k, v = leaf(draw(2, 4, 200, 32)), leaf(draw(2, 2, 200, 32)), leaf(draw(2, 2, 200, 32))
        mask = create_block_mask(lambda b, h, q_idx, kv_idx: kv_idx <= q_idx, None, None, 200, 200, device=DEVICE)
        o = attune.flex.flex_attention(q, k, v, SCORE, mask, enable_gqa=True)
        dout = draw(*o.shape)
        found = torch.autograd.grad(o, (q, k, v), dout)
        want = wanted(*(x.transpose(1, 2) for x in (q, k, v)), dout.transpose(1, 2), seen=grids.visible(
            200, 200, "top_left", device=DEVICE), score_mod=lambda s, b, h, i, j: s - SLOPES[h] * (i - j).abs())
        self.assertNear([x.transpose(1, 2) for x in found], want, 3e-5)


class AutogradTest(GradientsTest):
    def setUp(self):
        self.q, self.k, self.v = leaf(draw(2, 33, 4, 32)), leaf(draw(2, 40, 2, 32)), leaf(draw(2, 40, 2, 32))

    def test_arguments_without_a_gradient_are_refused(self):
        q, k, v = self.q, self.k, self.v
        learnt = leaf(TABLE)
        with self.assertRaisesRegex(
                ValueError, r"learnt requires a gradient, and attune gives none of it here; give learnt.detach\(\)"):
            attune.attention(q, k, v, mask_mod=lambda b, h, i, j: learnt[h] > j)
        with self.assertRaisesRegex(
                ValueError, r"bias requires a gradient, and attune gives none of it here; give bias.detach\(\)"):
            attune.attention(q.detach(), k.detach(), v.detach(), bias=leaf(BIAS), out=torch.empty(
                2, 33, 4, 32, device=DEVICE))
        with self.assertRaisesRegex(ValueError, "q requires a gradient.*give q.detach"):
            attune.attention(q, k, v, out=torch.empty(2, 33, 4, 32, device=DEVICE))
        for name in ("q", "k", "v"):
            given = {one: getattr(self, one).detach().to(torch.float8_e4m3fn) for one in "qkv"}
            given[name].requires_grad_()
            with self.assertRaisesRegex(
                    ValueError, "is torch.float8_e4m3fn in a call that autograd records; must be bf16, fp16 or fp32"):
                attune.attention(**given, q_scale=1.0, k_scale=1.0, v_scale=1.0)
        with self.assertRaisesRegex(ValueError, "k is a NumPy array and q is a PyTorch tensor"):
            attune.attention(q.cpu(), k.detach().cpu().numpy(), v.cpu())

    def test_a_second_derivative_is_refused(self):
        q, k, v = self.q, self.k, self.v
        for call in (attune.attention, lambda *given, **_: torch.ops.attune.attention(*given)[0]):
            first, = torch.autograd.grad(call(q, k, v, **PLACE).square().sum(), q, create_graph=True)
            self.assertGreater(first.abs().max().item(), 0)
            with self.assertRaisesRegex(
                    RuntimeError,
                    "gradients of attention are differentiated, and attune has no second derivative; use one"):
                first.sum().backward()

    def test_the_op(self):
        q, k, v = self.q, self.k, self.v
        for return_lse in (True, False):
            for call in (torch.ops.attune.attention, torch.ops.attune.attention.default):
                o, lse = call(q, k, v, spec="context=cpu:1" if PLACE else "", return_lse=return_lse)
                self.assertEqual(lse.numel(), lse.numel() and 264 if return_lse else 0)
                dout = draw(*o.shape)
                self.assertNear(torch.autograd.grad(o, (q, k, v), dout), wanted(q, k, v, dout), 2e-5)
        for _ in range(3):  # known calls without history, between those with one
            with torch.no_grad():
                self.assertIsNone(torch.ops.attune.attention.default(q, k, v, return_lse=False)[0].grad_fn)
            o, lse = torch.ops.attune.attention.default(q, k, v, return_lse=False)
            self.assertEqual((lse.numel(), o.grad_fn is None), (0, False))
        o, lse = torch.ops.attune.attention(q.detach(), k.detach(), v.detach())
        self.assertIsNone(o.grad_fn)
        dq, dk, dv = torch.ops.attune.attention_backward(o, q.detach(), k.detach(), v.detach(), o, lse, gradients="k")
        self.assertEqual([x.numel() for x in (dq, dk, dv)], [0, k.numel(), 0])

    def test_saved_tensors_are_watched(self):
        q = self.q * 1
        o = attune.attention(q, self.k, self.v)
        q += 1
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            o.sum().backward()
        plain = [x.detach() for x in (self.q, self.k, self.v)]
        o, lse = attune.attention(*plain, return_lse=True)
        of_caches = [x if DEVICE == "cpu" else x.half() for x in plain]  # on GPUs they have 16 bits at most
        for like, write in ((o, lambda x: attune.attention(*plain, out=x)),
                            (of_caches[0], lambda x: attune.attention_kvcache(*of_caches, out=x)),
                            (o, lambda x: attune.merge(x, lse, o, lse, out=x)),
                            (o,
                             lambda x: attune.attention_backward(o, *plain, o, lse, out=(x, *(torch.empty_like(y)
                                                                                              for y in plain[1:]))))):
            x = torch.zeros_like(like)
            kept = (x * torch.ones((), device=x.device, requires_grad=True)).sum()
            write(x)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                kept.backward()

    def test_calls_with_and_without_history_in_turns(self):
        q, k, v = self.q, self.k, self.v
        want = attune.attention(q.detach(), k.detach(), v.detach(), softcap=5.0)
        for _ in range(3):
            for recorded in (True, False):
                with torch.set_grad_enabled(recorded):
                    o = attune.attention(q, k, v, softcap=5.0)
                self.assertEqual(o.requires_grad, recorded)
                self.assertLess((o - want).abs().max().item(), 1e-5)

    def test_known_calls_run_in_the_module(self):
        q, k, v = (x.transpose(1, 2) for x in (self.q, self.k, self.v))
        calls = (
            lambda: attune.attention(self.q, self.k, self.v, bias=BIAS),
            lambda: attune.attention(self.q, self.k, self.v, dropout_p=0.5),
            lambda: attune.sdpa.scaled_dot_product_attention(q, k, v, enable_gqa=True, dropout_p=0.25).transpose(1, 2))
        for call in calls:
            for turn in range(3):
                runs = [call() for _ in range(3)
                        ]  # forward and backward share a workspace; the first call after a switch prepares it
                before = module.counters()["hits"]
                found = [torch.autograd.grad(o, (self.q, self.k, self.v), torch.ones_like(o)) for o in runs]
                of_gradients = module.counters()["hits"] - before
                again = [call() for _ in range(3)]
                self.assertTrue(turn == 0 or of_gradients >= 2, of_gradients)
                self.assertTrue(turn == 0 or module.counters()["hits"] - before - of_gradients >= 2)
                self.assertEqual([o.requires_grad for o in again], [True] * 3)
            self.assertEqual(call is calls[0], torch.equal(found[0][0],
                                                           found[1][0]))  # each call with dropout draws its own seed

    def test_known_calls_under_autocast(self):
        """The module runs them if autocast has nothing to cast; otherwise they are cast to autocast's dtype."""
        q, k, v = (x.detach().bfloat16() for x in (self.q, self.k, self.v))
        for dtype, known in ((torch.bfloat16, True), (torch.float16, False), (torch.bfloat16, True), (None, True)):
            for turn in range(3):
                before = module.counters()["misses"]
                with torch.autocast(DEVICE, dtype, enabled=dtype is not None):
                    o = attune.attention(q, k, v, scale=0.2)
                self.assertEqual(o.dtype, dtype or torch.bfloat16)
                self.assertTrue(turn == 0 or (module.counters()["misses"] == before) == known, (dtype, turn))
        with torch.autocast(DEVICE, torch.bfloat16):
            self.assertEqual(attune.attention(self.q, self.k, self.v, scale=0.2).dtype, torch.bfloat16)

    def test_calls_and_ops_have_equal_gradients(self):
        """The short path of eager calls equals the op's own autograd, bit for bit."""
        learned = leaf(BIAS)
        for features in ({}, {"bias": learned}, {"key_lengths": LENGTHS, "softcap": 3.0}, {
                "dropout_p": 0.3, "seed": torch.tensor(5, device=DEVICE), "offset": 2}):
            inputs = (self.q, self.k, self.v, *([learned] if "bias" in features else []))
            dout, dlse = draw(2, 33, 4, 32), draw(2, 4, 33)
            runs = []
            for call in (attune.attention, _graph.attend, attune.attention):
                o, lse = call(self.q, self.k, self.v, window=(9, 30), return_lse=True, deterministic=True, **features,
                              **PLACE)
                runs.append((o, lse, *torch.autograd.grad((o, lse), inputs, (dout, dlse))))
            for run in runs[1:]:
                self.assertTrue(all(torch.equal(x, y) for x, y in zip(run, runs[0])), list(features))
            self.assertEqual(type(runs[0][0].grad_fn).__name__, "AttuneAttentionBackward")
            self.assertEqual(type(runs[1][0].grad_fn).__name__, "AttuneAttentionOpBackward")

    @unittest.skipUnless(DEVICE == "cuda", "streams and graphs are a GPU's")
    def test_streams_and_replays_have_equal_bits(self):
        q, k, v, bias = draw(2, 300, 4, 64, dtype=torch.bfloat16), draw(2, 400, 2, 64, dtype=torch.bfloat16), draw(
            2, 400, 2, 64, dtype=torch.bfloat16), draw(300, 400)
        o, lse = attune.attention(q, k, v, bias=bias, return_lse=True)
        dout = draw(*o.shape, dtype=torch.bfloat16)
        run = lambda: (*attune.attention_backward(dout, q, k, v, o, lse, bias=bias, deterministic=True),
                       attune.score_gradient("bias", dout, q, k, v, o, lse, bias=bias))
        want = run()
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in range(3)]
        found = []
        for stream in streams * 4:
            with torch.cuda.stream(stream):
                found.append(run())
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            captured = run()
        for _ in range(5):
            graph.replay()
            found.append(tuple(x.clone() for x in captured))
        torch.cuda.synchronize()
        for one in found:
            for x, y in zip(one, want):
                self.assertTrue(torch.equal(x, y))

    def test_equal_runs_have_equal_bits(self):
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            q, k, v = (leaf(draw(2, 130, heads, 64, dtype=torch.bfloat16)) for heads in (4, 2, 2))
            runs = [
                torch.autograd.grad(attune.attention(q, k, v, mask="causal").square().sum(), (q, k, v))
                for _ in range(4)]
        finally:
            torch.use_deterministic_algorithms(before)
        for run in runs[1:]:
            self.assertTrue(all(torch.equal(x, y) for x, y in zip(run, runs[0])))

    def test_autocast(self):
        q, k, v = self.q, self.k, self.v
        with torch.autocast(DEVICE, torch.bfloat16):
            o = attune.attention(q, k, v)
        self.assertEqual(o.dtype, torch.bfloat16)
        dout = draw(*o.shape, dtype=torch.bfloat16)
        found = torch.autograd.grad(o, (q, k, v), dout)
        self.assertEqual({x.dtype for x in found}, {torch.float32})
        self.assertNear(found, wanted(q, k, v, dout), 2e-2)

    def test_tangents_are_refused(self):
        """Forward-mode tangents were once lost, also in calls that the C module knew."""
        given = [draw(1, 9, 2, 32, dtype=torch.bfloat16) for _ in "qkv"]  # GPUs have no caches in fp32
        flash, op = attune.flash.flash_attn_func, lambda *given: torch.ops.attune.attention(*given)[0]
        sdpa = lambda *given: attune.sdpa.scaled_dot_product_attention(*(x.transpose(1, 2) for x in given))
        for number, call in enumerate(
            (flash, sdpa, op, lambda *given: attune.attention_kvcache(*given, is_causal=True))):
            want = [call(*given) for _ in range(3)][0]
            with torch.autograd.forward_ad.dual_level():
                self.assertTrue(torch.equal(call(*given), want))
                for place, name in enumerate("qkv"):
                    dual = [torch.autograd.forward_ad.make_dual(x, x) if i == place else x for i, x in enumerate(given)]
                    with self.subTest(call=number, name=name), self.assertRaisesRegex(
                            ValueError, f"{name}.* has a tangent of torch.autograd.forward_ad"):
                        call(*dual)
            self.assertTrue(torch.equal(call(*given), want))

    def test_transforms_are_refused(self):
        with self.assertRaisesRegex(RuntimeError, "torch.ops.attune.attention is called inside a torch.func transform"):
            torch.func.grad(lambda q: attune.attention(q, self.k.detach(), self.v.detach()).sum())(self.q.detach())


if __name__ == "__main__":
    gradient_cases.main()
