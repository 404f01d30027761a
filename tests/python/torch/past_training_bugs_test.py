#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults that kernels and frameworks had in training in the past, in any project: each has a test, here or in the file
named below.

    past_training_bugs_test.py [cuda] [whole]     whole: 10,000 equal runs, every head dim

Elsewhere:
  dout that is expanded, sliced or transposed            autograd_test: test_random_problems
  lengths of 0                                           attention_backward_torch_test: test_lengths_of_zero
  rows that see no key, keys that no row sees            backward_test: InvisibleRowsAndKeysHaveZeroGradients;
                                                         backward_cpu_test: 256 rows of 3 keys, 128 of 1
  workspace of padding rows is not written               backward_case.cpp: outputs and workspace hold NaN before each
                                                         run
  a flag of determinism is ignored                       deterministic_test; here: test_equal_runs
  masks of dropout differ in backward, in a remat        dropout_torch_test: test_forward_and_backward_keep_the_same,
                                                         test_checkpoint,
                                                         test_compiled_checkpoint
  a seed is read on the host                             dropout_torch_test:
                                                         test_tensors_are_read_when_the_kernel_runs,
                                                         test_captured_graphs
  another order of accumulators than its reader's        backward_test: EveryKernelGivesTheGradientsOfTheReference
                                                         draws head dims and configs
  races of shared memory                                 tests/bench/cuda/sanitize.py; here: test_few_steps
  a chosen kernel is far slower than another             tests/bench/cuda/backward.py: every point beside its peers

Skips aloud (status 77) without PyTorch, the CPU target or, with cuda, a GPU."""
import unittest

import gradient_cases
import published_grids as grids
import torch
from gradient_cases import ALLOWED, DEVICE, PLACE, WHOLE, GradientsTest, draw, leaf, wanted

import attune

DTYPE = torch.bfloat16 if DEVICE == "cuda" else torch.float32


def operands(rows, keys, heads=4, heads_kv=2, dim=64, batch=1):
    return draw(batch, rows, heads, dim, dtype=DTYPE), draw(batch, keys, heads_kv, dim, dtype=DTYPE), draw(
        batch, keys, heads_kv, dim, dtype=DTYPE)


def gradients(q, k, v, dout, **keywords):
    o, lse = attune.attention(q, k, v, return_lse=True, **keywords, **PLACE)
    return attune.attention_backward(dout, q, k, v, o, lse, deterministic=True, **keywords, **PLACE)


def of_torch(q, k, v, dout):
    """Returns the results of PyTorch's SDPA."""
    leaves = [leaf(x) for x in (q, k, v)]
    o = torch.nn.functional.scaled_dot_product_attention(*(x.transpose(1, 2) for x in leaves),
                                                         enable_gqa=True).transpose(1, 2)
    return torch.autograd.grad(o, leaves, dout)


class PastTest(GradientsTest):
    def near(self, found, q, k, v, dout, what="", **of_reference):
        self.assertNear(found, wanted(q, k, v, dout, **of_reference), ALLOWED[DTYPE], what)

    @unittest.skipUnless(DEVICE == "cuda", "kernels overlap on a GPU")
    def test_slow_previous_kernels(self):
        """The step that computes delta read dout before the previous kernel had written it: dq and dk were wrong.
        """
        q, k, v = operands(300, 300)
        o, lse = attune.attention(q, k, v, return_lse=True)
        dout, held = draw(*o.shape, dtype=DTYPE), torch.empty_like(o)
        want = attune.attention_backward(dout, q, k, v, o, lse, deterministic=True)
        load = draw(2048, 2048, dtype=DTYPE)
        for _ in range(1000):
            held.fill_(float("nan"))
            torch.mm(load, load)
            held.copy_(dout)
            found = attune.attention_backward(held, q, k, v, o, lse, deterministic=True)
            self.assertTrue(all(torch.equal(x, y) for x, y in zip(found, want)))

    @unittest.skipUnless(DEVICE == "cuda", "takes 10 GB")
    def test_places_beyond_32_bits(self):
        """Strides of dout, and of gradients, were ints."""
        q, k, v = operands(64, 64, batch=2)
        o, lse = attune.attention(q, k, v, return_lse=True)
        dout = draw(*o.shape, dtype=DTYPE)
        stride = 2 ** 31 + 8
        far = torch.empty(stride + 64 * 4 * 64, dtype=DTYPE, device=DEVICE).as_strided(o.shape, (stride, 256, 64, 1))
        far.copy_(dout)
        want = attune.attention_backward(dout, q, k, v, o, lse, deterministic=True)
        self.assertTrue(
            all(
                torch.equal(x, y)
                for x, y in zip(attune.attention_backward(far, q, k, v, o, lse, deterministic=True), want)))
        out = (far, torch.empty_like(k), torch.empty_like(v))
        attune.attention_backward(dout, q, k, v, o, lse, out=out, deterministic=True)
        self.assertTrue(torch.equal(out[0], want[0]))

    def test_many_batch_entries(self):
        """Places were counted in 32 bits, and grids in 16."""
        batch = 66000 if DEVICE == "cuda" else 700
        q, k, v = (x.expand(batch, -1, -1, -1).contiguous() for x in operands(3, 5, 2, 1, 32))
        dout = draw(1, 3, 2, 32, dtype=DTYPE).expand(batch, -1, -1, -1)
        for found, one in zip(gradients(q, k, v, dout), gradients(q[:1], k[:1], v[:1], dout[:1])):
            self.assertTrue(torch.equal(found, one.expand_as(found)))

    def test_few_steps(self):
        """P and dS were overwritten before the last product had read them, in loops of one, two and three steps.
        """
        for length in (1, 16, 33, 64, 65, 113, 128, 129, 192, 239):
            q, k, v = operands(length, length)
            dout = draw(*q.shape, dtype=DTYPE)
            want = gradients(q, k, v, dout)
            self.near(want, q, k, v, dout, f"length {length}")
            for _ in range(50 if DEVICE == "cuda" else 2):
                self.assertTrue(all(torch.equal(x, y) for x, y in zip(gradients(q, k, v, dout), want)), length)

    def test_equal_runs(self):
        """Semaphores were not initialised, or were another batch entry's; groups of heads were forgotten. Covers each
        mask, groups and several batch entries."""
        runs = 10000 if WHOLE else 200 if DEVICE == "cuda" else 3
        q, k, v = operands(520, 650, 6, 2, batch=2)
        dout = draw(*q.shape, dtype=DTYPE)
        for keywords in ({}, {"mask": "causal_bottom_right"}, {"mask": "causal_top_left"}, {"window": (100, 30)}):
            o, lse = attune.attention(q, k, v, return_lse=True, **keywords, **PLACE)
            run = lambda: attune.attention_backward(dout, q, k, v, o, lse, deterministic=True, **keywords, **PLACE)
            want = run()
            for _ in range(runs):
                self.assertTrue(all(torch.equal(x, y) for x, y in zip(run(), want)), keywords)

    def test_softcap(self):
        """Its derivative was computed after the mask, where scores are infinite, or by a wrong formula."""
        seen = grids.visible(70, 70, "top_left", device=DEVICE)
        for cap in (15.0, 50.0, 1.0):
            q, k, v = operands(70, 70)
            dout = draw(*q.shape, dtype=DTYPE)
            self.near(gradients(q, k, v, dout, softcap=cap, mask="causal"), q, k, v, dout, f"softcap {cap}",
                      softcap=cap, seen=seen)

    def test_softcap_is_applied_before_biases(self):
        q, k, v = operands(70, 90)
        dout, bias, slopes = draw(*q.shape, dtype=DTYPE), draw(4, 70, 90), draw(4).abs()
        found = gradients(q, k, v, dout, softcap=2.0, bias=bias, alibi_slopes=slopes)
        self.near(found, q, k, v, dout, softcap=2.0, bias=bias, alibi=slopes)

    def test_each_head_dim_with_groups(self):
        """Accumulators of groups were rounded to other widths than the kernel's."""
        dims = range(16, 257, 8) if WHOLE or DEVICE == "cuda" else (16, 72, 104, 160, 224)
        for dim in dims:
            q, k, v = operands(40, 50, 4, 1, dim)
            dout = draw(*q.shape, dtype=DTYPE)
            self.near(gradients(q, k, v, dout), q, k, v, dout, f"head dim {dim}")

    def test_dropout_and_causal_beyond_64_keys(self):
        q, k, v = operands(200, 200)
        dout = draw(*q.shape, dtype=DTYPE)
        kept = attune.dropout_mask((1, 4, 200, 200), 0.25, 5, like=q).double() / (1 - attune.dropout_rate(0.25))
        found = gradients(q, k, v, dout, mask="causal", dropout_p=0.25, seed=5)
        self.near(found, q, k, v, dout, seen=grids.visible(200, 200, "top_left", device=DEVICE), kept=kept)

    def test_backward_sees_what_forward_sees(self):
        """A window was ignored: with a dout of one row, dv is that row of P."""
        for keywords in ({}, {"mask": "causal_bottom_right"}, {"window": (9, 3)}, {
                "mask": "causal_top_left", "window": (20, 0)}, {"chunk": 16}, {
                    "key_lengths": torch.tensor([31], dtype=torch.int32, device=DEVICE)}):
            q, k, _ = operands(50, 60, 1, 1)
            identity = torch.eye(60, 64, dtype=DTYPE, device=DEVICE)[None, :, None]
            forward = attune.attention(q, k, identity, **keywords, **PLACE)[0, :, 0, :60].double()
            for row in (0, 7, 25, 49):
                dout = torch.zeros(1, 50, 1, 64, dtype=DTYPE, device=DEVICE)
                dout[0, row, 0, 3] = 1
                weights = gradients(q, k, identity, dout, **keywords)[2][0, :, 0, 3].double()
                self.assertLess((weights - forward[row]).abs().max().item(), 1e-5 if DTYPE == torch.float32 else 4e-3,
                                keywords)
                self.assertTrue(torch.equal(weights != 0, forward[row] != 0), keywords)

    def test_packed_sequences_without_queries_or_keys(self):
        """Gradients of keys that no query sees were not written, or held old accumulator contents."""
        import attune.flash
        lengths_q, lengths_k = (5, 0, 9, 3), (7, 6, 0, 4)
        begins = lambda lengths: torch.tensor([0, *torch.tensor(lengths).cumsum(0)], dtype=torch.int32, device=DEVICE)
        q, k, v = (leaf(draw(sum(lengths), heads, 64, dtype=DTYPE))
                   for lengths, heads in ((lengths_q, 4), (lengths_k, 2), (lengths_k, 2)))
        o = attune.flash.flash_attn_varlen_func(q, k, v, begins(lengths_q), begins(lengths_k), max(lengths_q),
                                                max(lengths_k))
        dout = draw(*o.shape, dtype=DTYPE)
        found = torch.autograd.grad(o, (q, k, v), dout)
        self.assertTrue(all(x.isfinite().all() for x in found))
        self.assertFalse(found[1][7:13].any() or found[2][7:13].any() or found[0][5:14].any())
        at = lambda x, lengths, number: x.detach()[sum(lengths[:number]):sum(lengths[:number + 1])][None]
        for number in (0, 3):
            of = [at(x, lengths, number) for x, lengths in ((q, lengths_q), (k, lengths_k), (v, lengths_k))]
            self.near([at(x, lengths, number) for x, lengths in zip(found, (lengths_q, lengths_k, lengths_k))], *of,
                      at(dout, lengths_q, number))

    def test_large_and_negative_scores(self):
        """P of keys past the end is exp(-lse), which may be infinite. For large scores, delta from a 16-bit o dominates
        the error, so errors are compared with those of PyTorch's kernel of the same type."""
        for factor, negative in ((16.0, False), (1.0, True), (8.0, True)):
            q, k, v = operands(33, 47)
            q, k = (factor * -q.abs(), k.abs()) if negative else (factor * q, k)
            dout = draw(*q.shape, dtype=DTYPE)
            want = wanted(q, k, v, dout)
            for name, x, other, y in zip(("dq", "dk", "dv"), gradients(q, k, v, dout), of_torch(q, k, v, dout), want):
                self.assertTrue(x.isfinite().all(), name)
                error, theirs = (((z.double() - y).norm() / y.norm()).item() for z in (x, other))
                self.assertLess(error, max(3 * ALLOWED[DTYPE], 2 * theirs), (name, factor, negative, theirs))


if __name__ == "__main__":
    gradient_cases.main()
