#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashAttention's serving functions and FlashInfer's wrappers inside graphs, on PyTorch's CPU tensors: no graph
breaks, results equal eager calls, caches are written in place, and lengths may change between calls. Arguments: whole:
inductor for all.

    signatures_graphs_test.py [whole]

Skips aloud (status 77) without PyTorch or the CPU target."""
import unittest
import warnings

from skips import run, torch
from serving_graphs_test import BACKENDS, WHOLE, Module, flat, ints, operands
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import attune
import attune.flash
import attune.flashinfer as flashinfer

COS, SIN = attune.rotary_table(64, 32, like=torch.zeros(1))
SLOPES, SLOPES_OF_EACH = torch.rand(4), torch.rand(2, 4)
attend, varlen = attune.flash.flash_attn_with_kvcache, attune.flash.flash_attn_varlen_func

# Calls with q, k, v, both caches, a table and lengths, as operands() makes them.
OVER_CACHES = {
    "read": lambda q, k, v, kc, vc, table, n: attend(q, kc, vc, cache_seqlens=n, block_table=table, causal=True),
    "write": lambda q, k, v, kc, vc, table, n: attend(q, kc, vc, k, v, cache_seqlens=n - 2, block_table=table, causal=
                                                      True, return_softmax_lse=True),
    "turned": lambda q, k, v, kc, vc, table, n: attend(q, kc, vc, k, v, COS, SIN, n - 2, block_table=table, causal=True,
                                                       softcap=3.0, alibi_slopes=SLOPES, window_size=(9, 0)),
    "turned alike": lambda q, k, v, kc, vc, table, n: attend(q, kc, vc, k, v, COS, SIN, n - 2, block_table=table),
    "slots": lambda q, k, v, kc, vc, table, n: attend(q, kc, vc, k, v, cache_seqlens=n // 8, cache_batch_idx=table[:, 0]
                                                      .contiguous(), causal=True),
    "padding ahead": lambda q, k, v, kc, vc, table, n: attend(q, kc, vc, k, v, COS, SIN, n // 8 + 3, cache_leftpad=ints(
        1, 3), causal=True),
    "a number": lambda q, k, v, kc, vc, table, n: attend(q, kc, vc, k, v, cache_seqlens=5, block_table=table, causal=
                                                         True),
    "end to end": lambda q,
    k, v, kc, vc, table, n: attend(q.flatten(0, 1), kc, vc, cache_seqlens=n, page_table=table, cu_seqlens_q=ints(
        0, 1, 4), max_seqlen_q=3, causal=True, attention_chunk=8), }
NARROW = {
    "rounded": OVER_CACHES["write"],
    "codes": lambda q, k, v, kc, vc, table, n: attend(q, kc, vc, k.to(kc.dtype), v.to(vc.dtype), cache_seqlens=n - 2,
                                                      block_table=table, causal=True), }
# Calls with q, k, v, two equal lists, and the longest length.
OF_SEQUENCES = {
    "two lists": lambda q, k, v, cu, other, most: varlen(q, k, v, cu, other, most, most, causal=True, softcap=3.0,
                                                         alibi_slopes=SLOPES, return_lse=True),
    "one list": lambda q, k, v, cu, other, most: varlen(q, k, v, cu, cu, most, most, causal=True, return_attn_probs=True
                                                        )[:2],
    "without a mask": lambda q, k, v, cu, other, most: varlen(q, k, v, cu, cu, most, most),
    "slopes of each": lambda q, k, v, cu, other, most: varlen(q, k, v, cu, cu, most, most, causal=True, alibi_slopes=
                                                              SLOPES_OF_EACH),
    "chunks": lambda q, k, v, cu, other, most: varlen(q, k, v, cu, cu, most, most, causal=True, attention_chunk=4),
    "pages": lambda q, k, v, cu, other, most: varlen(q, k.new_ones(4, 16, 2, 32), v.new_ones(4, 16, 2, 32), cu, other,
                                                     most, most, causal=True, block_table=ints(0, 1, 2, 3).view(2, 2)),
    "some keys": lambda q, k, v, cu, other, most: varlen(q, k, v, cu, other, most, most, causal=True, seqused_k=(other[
        1:] - other[:-1]) - 1),
    "into out": lambda q, k, v, cu, other, most: varlen(q, k, v, cu, other, most, most, causal=True, out=torch.
                                                        empty_like(q)), }
LENGTHS = ((5, 9), (17, 30), (60, 2), (33, 8))
COUNTS = ((5, 9), (7, 8), (6, 5), (9, 2), (3, 4))


def sequences(counts):
    torch.manual_seed(sum(counts))
    rows, begins = sum(counts), ints(0, counts[0], sum(counts))
    return [*(torch.randn(rows, heads, 32) for heads in (4, 2, 2)), begins, begins.clone(), max(counts)]


PAGES, LATENT = torch.randn(12, 2, 16, 2, 32), torch.randn(12, 16, 96)


def lists_of(lengths):
    counts = [-(-n // 16) for n in lengths]
    return ints(0, counts[0],
                sum(counts)), torch.arange(12).flip(0)[:sum(counts)].int(), ints(*((n - 1) % 16 + 1 for n in lengths))


def decoding():
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(use_cuda_graph=True, most_pages=4)
    return lambda n: wrapper.plan(*lists_of(n), 4, 2, 32, 16), lambda q: wrapper.run(q, PAGES), lambda n: [
        torch.randn(2, 4, 32)]


def prompts():
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper()
    return (lambda n: wrapper.plan(ints(0, 3, 5), *lists_of(n), 4, 2, 32, 16, causal=True),
            lambda q: wrapper.run_return_lse(q, PAGES), lambda n: [torch.randn(5, 4, 32)])


def masked():
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper()
    return (lambda n: wrapper.plan(ints(0, 3, 5), *lists_of(n), 4, 2, 32, 16, custom_mask=torch.rand(3 * n[0] + 2 * n[
        1]) > 0.3), lambda q: wrapper.run(q, PAGES), lambda n: [torch.randn(5, 4, 32)])


def ragged():
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper()
    return (lambda n: wrapper.plan(ints(0, 3, 5), ints(0, n[0], sum(n)), 4, 2, 32, causal=True),
            lambda q, k, v: wrapper.run(q, k, v, return_lse=True),
            lambda n: [torch.randn(5, 4, 32), *(torch.randn(sum(n), 2, 32) for _ in "kv")])


def levels():
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2)
    prefix = ints(0, 2), ints(3, 4), ints(1)
    return (lambda n: wrapper.plan([ints(0, 2), ints(0, 1, 2)], *zip(prefix, lists_of(n)), 4, 2, 32, 16),
            lambda q: wrapper.run(q, PAGES), lambda n: [torch.randn(2, 4, 32)])


def latent():
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper()
    return (lambda n: wrapper.plan(ints(0, 1, 2),
                                   *lists_of(n)[:2], ints(*n), 4, 64, 32, 16, False, 0.1),
            lambda q, r: wrapper.run(q, r, LATENT[..., :64], LATENT[..., 64:], return_lse=True),
            lambda n: [torch.randn(2, 4, 64), torch.randn(2, 4, 32)])


def latent_apart():
    plan, _, given = latent()
    wrapper, apart = plan.__closure__[0].cell_contents, [LATENT[..., :64].clone(), LATENT[..., 64:].clone()]
    return plan, lambda q, r: wrapper.run(q, r, *apart), given


class SignaturesGraphsTest(unittest.TestCase):
    def near(self, found, want, what):
        for one, other in zip(found, want, strict=True):
            if torch.is_tensor(one):
                self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape), what)
                self.assertTrue(torch.allclose(one.float(), other.float(), rtol=1e-5, atol=2e-6), what)

    def compiled(self, function, backend):
        torch._dynamo.reset()
        counter = CompileCounterWithBackend(backend)
        return torch.compile(function, fullgraph=True, backend=counter), counter

    def over_caches(self, call, function, **given):
        for lengths in LENGTHS:
            ours, eager = operands(lengths, **given), operands(lengths, **given)
            self.near([*flat(call(*ours)), *ours], [*flat(function(*eager)), *eager], lengths)

    def test_caches_and_tables_of_any_size_share_a_graph(self):
        """Words of refusals made their extents constants of the graph."""
        q, k = torch.randn(2, 1, 4, 32), torch.randn(2, 1, 2, 32)
        calls = {
            "slots": (lambda q, c, n: attend(q, c, c, cache_seqlens=n, causal=True), lambda i:
                      (q, torch.randn(2, 20 + i, 2, 32), ints(5, 9))),
            "new keys": (lambda q, c, n, k: attend(q, c, c.clone(), k, k, cache_seqlens=n), lambda i:
                         (q, torch.randn(2, 40, 2, 32), ints(5, 9), k.expand(2, i, 2, 32))),
            "pages": (lambda q, c, n, t: attend(q, c, c, cache_seqlens=n, block_table=t), lambda i:
                      (q, torch.randn(40, 4, 2, 32), ints(5, 9), torch.arange(2 * (3 + i)).int().view(2, -1)))}
        for name, (function, operands_of) in calls.items():
            torch._dynamo.reset()
            counter = CompileCounterWithBackend("aot_eager")
            compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=counter)
            for i in range(2, 14):
                given = operands_of(i)
                self.near(flat(compiled(*given)), flat(function(*given)), name)
            self.assertLessEqual(counter.frame_count, 3, name)

    def test_exports_of_any_length(self):
        class Sequences(torch.nn.Module):
            def forward(self, q, cu):
                rows = q.flatten(0, 1)
                return varlen(rows, rows, rows, cu, cu, q.shape[1], q.shape[1], causal=True)

        exported = torch.export.export(Sequences(), (torch.randn(2, 20, 4, 32), ints(0, 20, 40)), dynamic_shapes=({
            1: torch.export.Dim("S", max=99)}, None))
        q, cu = torch.randn(2, 31, 4, 32), ints(0, 31, 62)
        self.near([exported.module()(q, cu)], [Sequences()(q, cu)], "31")

    def test_lengths_of_pages(self):
        lengths = lambda a, b: flashinfer.get_seq_lens(a, b, 16)  # noqa: E731
        given = ints(0, 2, 3), ints(5, 16)
        self.assertEqual(
            torch.compile(lengths, fullgraph=True, backend="aot_eager")(*given).tolist(),
            lengths(*given).tolist())

    def test_over_caches(self):
        for backend in BACKENDS:
            few = not WHOLE and backend != "aot_eager"
            for name, function in list(OVER_CACHES.items())[2 if few else 0:3 if few else None]:
                with self.subTest(name, backend=backend):
                    call, counter = self.compiled(function, backend)
                    self.over_caches(call, function)
                    self.assertEqual(counter.frame_count, 1)

    def test_over_caches_of_eight_bits(self):
        for name, function in NARROW.items():
            with self.subTest(name):
                given = dict(dtype=torch.bfloat16, cache=torch.float8_e4m3fn)
                self.over_caches(self.compiled(function, "aot_eager")[0], function, **given)
                self.over_caches(make_fx(function)(*operands(LENGTHS[0], **given)), function, **given)

    def test_over_caches_traced(self):
        for name, function in OVER_CACHES.items():
            with self.subTest(name), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                given = tuple(operands(LENGTHS[0]))
                self.over_caches(make_fx(function)(*given), function)
                self.over_caches(torch.jit.trace(Module(function), given, check_trace=False), function)
                self.over_caches(torch.export.export(Module(function), given, strict=False).module(), function)

    def test_sequences_end_to_end(self):
        for backend in BACKENDS:
            few = not WHOLE and backend != "aot_eager"
            for name, function in list(OF_SEQUENCES.items())[:1 if few else None]:
                with self.subTest(name, backend=backend):
                    call, counter = self.compiled(function, backend)
                    for counts in COUNTS:
                        self.near(flat(call(*sequences(counts))), flat(function(*sequences(counts))), counts)
                    self.assertLessEqual(counter.frame_count, 2)

    def test_sequences_traced(self):
        for name, function in OF_SEQUENCES.items():
            with self.subTest(name):
                *given, most = sequences(COUNTS[0])
                graph = make_fx(lambda *x: function(*x, most))(*given)
                given[3:5] = [ints(0, 9, 14)] * 2
                self.near(flat(graph(*given)), flat(function(*given, most)), name)

    def test_gradients_of_sequences(self):
        def gradients(function, given):
            for x in given[:3]:
                x.requires_grad_()
            flat(function(*given))[0].square().sum().backward()
            return [x.grad for x in given[:3]]
        function = lambda q, k, v, cu, other, most: varlen(q, k, v, cu, cu, most, most, causal=True)  # noqa: E731
        call, _ = self.compiled(function, "aot_eager")
        for counts in COUNTS[:3]:
            self.near(gradients(call, sequences(counts)), gradients(function, sequences(counts)), counts)

    def test_arguments_that_graphs_cannot_hold_are_refused_by_name(self):
        def refused(message, gradients=False, **choices):
            two = choices.pop("two", False)
            given = sequences((5, 9))
            given[0].requires_grad_(gradients)
            function = lambda q, k, v, cu, other, most: varlen(q, k, v, cu, other
                                                               if two else cu, most, most, **choices)  # noqa: E731
            with self.assertRaisesRegex(Exception, message):
                self.compiled(function, "aot_eager")[0](*given)

        refused("score_mod of sequences end to end would be a program that reads tensors of the graph",
                score_mod=lambda s, b, h, i, j: s * 2)
        refused("alibi_slopes of each sequence, with gradients, would be", True, alibi_slopes=SLOPES_OF_EACH,
                causal=True)
        refused("attention_chunk with gradients, would be a program", True, attention_chunk=4, causal=True)
        refused("cu_seqlens_q and cu_seqlens_k are different tensors;", True, causal=True, two=True)

    def test_wrong_lengths_are_refused_when_the_graph_runs(self):
        call, _ = self.compiled(OVER_CACHES["write"], "aot_eager")
        call(*operands((5, 9)))
        with self.assertRaisesRegex(ValueError, r"kv_lengths\[0\] is 65; must be 0 to 64"):
            call(*operands((65, 9)))
        with self.assertRaisesRegex(ValueError, r"kv_lengths\[1\] is -1; must be 0 to 64"):
            call(*operands((9, 1)))
        call, _ = self.compiled(OF_SEQUENCES["two lists"], "aot_eager")
        *given, most = sequences((5, 9))
        given[3] = ints(0, 15, 14)
        with self.assertRaisesRegex(ValueError, r"q_begins\[1\] is 15; must be 0 to 14"):
            call(*given, most)

    def test_wrappers(self):
        for make in (decoding, prompts, masked, ragged, levels, latent, latent_apart):
            plan, run, given = make()
            call, counter = self.compiled(run, "aot_eager")
            with self.subTest(make.__name__), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # separate latent caches are copied with a warning
                for lengths in ([20, 33], [21, 40], [10, 36], [25, 39], [30, 45]):
                    plan(lengths)
                    now = given(lengths)
                    self.near(flat(call(*now)), flat(run(*now)), lengths)
                self.assertLessEqual(
                    counter.frame_count,
                    3 if make is masked else 2)  # mask sizes: powers of two, graph constants


if __name__ == "__main__":
    run()
