#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Calls over caches inside graphs, on PyTorch's CPU tensors. make_fx, torch.jit.trace, torch.compile without graph
breaks and torch.export keep them as ops. Results equal eager calls, caches are written in place, and changed lengths
need no recompilation. Arguments: whole: more backends.

    serving_graphs_test.py [whole]

Skips aloud (status 77) without PyTorch or the CPU target."""
import io
import shutil
import sys
import unittest
import warnings

from skips import run, torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import attune

WHOLE = "whole" in sys.argv and sys.argv.remove("whole") is None
BACKENDS = ("aot_eager", *(("inductor", ) if shutil.which("g++") or shutil.which("c++") else
                           ()), *(("eager", ) if WHOLE else ()))
LENGTHS = ((5, 9), (17, 30), (64, 2), (33, 8))
SCORE = attune.score_mod(lambda score, b, h, q_idx, kv_idx: score * 2 + h)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def operands(lengths, dtype=torch.float32, cache=None):
    """q, k, v, caches of 8 pages of 16 keys, a table and lengths."""
    torch.manual_seed(sum(lengths))
    q, k, v = (torch.randn(2, 2, heads, 32).to(dtype) for heads in (4, 2, 2))
    caches = [torch.randn(8, 16, 2, 32).to(cache or dtype) for _ in "kv"]
    return [q, k, v, *caches, torch.randperm(8).int().reshape(2, 4), ints(*lengths)]


def step(q, k, v, k_cache, v_cache, table, lengths):
    attune.append_kv(k, v, k_cache, v_cache, lengths, page_table=table)
    return attune.attention_kvcache(q, k_cache, v_cache, lengths, page_table=table, is_causal=True)


COS, SIN = attune.rotary_table(64, 32, like=torch.zeros(1))


def turned(q, k, v, k_cache, v_cache, table, lengths):
    """In slots; with lse, out and a program."""
    q = attune.append_kv(k, v, k_cache, v_cache, lengths // 4 + 1, slots=table[:, 0].contiguous(), cos=COS, sin=SIN,
                         q=q)
    out = torch.empty_like(q)
    found, lse = attune.attention_kvcache(q, k_cache, v_cache, lengths // 4, slots=table[:, 0].contiguous(),
                                          window=(9, 0), softcap=5.0, score_mod=SCORE, sinks=torch.arange(4.0), out=out,
                                          return_lse=True, context="cpu:1", batch_invariant=True)
    return found + lse.transpose(1, 2)[..., None].exp(), out


def packed(q, k, v, k_cache, v_cache, table, lengths):
    q, begins = q.flatten(0, 1), ints(0, 1, 4)
    attune.append_kv(k.flatten(0, 1), v.flatten(0, 1), k_cache, v_cache, lengths, page_table=table, q_begins=begins,
                     seqlen_q=3)
    return attune.attention_kvcache(q, k_cache, v_cache, lengths, page_table=table, q_begins=begins, seqlen_q=3,
                                    return_lse=True)


def in_eight_bits(q, k, v, k_cache, v_cache, table, lengths):
    scales = [torch.ones(8, 16, 2) for _ in "kv"]
    attune.append_kv(k, v, k_cache, v_cache, lengths, page_table=table, k_scale=scales[0], v_scale=scales[1],
                     make_scales=True)
    return attune.attention_kvcache(q, k_cache, v_cache, lengths, page_table=table, k_scale=scales[0],
                                    v_scale=scales[1]), *scales


def with_numbers(q, k, v, k_cache, v_cache, table, lengths):
    attune.append_kv(k, v, k_cache, v_cache, lengths, page_table=table, k_scale=0.5, v_scale=2.0)
    return attune.attention_kvcache(q, k_cache, v_cache, lengths, page_table=table, k_scale=0.5, v_scale=2.0)


def of_levels(q, k, v, k_cache, v_cache, table, lengths):
    common = dict(k_cache=k_cache, v_cache=v_cache)
    return attune.cascade(q.flatten(0, 1), [
        dict(common, q_begins=ints(0, 4), seqlen_q=4, kv_lengths=ints(16), page_table=ints(7)[None]),
        dict(common, q_begins=ints(0, 2, 4), seqlen_q=2, kv_lengths=lengths, page_table=table),
        dict(common, q_begins=ints(0, 3, 4), seqlen_q=3, kv_lengths=ints(9, 4), slots=ints(1, 6))], is_causal=True,
                          return_lse=True)


CASES = {
    "step": (step, {}), "turned": (turned, {}), "packed": (packed, {}),
    "levels": (of_levels, dict(dtype=torch.bfloat16)),
    "made factors": (in_eight_bits, dict(dtype=torch.bfloat16, cache=torch.int8)),
    "numbers": (with_numbers, dict(dtype=torch.bfloat16, cache=torch.float8_e4m3fn))}


def flat(result):
    return list(result) if isinstance(result, tuple) else [result]


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *given):
        return self.function(*given)


class ServingGraphsTest(unittest.TestCase):
    def same(self, call, function, lengths=LENGTHS, **given):
        """Results, and what is in the operands afterwards."""
        for now in lengths:
            ours, eager = operands(now, **given), operands(now, **given)
            found, want = [*flat(call(*ours)), *ours], [*flat(function(*eager)), *eager]
            for number, (one, other) in enumerate(zip(found, want, strict=True)):
                self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
                self.assertTrue(torch.allclose(one.float(), other.float(), rtol=1e-5, atol=1e-6),
                                f"{number} of {now}")  # inductor has another exp

    def test_make_fx(self):
        for name, (function, given) in CASES.items():
            for mode in ("real", "fake", "symbolic"):
                with self.subTest(name, mode=mode):
                    graph = make_fx(function, tracing_mode=mode,
                                    _allow_non_fake_inputs=True)(*operands(LENGTHS[0], **given))
                    self.assertIn("torch.ops.attune.attention_kvcache", graph.code)
                    self.same(graph, function, **given)

    def test_jit_trace(self):
        for name, (function, given) in CASES.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call = torch.jit.trace(Module(function), tuple(operands(LENGTHS[0], **given)), check_trace=False)
                self.same(call, function, **given)

    def test_compile(self):
        for backend in BACKENDS:
            for name, (function,
                       given) in CASES.items() if WHOLE or backend == "aot_eager" else list(CASES.items())[:1]:
                torch._dynamo.reset()
                counter = CompileCounterWithBackend(backend)
                with self.subTest(name, backend=backend):
                    self.same(torch.compile(function, fullgraph=True, backend=counter), function, **given)
                    self.assertEqual(counter.frame_count, 1)

    def test_export_and_back(self):
        for name, (function, given) in CASES.items():
            for strict in (False, True) if WHOLE else (False,):
                with self.subTest(name, strict=strict):
                    program = torch.export.export(Module(function), tuple(operands(LENGTHS[0], **given)), strict=strict)
                    file = io.BytesIO()
                    torch.export.save(program, file)
                    file.seek(0)
                    self.same(torch.export.load(file).module(), function, **given)

    def test_other_batches_and_longest_requests_compile_twice(self):
        function = lambda q, cache, lengths, longest: attune.attention_kvcache(
            q, cache, cache, lengths, q_begins=lengths.new_tensor([0, 1, longest + 1]), seqlen_q=longest)  # noqa: E731
        counter = CompileCounterWithBackend("aot_eager")
        call = torch.compile(function, fullgraph=True, backend=counter)
        for number, longest in enumerate((3, 4, 6, 9)):
            given = torch.randn(longest + 1, 4, 32), torch.randn(2, 16 + number, 2, 32), ints(9, 7 + number), longest
            with torch._dynamo.config.patch(error_on_recompile=number >= 2):
                self.assertTrue(torch.equal(call(*given), function(*given)))
        self.assertEqual(counter.frame_count, 2)

    def test_a_given_out_may_be_fp32(self):
        torch._dynamo.reset()
        read = lambda q, cache, lengths, out: attune.attention_kvcache(q, cache, cache, lengths, out=out)  # noqa: E731
        given = torch.randn(2, 1, 4, 32).bfloat16(), torch.randn(2, 16, 2, 32).bfloat16(), ints(9, 7)
        for dtype in (torch.float32, torch.bfloat16):
            outs = [torch.zeros(2, 1, 4, 32, dtype=dtype) for _ in range(2)]
            torch.compile(read, fullgraph=True, backend="aot_eager")(*given, outs[0])
            self.assertTrue(torch.equal(outs[0], read(*given, outs[1])))
        with self.assertRaisesRegex(Exception, "o is torch.float16 .* must be torch.bfloat16 or torch.float32 with 4"):
            torch.compile(read, fullgraph=True, backend="aot_eager")(*given, torch.zeros(2, 1, 4, 32).half())

    def test_wrong_lists_are_refused_when_the_graph_runs(self):
        torch._dynamo.reset()
        read = lambda q, k, v, k_cache, v_cache, table, lengths: attune.attention_kvcache(
            q, k_cache, v_cache, lengths, page_table=table)  # noqa: E731
        call = torch.compile(read, fullgraph=True, backend="aot_eager")
        call(*operands((3, 4)))
        with self.assertRaisesRegex(ValueError, r"kv_lengths\[1\] is 65; must be 0 to 64"):
            call(*operands((3, 65)))

    def test_arguments_without_an_op_are_refused_by_name(self):
        own, given = attune.Context("cpu", store=""), operands((3, 4))
        table = torch.rand(4)
        cases = ((dict(context=own), "context is .*Context.* in a spec it must be None or a target"),
                 (dict(score_mod=lambda s, b, h, i, j: s * table[h]),
                  r"score_mod is a function that reads table; in a graph it must be a result of attune.score_mod\(\)"))
        for choices, message in cases:
            torch._dynamo.reset()
            function = lambda q, k, v, k_cache, v_cache, pages, lengths: attune.attention_kvcache(  # noqa: E731
                q, k_cache, v_cache, lengths, page_table=pages, **choices)
            with self.assertRaisesRegex(Exception, message):
                torch.compile(function, fullgraph=True, backend="aot_eager")(*given)
        with self.assertRaisesRegex(ValueError, "in a spec it must be None or a target"):
            make_fx(lambda *x: attune.append_kv(x[1], x[2], x[3], x[4], x[6], page_table=x[5], context=own))(*given)

    @unittest.skipUnless("inductor" in BACKENDS, "inductor needs a C++ compiler")
    def test_inductor_copies_no_cache(self):
        from torch._inductor.utils import run_and_get_code
        torch._dynamo.reset()
        _, code = run_and_get_code(torch.compile(step, fullgraph=True), *operands((3, 4)))
        self.assertIn("torch.ops.attune.append_kv.default(", code[0])
        for copy in ("empty_strided_cpu((8, 16, 2, 32)", "cpp_fused"):
            self.assertNotIn(copy, code[0].replace("from torch", ""))

    def test_ops_agree_with_their_schemas(self):
        import attune.torch
        q, k, v, k_cache, v_cache, table, lengths = operands((3, 4))
        latent, rows = torch.randn(8, 16, 96), dict(q_begins=ints(0, 1, 4), seqlen_q=3)
        common, ops = dict(kv_lengths=lengths, page_table=table), torch.ops.attune
        for op, given, more in ((ops.attention_kvcache, (q, k_cache, v_cache), {}), (ops.attention_kvcache, (q.flatten(
                0, 1), k_cache, v_cache), rows), (ops.attention_kvcache_out, (q, k_cache, v_cache),
                                                  dict(o=torch.empty_like(q), lse=torch.empty(2, 4, 2))),
                                (ops.append_kv, (k, v, k_cache, v_cache), dict(
                                    q=q, q_out=q.clone(), cos=COS, sin=SIN)), (ops.attention_latent, (torch.randn(
                                        4, 4, 64), torch.randn(4, 4, 32), latent[..., :64], latent[..., 64:]), rows)):
            torch.library.opcheck(op, given, {**common, **more})

    def test_words_of_other_ops_are_refused(self):
        q, k, v, k_cache, v_cache, table, lengths = operands((3, 4))
        import attune.torch
        for spec, op in ((attune.torch.spec(chunk=4),
                          "attention_kvcache"), (attune.torch.spec(mask="causal_bottom_right"), "append_kv"),
                         (attune.torch.spec(batch_invariant=True), "attention")):
            call = {
                "attention": lambda spec: torch.ops.attune.attention(q, k, v, spec=spec),
                "append_kv": lambda spec: torch.ops.attune.append_kv(k, v, k_cache, v_cache, spec=spec),
                "attention_kvcache": lambda spec: torch.ops.attune.attention_kvcache(q, k_cache, v_cache, spec=spec)
            }[op]
            with self.assertRaisesRegex(ValueError, f"spec has .*; must be .*= of {op}, each once"):
                call(spec)

    def test_gradients_are_refused(self):
        given = operands((3, 4))
        given[0].requires_grad_()
        with self.assertRaisesRegex(Exception, "q requires a gradient, and attune gives none of it here"):
            torch.compile(step, fullgraph=True, backend="aot_eager")(*given)
        with torch.no_grad():
            self.same(torch.compile(step, fullgraph=True, backend="aot_eager"), step)


if __name__ == "__main__":
    run()
