#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.sdpa, attune.flash and attune.flex against float64: random calls, differences of the signatures, refusals.
Arguments: cpu or cuda; whole: many random calls. published_grids_test.py has PyTorch's and FlashAttention's published
grids. Skips aloud (status 77) without PyTorch or the device."""
import inspect
import os
import pickle
import random
import subprocess
import sys
import unittest
import warnings

try:
    import numpy as np
    import torch
except ImportError:
    print("SKIP: there is no PyTorch here")
    sys.exit(77)

import attune
import attune.flash
import attune.flex
import attune.sdpa
import grid_points
import published_grids as grids

WORDS = [sys.argv.pop(i) for i in range(len(sys.argv) - 1, 0, -1) if sys.argv[i] in ("cpu", "cuda", "whole")]
DEVICE, WHOLE = "cuda" if "cuda" in WORDS else "cpu", "whole" in WORDS


def draw(*shape, **rest):
    return grid_points.draw(*shape, device=DEVICE, **rest)


class Compared(unittest.TestCase):
    def setUp(self):
        scope = warnings.catch_warnings()
        scope.__enter__()
        self.addCleanup(scope.__exit__, None, None, None)
        warnings.filterwarnings("ignore", message="attune copies q, k and v")

    def compare(self, got, want, dtype):
        grid_points.compare(got, want, dtype)


class RandomCalls(Compared):
    """Mask kinds, softcap, sinks, windows, groups of heads, lengths, strides and dtypes, drawn."""

    def draw_operands(self, pick):
        dtype = pick.choice((torch.float32, torch.bfloat16, torch.float16)) if DEVICE == "cpu" else pick.choice(
            (torch.bfloat16, torch.float16))
        batch, heads, group, head_dim = pick.choice((1, 2, 3)), pick.choice((1, 2, 3)), pick.choice(
            (1, 2, 4)), pick.choice((16, 64, 128))
        rows, keys = pick.choice((1, 7, 64, 129)), pick.choice((1, 33, 128, 200))
        layouts = (lambda *s: draw(*s, dtype=dtype, seed=pick.random()),
                   lambda b, n, h, d: draw(b, h, n, d, dtype=dtype, seed=pick.random()).transpose(1, 2),
                   lambda b, n, h, d: draw(b, n, h, d + 16, dtype=dtype, seed=pick.random())[..., :d],
                   lambda b, n, h, d: draw(b, n, 1, d, dtype=dtype, seed=pick.random()).expand(b, n, h, d))
        q, k, v = (pick.choice(layouts)(batch, length, n, head_dim)
                   for length, n in ((rows, heads * group), (keys, heads), (keys, heads)))
        return dtype, q, k, v

    def test_sdpa(self):
        pick = random.Random("sdpa")
        for _ in range(200 if WHOLE else 2):
            dtype, q, k, v = self.draw_operands(pick)
            rows, keys, kind = q.shape[1], k.shape[1], pick.choice(("none", "causal", "bool", "float"))
            shape = tuple(extent if pick.random() < 0.6 else 1
                          for extent in (q.shape[0], q.shape[2], rows, keys))[pick.choice((0, 0, 2)):]
            mask, scale = draw(*shape, seed=7), pick.choice((None, 0.2))
            given = {
                "none": None, "causal": None, "bool": mask > -0.5, "float": mask.masked_fill(mask < -1,
                                                                                             -torch.inf)}[kind]
            with self.subTest(kind=kind, q=q.shape, k=k.shape, dtype=dtype, mask=shape):
                got = attune.sdpa.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(
                    1, 2), given, is_causal=kind == "causal", scale=scale, enable_gqa=True)
                want, _ = grids.reference(
                    q, k, v, given if kind == "bool" else grids.visible(
                        rows, keys, "top_left" if kind == "causal" else None, device=DEVICE),
                    given if kind == "float" else None, scale=scale)
                self.compare(got.transpose(1, 2), want, dtype)
                # PyTorch's own, in which a row that sees nothing is 0 in all versions.
                if kind != "float" and DEVICE == "cpu":
                    theirs = torch.nn.functional.scaled_dot_product_attention(
                        *(x.double().transpose(1, 2) for x in (q, k, v)), given, is_causal=kind == "causal",
                        scale=scale, enable_gqa=True).transpose(1, 2)
                    self.assertLess((theirs.nan_to_num() - want).abs().max().item(), 1e-9)

    def test_flash(self):
        pick = random.Random("flash")
        for _ in range(200 if WHOLE else 2):
            dtype, q, k, v = self.draw_operands(pick)
            causal, softcap, scale = pick.choice((False, True)), pick.choice((0.0, 5.0)), pick.choice((None, 0.2))
            window = pick.choice(((-1, -1), (5, 3), (None, 10), (20, None), (0, 0)))
            sinks = draw(q.shape[2], seed=8) if pick.random() < 0.4 else None
            slopes = draw(q.shape[2], seed=9).abs() if pick.random() < 0.4 else None
            with self.subTest(q=q.shape, k=k.shape, dtype=dtype, causal=causal, window=window, softcap=softcap):
                got, lse = attune.flash.flash_attn_func(q, k, v, softmax_scale=scale, causal=causal, window_size=window,
                                                        softcap=softcap, alibi_slopes=slopes, learnable_sink=sinks,
                                                        return_lse=True)
                want, want_lse = grids.reference(
                    q, k, v, grids.visible(q.shape[1], k.shape[1], "bottom_right" if causal else None, window, DEVICE),
                    softcap=softcap, scale=scale, alibi=slopes, sinks=sinks)
                self.compare(got, want, dtype)
                self.assertTrue(torch.equal(lse == -torch.inf, want_lse == -torch.inf))

    def test_flash_chunks(self):
        q, k, v = (draw(1, length, 2, 64, seed=length) for length in (50, 70, 70))
        rows, keys = torch.arange(50, device=DEVICE)[:, None] + 20, torch.arange(70, device=DEVICE)[None, :]
        got = attune.flash.flash_attn_func(q, k, v, causal=True, attention_chunk=16)
        self.compare(got, grids.reference(q, k, v, (rows // 16 == keys // 16) & (keys <= rows))[0], torch.float32)

    def test_flex(self):
        from torch.nn.attention.flex_attention import AuxRequest, create_block_mask
        pick = random.Random("flex")
        for _ in range(100 if WHOLE else 2):
            dtype, q, k, v = self.draw_operands(pick)
            rows, keys = q.shape[1], k.shape[1]
            kinds, slopes = torch.arange(max(rows, keys), device=DEVICE) // 30, draw(q.shape[2], seed=3)
            masks = (None, lambda b, h, i, j: i >= j, lambda b, h, i, j: kinds[i] == kinds[j], lambda b, h, i, j:
                     (i - j).abs() < 20 + 3 * h)
            mask, mod = pick.choice(masks), pick.choice((None, lambda s, b, h, i, j: s + slopes[h] * (j - i) * 0.1))
            block = create_block_mask(mask, None, q.shape[2], rows, keys, device=DEVICE,
                                      BLOCK_SIZE=pick.choice((128, (64, 32), (32, 32)))) \
                if mask is not None else None
            index = [torch.arange(extent, device=DEVICE).view([-1 if axis == i else 1 for axis in range(4)])
                     for i, extent in enumerate((q.shape[0], q.shape[2], rows, keys))]
            with self.subTest(q=q.shape, k=k.shape, dtype=dtype, mask=mask and masks.index(mask), mod=mod is not None):
                got, aux = attune.flex.flex_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mod,
                                                      block, enable_gqa=True, return_aux=AuxRequest(lse=True))
                want, want_lse = grids.reference(q, k, v, None if mask is None else mask(*index), score_mod=mod)
                self.compare(got.transpose(1, 2), want, dtype)
                self.assertTrue(torch.equal(aux.lse == -torch.inf, want_lse == -torch.inf))


class Meanings(Compared):
    """Differences between the signatures, and their refusals."""

    def setUp(self):
        super().setUp()
        self.q, self.k, self.v = draw(2, 9, 4, 64), draw(2, 12, 2, 64), draw(2, 12, 2, 64)
        self.heads_first = [x.transpose(1, 2) for x in (self.q, self.k, self.v)]

    def test_diagonals(self):
        q, k, v = self.q, self.k, self.v
        got = attune.sdpa.scaled_dot_product_attention(*self.heads_first, is_causal=True, enable_gqa=True).transpose(
            1, 2)
        self.compare(got, grids.reference(q, k, v, grids.visible(9, 12, "top_left", device=DEVICE))[0], torch.float32)
        got = attune.flash.flash_attn_func(q, k, v, causal=True, window_size=(2, 5))
        self.compare(got,
                     grids.reference(q, k, v, grids.visible(9, 12, "bottom_right", (2, 0), DEVICE))[0], torch.float32)
        got, lse = attune.flash.flash_attn_func(k, q[:, :, :2], q[:, :, :2], causal=True,
                                                return_lse=True)  # more rows than keys: the first see none
        want, want_lse = grids.reference(k, q[:, :, :2], q[:, :, :2], grids.visible(12, 9, "bottom_right",
                                                                                    device=DEVICE))
        self.compare(got, want, torch.float32)
        self.assertTrue((lse[..., :3] == -torch.inf).all().item() and
                        torch.equal(lse == -torch.inf, want_lse == -torch.inf))

    def test_windows_wider_than_any_sequence(self):
        flash = lambda window, **choices: attune.flash.flash_attn_func(self.q, self.k, self.v, window_size=window, **
                                                                       choices)
        for wide in (2**31 - 2**16, 2**31 - 1, 2**63):
            for window, same in (((wide, wide), (-1, -1)), ((wide, 0), (-1, 0)), ((2, wide), (2, -1)), ((np.int64(3),
                                                                                                         1), (3, 1))):
                self.assertTrue(torch.equal(flash(window), flash(same)), window)
            self.assertTrue(torch.equal(flash((wide, wide), causal=True), flash((-1, -1), causal=True)))
            begins = torch.tensor([0, 4, 9], dtype=torch.int32, device=DEVICE)
            rows = self.q[0] if DEVICE == "cpu" else self.q[0].half()
            packed = lambda window: attune.flash.flash_attn_varlen_func(rows, rows, rows, begins, begins, 5, 5,
                                                                        window_size=window)
            self.assertTrue(torch.equal(packed((wide, 0)), packed((-1, 0))))

    def table(self, function, operands, cases):
        for error, sentence, given in cases:
            with self.subTest(sentence=sentence), self.assertRaisesRegex(error, sentence):
                function(*operands, **given)

    def test_sdpa(self):
        q, k, v = self.heads_first
        sdpa = attune.sdpa.scaled_dot_product_attention
        mask = torch.ones(9, 12, dtype=torch.bool, device=DEVICE)
        self.table(
            sdpa, (q, k, v),
            ((ValueError, "query has 4 heads and key 2; .*enable_gqa=True", {}),
             (ValueError, "dropout_p is 1.5; must be in \[0, 1\)", {"dropout_p": 1.5}),
             (ValueError, "scale is 0.0; must be above 0", {"scale": 0.0, "enable_gqa": True}),
             (ValueError, "attn_mask is given and is_causal is True", {"attn_mask": mask, "is_causal": True}),
             (TypeError, "attn_mask is of type ndarray; must be a PyTorch tensor", {"attn_mask": mask.cpu().numpy()}),
             (ValueError, "attn_mask has shape .2, 1, 1, 9, 12.; must have at most 4 dimensions", {
                 "attn_mask": mask.expand(2, 1, 1, 9, 12), "enable_gqa": True}),
             (ValueError, "attn_mask has shape .*; must broadcast to", {"attn_mask": mask[:4], "enable_gqa": True}),
             (ValueError, "attn_mask is torch.int64; must be bool or floating point", {
                 "attn_mask": mask.long(), "enable_gqa": True})))
        with self.assertRaisesRegex(ValueError, "1, 1 and 1 dimensions; must be at least 2"):
            sdpa(q[0, 0, 0], k[0, 0, 0], v[0, 0, 0])
        learnt = torch.zeros(9, 12, device=DEVICE, requires_grad=True)
        sdpa(q, k, v, learnt, enable_gqa=True).square().sum().backward()
        self.assertGreater(learnt.grad.abs().max().item(), 0)

    def test_ranks_of_three(self):
        q, k, v = (x[:, 0] for x in self.heads_first)
        mask = draw(2, 9, 12, seed=5) > 0
        got = attune.sdpa.scaled_dot_product_attention(q, k, v, mask)
        want, _ = grids.reference(q[:, :, None], k[:, :, None], v[:, :, None], mask[:, None])
        self.compare(got, want[:, :, 0], torch.float32)

    def test_flash(self):
        flash, given = attune.flash.flash_attn_func, (self.q, self.k, self.v)
        self.table(flash, given,
                   ((ValueError, "dropout_p is None; must be in \[0, 1\) .*softmax_scale", {
                       "dropout_p": None}), (ValueError, "dropout_p is -0.125; must be", {"dropout_p": -0.125}),
                    (ValueError, "qv has shape .*; must be .*, q's shape with v's columns", {"qv": self.k}),
                    (TypeError, "learnable_sink is ", {"learnable_sink": 3}), (ValueError, "softmax_scale is -1", {
                        "softmax_scale": -1.0}), (ValueError, "attention_chunk is -2", {"attention_chunk": -2}),
                    (ValueError, "aux_tensors is given; must be None: .*closures", {"aux_tensors": [self.q]}),
                    (ValueError, "block_sparse_tensors is given; .*block_map", {"block_sparse_tensors": 1}),
                    (ValueError, "window_size is 4; must be a pair", {"window_size": 4}),
                    (ValueError, "window_size is 1.5; must be a whole number", {"window_size": (1.5, 2)}),
                    (ValueError, "window_size is -1.5; must be a whole number", {"window_size": (2, -1.5)}),
                    (TypeError, "causal is 0.3; must be True or False", {"causal": 0.3}),
                    (ValueError, "q_descale is given, and q is torch.float32; only 8-bit tensors have factors", {
                        "q_descale": draw(2, 2)})))
        with self.assertRaisesRegex(ValueError, "qkv has 4 dimensions; must be 5"):
            attune.flash.flash_attn_qkvpacked_func(self.q)

    def test_hints_warn_once(self):
        from attune.adapters import arguments
        arguments._told.clear()
        with self.assertWarnsRegex(UserWarning, "flash_attn_func ignores num_splits=3, pack_gqa=True, sm_margin=8"):
            first = attune.flash.flash_attn_func(self.q, self.k, self.v, num_splits=3, pack_gqa=True, sm_margin=8)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.assertTrue(
                torch.equal(
                    first,
                    attune.flash.flash_attn_func(self.q, self.k, self.v, num_splits=4, pack_gqa=False,
                                                 deterministic=True)))
        with self.assertWarnsRegex(UserWarning, r"flex_attention ignores kernel_options=\['BLOCK_M'\]"):
            attune.flex.flex_attention(*self.heads_first, enable_gqa=True, kernel_options={"BLOCK_M": 64})

    def test_flex(self):
        from torch.nn.attention.flex_attention import AuxRequest
        flex = attune.flex.flex_attention
        self.table(flex, self.heads_first,
                   ((ValueError, "query has 4 heads and key 2", {}),
                    (ValueError, "return_aux has max_scores=True", {"return_aux": AuxRequest(max_scores=True)}),
                    (ValueError, "return_lse is True and return_aux is given", {
                        "return_lse": True, "return_aux": AuxRequest(lse=True)})))

    def test_flex_of_masks_made_in_inference_mode(self):
        from torch.nn.attention.flex_attention import create_block_mask
        q = torch.randn(1, 2, 128, 64, device=DEVICE)
        want = attune.sdpa.scaled_dot_product_attention(q, q, q, is_causal=True)
        with torch.inference_mode():
            mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=DEVICE)
            found = attune.flex.flex_attention(q, q, q, block_mask=mask)
        for one in (found, attune.flex.flex_attention(q, q, q, block_mask=mask)):
            torch.testing.assert_close(one, want, atol=1e-5, rtol=1e-5)

    def test_programs_of_texts_go_to_other_processes(self):
        made = attune.score_mod("return score - slopes[head] + torch_like;", slopes=torch.ones(2, device=DEVICE),
                                torch_like=0.5)
        script = ("import pickle, sys, torch, attune\n"
                  f"q = torch.ones(1, 8, 2, 64, device='{DEVICE}')\n"
                  "mod = pickle.load(sys.stdin.buffer)\n"
                  "print(attune.attention(q, q, q, score_mod=mod, return_lse=True)[1].sum().item())")
        found = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(made), capture_output=True,
                               timeout=120)
        self.assertEqual(found.returncode, 0, found.stderr.decode())
        q = torch.ones(1, 8, 2, 64, device=DEVICE)
        self.assertAlmostEqual(float(found.stdout),
                               attune.attention(q, q, q, score_mod=made, return_lse=True)[1].sum().item(), places=4)

    def test_sums_of_numbers_with_alpha(self):
        q = torch.randn(1, 8, 2, 64, device=DEVICE)
        want = attune.attention(q, q, q, score_mod=lambda s, b, h, i, j: s * (1.5 * 2 + 1))
        found = attune.attention(q, q, q,
                                 score_mod=lambda s, b, h, i, j: s * torch.add(torch.add(s * 0, 1.5, alpha=2), 1))
        torch.testing.assert_close(found, want)

    def test_eight_bits(self):
        q, k, v = draw(1, 64, 4, 64), draw(1, 64, 2, 64), draw(1, 64, 2, 64)
        codes = [attune.quantise(x) for x in (q, k, v)]
        per_kv = torch.full((1, 2), 0.5, device=DEVICE)
        o = attune.flash.flash_attn_func(*(x for x, _ in codes), q_descale=per_kv, k_descale=codes[1][1],
                                         v_descale=codes[2][1])
        want = grids.reference(codes[0][0].double() * 0.5,
                               *(x.double() * s.double()[:, None, :, None] for x, s in codes[1:]))[0]
        self.compare(o, want, torch.bfloat16)


class Keywords(unittest.TestCase):
    """Public functions name all of their keywords."""
    # Names in a program; those of another function; ignored; for adapters.
    OPEN = {"mask_mod", "score_mod", "prepare", "get_scheduler_metadata", "attend_checked"}

    def functions(self):
        import attune.flashinfer
        import attune.torch
        from attune.flash import cute
        for module in (attune, attune.flash, cute, attune.flashinfer, attune.flex, attune.sdpa, attune.torch):
            for name in getattr(module, "__all__", dir(module)):
                found = getattr(module, name)
                for function in (vars(found).values() if isinstance(found, type) else (found, )):
                    home = str(getattr(function, "__module__", ""))
                    if callable(function) and home.startswith(module.__name__) and function.__name__[0] != "_":
                        yield f"{module.__name__}.{name}", function

    def test_signatures(self):
        count = 0
        for name, function in self.functions():
            if function.__name__ not in self.OPEN:
                parameters = inspect.signature(function).parameters.values()
                self.assertFalse([one for one in parameters if one.kind is one.VAR_KEYWORD], name)
                count += 1
        self.assertGreater(count, 100)

    def test_wrong_keywords(self):
        x, lse = draw(1, 4, 2, 16), torch.zeros(1, 2, 4)
        for function, given in ((attune.attention, (x, ) * 3), (attune.attention_kvcache, (x, ) * 3),
                                (attune.append_kv, (x, ) * 4), (attune.attention_backward, (*[x] * 5, lse)),
                                (attune.score_gradient, ("bias", *[x] * 5, lse)), (attune.why, (x, ) * 3),
                                (attune.torch.spec, ()), (attune.flash.flash_attn_func, (x, ) * 3)):
            with self.assertRaisesRegex(TypeError, rf"^{function.__name__}\(\) got .* keyword argument 'no'"):
                function(*given, no=1)
            with self.assertRaisesRegex(TypeError, rf"^{function.__name__}\(\) "):
                function(*[x] * 30)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""
    if DEVICE == "cuda" and not torch.cuda.is_available():
        print("SKIP: PyTorch sees no GPU here")
        sys.exit(77)
    try:
        attune.Context(DEVICE, store="")
    except attune.Error as error:
        print(f"SKIP: {error}")
        sys.exit(77)
    unittest.main()
