#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune inside torch.compile, on PyTorch's CPU tensors: one graph without breaks, no compilation after the second
length, the same results as in eager mode. Arguments: whole: all features and surfaces, inductor, export. Skips aloud
(status 77) without PyTorch or the CPU target."""
import shutil
import sys
import unittest

from skips import run, torch
import attune
import attune.flash
import attune.flex
import attune.sdpa
from torch._dynamo.testing import CompileCounterWithBackend

WHOLE = "whole" in sys.argv and sys.argv.remove("whole") is None


def operands(seqlen_q=33, seqlen_kv=None, batch=2, dtype=torch.float32):
    torch.manual_seed(7)
    return [
        torch.randn(batch, rows, heads, 32).to(dtype)
        for rows, heads in ((seqlen_q, 4), (seqlen_kv or seqlen_q, 2), (seqlen_kv or seqlen_q, 2))]


BIAS, SLOPES = torch.randn(4, 1, 1), torch.rand(4)
SCORE = attune.score_mod(lambda score, b, h, q_idx, kv_idx: score - SLOPES[h] * (q_idx - kv_idx).abs())
MASK = attune.mask_mod(lambda b, h, q_idx, kv_idx: q_idx - kv_idx < 9)


def half(q, k, v):
    return attune.attention(q * 2, k, v, mask="causal_bottom_right", window=(20, 0), softcap=9.0, context="cpu:1") + 1


def with_state(q, k, v):
    o, lse = attune.attention(q, k, v, is_causal=True, bias=BIAS, scale=0.2, return_lse=True)
    return o * torch.exp(lse - lse).transpose(1, 2)[..., None]


def with_programs(q, k, v):
    return attune.attention(q, k, v, score_mod=SCORE, mask_mod=MASK)


def with_a_function(q, k, v):
    return attune.attention(q, k, v, mask_mod=lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)


def into_out(q, k, v):
    out = torch.empty_like(q)
    attune.attention(q, k, v, out=out, return_lse=True)
    return out


def in_eight_bits(q, k, v):
    (q8, q_scale), (k8, k_scale), (v8, v_scale) = (attune.quantise(x, scale_block=16) for x in (q, k, v))
    return attune.attention(q8, k8, v8, q_scale=q_scale, k_scale=k_scale, v_scale=1.0, scale_block=16, out_dtype="fp16")


def as_sdpa(q, k, v):
    return attune.sdpa.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),
                                                    is_causal=True, enable_gqa=True)


def as_flash(q, k, v):
    return attune.flash.flash_attn_func(q, k, v, causal=True, window_size=(10, -1), softcap=3.0, alibi_slopes=SLOPES,
                                        return_lse=True)[0]


def as_flex(q, k, v):
    return attune.flex.flex_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), SCORE, enable_gqa=True)


def merged(q, k, v):
    return attune.merge(*attune.attention(q, k, v, return_lse=True), *attune.attention(q, k * 2, v, return_lse=True))[0]


def of_two_layers(q, k, v):
    return attune.attention(attune.attention(q, k, v, is_causal=True), k, v, window=(5, 5), softcap=4.0)


FUNCTIONS = (of_two_layers, ) + (
    (with_state, with_programs, half, with_a_function, into_out, as_sdpa, as_flash, as_flex, merged) if WHOLE else ())


class CompileTest(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()

    def compiled(self, function, backend="aot_eager", **given):
        counter = CompileCounterWithBackend(backend)
        return torch.compile(function, fullgraph=True, backend=counter, **given), counter

    def test_lengths_compile_twice_at_most(self):
        for function in FUNCTIONS:
            torch._dynamo.reset()
            call, counter = self.compiled(function)
            for number, rows in enumerate((20, 33, 34, 57, 64, 19)):
                with self.subTest(function=function.__name__,
                                  rows=rows), torch._dynamo.config.patch(error_on_recompile=number >= 2):
                    given = operands(rows)
                    self.assertLess((call(*given) - function(*given)).abs().max().item(), 1e-5)
            self.assertEqual(counter.frame_count, 2, function.__name__)

    @unittest.skipUnless(WHOLE, "takes long")
    def test_unequal_lengths_and_batches(self):
        call, counter = self.compiled(as_flash)
        for number, (batch, rows, keys) in enumerate(((2, 20, 30), (3, 33, 41), (4, 31, 77), (5, 50, 60))):
            with torch._dynamo.config.patch(error_on_recompile=number >= 2):
                given = operands(rows, keys, batch)
                self.assertLess((call(*given) - as_flash(*given)).abs().max().item(), 1e-5)
        self.assertEqual(counter.frame_count, 2)

    def test_marked_lengths_compile_once(self):
        call, counter = self.compiled(half)
        for rows in (20, 33, 64):
            given = operands(rows)
            for x in given:
                torch._dynamo.mark_dynamic(x, 1)
            call(*given)
        self.assertEqual(counter.frame_count, 1)

    def test_numbers_that_are_symbols(self):
        """With dynamic=True PyTorch treats defaults as numbers that change. Once no such call compiled, nor did a call
        with another softcap or window."""
        flash = lambda q, k, v, dropout_p, softcap, window: attune.flash.flash_attn_func(
            q, k, v, dropout_p, softcap=softcap, window_size=window)
        for dynamic in (True, None):
            torch._dynamo.reset()
            call, _ = self.compiled(flash, dynamic=dynamic)
            for given in ((0.0, 3.0, (9, 1)), (0.0, 4.0, (8, 1)), (0.25, 0.0, (-1, -1))):
                torch.manual_seed(1)
                found = call(*operands(), *given)
                torch.manual_seed(1)
                self.assertTrue(torch.equal(found, flash(*operands(), *given)))
        half_of_them = lambda q, k, v: attune.flash.flash_attn_func(q, k, v, window_size=(q.shape[1] // 2, 0))
        masked = lambda q, k, v: attune.sdpa.scaled_dot_product_attention(q, k, v, torch.ones(q.shape[2], k.shape[2]),
                                                                          enable_gqa=True)
        of_lengths, with_mask = (self.compiled(function, dynamic=True)[0] for function in (half_of_them, masked))
        for rows in (20, 33):
            self.assertTrue(torch.equal(of_lengths(*operands(rows)), half_of_them(*operands(rows))))
            given = [x.transpose(1, 2) for x in operands(rows)]
            self.assertTrue(torch.equal(with_mask(*given), masked(*given)))

    def test_tensors_of_programs_are_inputs_of_the_graph(self):
        table = torch.rand(4)
        program = attune.score_mod(lambda score, b, h, q_idx, kv_idx: score * table[h])
        function = lambda q, k, v: attune.attention(q, k, v, score_mod=program)
        call, counter = self.compiled(function)
        given = operands()
        first = call(*given)
        table.mul_(3)  # in place: the graph reads it anew
        with torch._dynamo.config.patch(error_on_recompile=True):
            second = call(*given)
        self.assertGreater((first - second).abs().max().item(), 1e-3)
        self.assertTrue(torch.equal(second, function(*given)))

    def test_other_programs_make_other_graphs(self):
        programs = [attune.score_mod(f"return score * {factor};")
                    for factor in (0.5, 2.0)] + ["return score * 0.25;", None]
        function = lambda q, k, v, program: attune.attention(q, k, v, score_mod=program)
        call, _ = self.compiled(function)
        for program in (*programs, *programs):
            self.assertTrue(torch.equal(call(*operands(), program), function(*operands(), program)))

    def test_functions_that_read_tensors_are_refused(self):
        table = torch.rand(4)
        call, _ = self.compiled(lambda q, k, v, mod: attune.attention(q, k, v, score_mod=mod))
        with self.assertRaisesRegex(
                Exception,
                r"score_mod is a function that reads table; in a graph it must be a result of attune.score_mod\(\)"):
            call(*operands(), lambda score, b, h, q_idx, kv_idx: score * table[h])

    @unittest.skipUnless(WHOLE, "takes long")
    def test_block_masks(self):
        from torch.nn.attention.flex_attention import create_block_mask
        given = [x.transpose(1, 2) for x in operands(200)]
        masks = [
            create_block_mask(mod, None, None, 200, 200, device="cpu")
            for mod in (MASK, lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)]
        function = lambda q, k, v, mask: attune.flex.flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
        call, _ = self.compiled(function)
        with self.assertRaisesRegex(Exception, r"block_mask has no map yet.*attune.flex.prepare|Observed exception"):
            call(*given, masks[0])
        torch._dynamo.reset()
        for mask in map(attune.flex.prepare, masks):
            self.assertTrue(torch.equal(call(*given, mask), function(*given, mask)))

    def test_gradients_of_biases(self):
        q, k, v = operands()
        call, _ = self.compiled(half)
        bias = torch.zeros(4, 33, 33, requires_grad=True)
        biased, _ = self.compiled(lambda q, k, v: attune.attention(q, k, v, bias=bias))
        found, = torch.autograd.grad(biased(q, k, v).square().sum(), bias)
        want, = torch.autograd.grad(attune.attention(q, k, v, bias=bias).square().sum(), bias)
        self.assertTrue(torch.allclose(found, want, atol=1e-5))
        with torch.no_grad():
            self.assertTrue(torch.equal(call(q, k, v), half(q, k, v)))

    def test_autocast(self):
        given = operands()
        function = lambda q, k, v: attune.attention(q, k, v.bfloat16(), bias=BIAS)
        call, _ = self.compiled(function)
        with torch.autocast("cpu", torch.bfloat16):
            got = call(*given)
            self.assertEqual(got.dtype, torch.bfloat16)
            self.assertTrue(torch.equal(got, function(*given)))

    @unittest.skipUnless(WHOLE, "takes long")
    def test_eight_bits(self):
        call, counter = self.compiled(in_eight_bits)
        for number, rows in enumerate((32, 48, 64, 80)):
            with torch._dynamo.config.patch(error_on_recompile=number >= 2):
                given = operands(rows, dtype=torch.bfloat16)
                self.assertTrue(torch.equal(call(*given), in_eight_bits(*given)))
        self.assertEqual(counter.frame_count, 2)

    @unittest.skipUnless(WHOLE, "takes long")
    @unittest.skipUnless(shutil.which("g++") or shutil.which("c++"), "inductor needs a C++ compiler")
    def test_inductor(self):
        call, counter = self.compiled(with_state, "inductor", dynamic=True)
        counts = [
        ]
        # The first count is 2 if inductor finds nothing in its cache: it makes scalars constants, and PyTorch traces
        # again.
        for number, rows in enumerate((20, 33, 57)):
            given = operands(rows)
            with torch._dynamo.config.patch(error_on_recompile=number >= 1):
                self.assertLess((call(*given) - with_state(*given)).abs().max().item(), 1e-5)
            counts.append(counter.frame_count)
        self.assertEqual(counts[1:], counts[:1] * 2)

    @unittest.skipUnless(WHOLE, "takes long")
    def test_export(self):
        class Layer(torch.nn.Module):
            def forward(self, q, k, v):
                return half(q, k, v)

        rows = torch.export.Dim("rows", min=2, max=1000)
        program = torch.export.export(Layer(), tuple(operands()), dynamic_shapes=[{1: rows}] * 3, strict=False)
        self.assertIn("attune.attention.default", program.graph_module.code)
        given = operands(50)
        self.assertTrue(torch.equal(program.module()(*given), half(*given)))


if __name__ == "__main__":
    run()
