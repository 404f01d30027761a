#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.sdpa, attune.flex, transformers' adapter, compiled graphs and backward copy tensors whose memory layout
kernels do not serve. Results have the memory order of PyTorch's. Nested and sparse tensors are refused. Skips aloud
(status 77) without PyTorch or the CPU target."""
import os
import random
import sys
import types
import unittest
import unittest.mock

try:
    import torch
    from torch.nn.attention.flex_attention import flex_attention as their_flex
    from torch.nn.functional import scaled_dot_product_attention as theirs
except ImportError:
    print("SKIP: there is no PyTorch here")
    sys.exit(77)

import attune
from attune import flash
from attune.core.copies import in_order_of, readable
from attune.transformers.attention import attention_forward
from attune.flash import flash_attn_varlen_func
from attune.flex import flex_attention
from attune.sdpa import scaled_dot_product_attention as ours

MEMORY = torch.randn(4096, generator=torch.Generator().manual_seed(1))


def draw(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def windows(x):
    """Returns [batch, windows as heads, 8, dim]; each window overlaps half of the previous one."""
    return x.unfold(1, 8, 4).transpose(-1, -2)


# [2, 3, 8, 16] in memory layouts that kernels do not serve, by name.
VIEWS = {
    "windows as heads": windows(draw(2, 16, 16)),
    "windows as batch": draw(12, 3, 16).unfold(0, 8, 4).permute(0, 1, 3, 2)[:2],
    "rows that overlap": MEMORY.as_strided((2, 3, 8, 16), (1024, 256, 8, 1)),
    "an address between multiples of 16 bytes": MEMORY[1:769].view(2, 3, 8, 16),
    "rows between multiples of 16 bytes": draw(2, 3, 8, 17)[..., :16],
    "head_dim strided": draw(2, 3, 16, 8).transpose(2, 3),
    "a negative view": torch._neg_view(draw(2, 3, 8, 16)),
}


class ReadableTest(unittest.TestCase):
    def test_readable_copies_layouts_that_the_library_refuses(self):
        pick, counts = random.Random(2), [0, 0]
        for _ in range(400):
            shape = (pick.choice((1, 2, 3)), pick.choice((1, 2, 5)), pick.choice((1, 2)), 16)
            strides = [pick.choice((0, 4, 8, 16, 32, 64, 80, 160, 18)) for _ in range(3)]
            x = MEMORY[pick.choice((0, 0, 0, 1)):].as_strided(shape, (*strides, 1))
            try:
                attune.attention(x, x, x)
                refused = False
            except (ValueError, attune.Error):
                refused = True
            self.assertEqual(readable(x) is not x, refused, (shape, strides, x.storage_offset()))
            self.assertTrue(torch.equal(readable(x), x))
            attune.attention(*(readable(x),) * 3)
            counts[refused] += 1
        self.assertGreater(min(counts), 50)


class Compared(unittest.TestCase):
    def near(self, found, want, what=""):
        self.assertEqual(found.shape, want.shape, what)
        self.assertLess((found - want).abs().max().item(), 2e-5 * max(1.0, want.abs().max().item()), what)


class CopiedTest(Compared):
    def test_operands(self):
        """Eager, compiled, traced and recorded calls in which q, k or v is such a view."""
        for number, (name, x) in enumerate(VIEWS.items()):
            for place in range(3):
                given = [draw(2, 3, 8, 16) for _ in range(3)]
                given[place] = x
                want = theirs(*given)
                with self.subTest(name, place=place):
                    for _ in range(2):  # the second call may be a known one
                        self.near(ours(*given), want)
                        self.near(flex_attention(*given), want)
                    if place == number % 3:  # each graph takes a second, so every view gets one place
                        torch._dynamo.reset()
                        self.near(
                            torch.compile(lambda q, k, v: ours(q, k, v), backend="aot_eager", fullgraph=True)(*given),
                            want)
                    leaves = [each.clone().requires_grad_() for each in given]
                    leaves[place] = x.detach().requires_grad_()
                    found, wanted = (torch.autograd.grad(function(*leaves).square().sum(), leaves)
                                     for function in (ours, theirs))
                    for one, other in zip(found, wanted):
                        self.near(one, other)

    def test_views_in_a_graph(self):
        inside = lambda z: ours(*(z[1:225].view(1, 2, 7, 16),) * 3)
        self.near(torch.compile(inside, backend="aot_eager", fullgraph=True)(MEMORY), inside(MEMORY))
        exported = torch.export.export(_Module(), (draw(1, 2, 7, 16),)).module()
        x = MEMORY[1:225].view(1, 2, 7, 16)
        self.near(exported(x), theirs(x, x, x))
        self.near(torch.jit.trace(_Module(), (draw(1, 2, 7, 16),), check_trace=False)(x), theirs(x, x, x))

    def test_gradients_of_o(self):
        """dout may have any memory layout."""
        for name, dout in VIEWS.items():
            leaves = [draw(2, 3, 8, 16).requires_grad_() for _ in range(3)]
            for one, other in zip(torch.autograd.grad(ours(*leaves), leaves, dout),
                                  torch.autograd.grad(theirs(*leaves), leaves, dout)):
                self.near(one, other, name)

    def test_head_dims_of_wider_copies(self):
        for head_dim in (8, 20):
            q, k, v = draw(2, 3, 8, head_dim), draw(2, 3, head_dim, 8).transpose(2, 3), torch._neg_view(
                draw(2, 3, 8, head_dim))
            self.near(ours(q, k, v), theirs(q, k, v))
            self.assertTrue(ours(q, k, v).is_contiguous())


class TransformersTest(Compared):
    """The attention function of transformers' adapter."""
    MODULE = types.SimpleNamespace(is_causal=False)

    def attend(self, *given):
        o = attention_forward(self.MODULE, *given, None)[0]
        self.assertTrue(o.is_contiguous())  # models rely on a contiguous result
        return o.transpose(1, 2)

    def test_operands(self):
        for name, x in VIEWS.items():
            for place in range(3):
                with self.subTest(name, place=place):
                    given = [draw(2, 3, 8, 16) for _ in range(3)]
                    given[place] = x
                    for _ in range(2):
                        self.near(self.attend(*given), theirs(*given))
                    given[place] = x.detach().requires_grad_()
                    self.near(self.attend(*given), theirs(*given))

    def test_sequences_end_to_end(self):
        """Packed rows and keys, which the cache kernels serve."""
        ends, ids = torch.tensor([0, 3, 8], dtype=torch.int32), torch.tensor([0] * 3 + [1] * 5)
        seen, packed = (ids[:, None] == ids) & torch.ones(8, 8, dtype=torch.bool).tril(), dict(
            cu_seq_lens_q=ends, cu_seq_lens_k=ends, max_length_q=5, max_length_k=5)
        for name, x in VIEWS.items():
            for place in range(3):
                with self.subTest(name, place=place):
                    given = [draw(1, 3, 8, 16) for _ in range(3)]
                    given[place] = x[:1]
                    o = attention_forward(types.SimpleNamespace(is_causal=True), *given, None, **packed)[0]
                    self.near(o.transpose(1, 2), theirs(*given, seen))

    def test_a_negative_mask(self):
        given, mask = [draw(2, 3, 8, 16) for _ in range(3)], torch._neg_view(draw(2, 1, 8, 8))
        self.near(attention_forward(self.MODULE, *given, mask)[0].transpose(1, 2), theirs(*given, mask))

    def test_head_dims_of_wider_copies(self):
        for head_dim in (8, 20):
            q, k, v = (draw(2, 3, 8, 32)[..., :head_dim] + i for i in range(3))
            self.near(self.attend(q, k, v), theirs(q, k, v))
            self.near(self.attend(q.clone().requires_grad_(), k, v), theirs(q, k, v))


class _Module(torch.nn.Module):
    def forward(self, x):
        return ours(x, x, x)


def _flat(x):
    """Returns a copy whose address is not a multiple of 16 bytes."""
    flat = torch.empty(x.numel() + 1, dtype=x.dtype)
    flat[1:] = x.reshape(-1)
    return flat, x.shape


def _columns(x):
    """Returns a copy with reversed axes in memory."""
    return x.permute(tuple(reversed(range(x.dim())))).contiguous(), None


HOOKS = {
    "flat": (_flat, lambda pair: pair[0][1:].view(pair[1])),
    "columns": (_columns, lambda pair: pair[0].permute(tuple(reversed(range(pair[0].dim())))))}


class SavedTest(unittest.TestCase):
    """Hooks may return saved tensors at other addresses and in another memory order."""
    LIST = torch.tensor([0, 4, 9], dtype=torch.int32)
    CALLS = {
        "attention": lambda q, k, v: attune.attention(q, k, v, mask="causal"),
        "attention with a bias": lambda q, k, v: attune.attention(q, k, v, bias=q.sum((0, 2, 3))[:, None].expand(9, 9)),
        "wider copies": lambda q, k, v: attune.attention(q[..., :12], k[..., :12], v, pad_head_dim=True),
        "sdpa": lambda q, k, v: ours(q, k, v),
        "varlen": lambda q, k, v: flash_attn_varlen_func(q[0], k[0], v[0], SavedTest.LIST, SavedTest.LIST, 5, 5, causal=
                                                         True),
        "score_mod": lambda q, k, v: flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score * 2), }

    def test_backward(self):
        for name, call in self.CALLS.items():
            leaves = [draw(2, 9, 9, 16).requires_grad_() for _ in range(3)]
            want = torch.autograd.grad(call(*leaves).square().sum(), leaves)
            for how, hooks in HOOKS.items():
                with self.subTest(name, how=how):
                    with torch.autograd.graph.saved_tensors_hooks(*hooks):
                        o = call(*leaves)
                    for one, other in zip(torch.autograd.grad(o.square().sum(), leaves), want):
                        self.assertTrue(torch.allclose(one, other, atol=1e-5))

    def test_backward_of_a_graph(self):
        leaves = [draw(2, 9, 9, 16).requires_grad_() for _ in range(3)]
        want = torch.autograd.grad(ours(*leaves).square().sum(), leaves)
        compiled = torch.compile(lambda *given: ours(*given), backend="aot_eager", fullgraph=True)
        with torch.autograd.graph.saved_tensors_hooks(*HOOKS["flat"]):
            made = compiled(*leaves)
        for one, other in zip(torch.autograd.grad(made.square().sum(), leaves), want):
            self.assertTrue(torch.allclose(one, other, atol=1e-5))


ORDERS = {
    "batch, heads, rows": (0, 1, 2),
    "batch, rows, heads": (0, 2, 1),
    "heads, batch, rows": (1, 0, 2),
    "rows, batch, heads": (2, 0, 1), }


class OrderTest(unittest.TestCase):
    def test_results_have_the_order_of_query(self):
        for name, order in ORDERS.items():
            shape = (2, 4, 9, 32)
            q = draw(*(shape[axis] for axis in order), 32).permute(*(order.index(axis) for axis in range(3)), 3)
            k, v = draw(2, 4, 11, 32), draw(2, 4, 11, 32) + 1
            want = theirs(q, k, v).stride()
            self.assertEqual(their_flex(q, k, v).stride(), want)
            leaf, mask = q.detach().requires_grad_(), draw(9, 11)
            calls = {
                "sdpa": lambda: ours(q, k, v), "with a mask": lambda: ours(q, k, v, mask),
                "recorded": lambda: ours(leaf, k, v),
                "recorded by the op": lambda: flex_attention(leaf, k, v, score_mod=lambda s, b, h, i, j: s + 1),
                "flex": lambda: flex_attention(q, k, v),
                "compiled": lambda: torch.compile(lambda *given: ours(*given), backend="aot_eager", fullgraph=True)
                (q, k, v), "with lse": lambda: flex_attention(q, k, v, return_lse=True)[0],
                "dropout": lambda: ours(q, k, v, dropout_p=0.5)}
            for call, make in calls.items():
                for _ in range(2):
                    self.assertEqual(make().stride(), want, f"{name}, {call}")
            self.assertTrue(torch.allclose(ours(q, k, v), theirs(q, k, v), atol=1e-5))
            self.assertEqual(ours(q, k, v[..., :24]).permute(*order, 3).is_contiguous(), True)

    def test_a_view_of_the_result(self):
        q = draw(2, 4, 9, 32)
        for made in (ours(q, q, q), flex_attention(q, q, q), ours(q[:1], q, q), ours(
                q[:, :1], q, q), ours(q[..., :20], q[..., :20], q[..., :20])):
            self.assertEqual(made.view(8, 9, -1).shape[:2], (8, 9))

    def test_a_capture_after_prepare(self):
        """prepare() plans for an o with rows first. A graph's capture makes no plan, so it copies that o.
        """
        q = draw(2, 4, 13, 32)
        attune.prepare(attune.attention, *(x.transpose(1, 2) for x in (q, q, q)))
        with unittest.mock.patch("attune.ops.attention.capturing", return_value=True), unittest.mock.patch(
                "attune.ops.attention._make_call", side_effect=AssertionError):
            o = ours(q, q, q)
        self.assertTrue(o.is_contiguous())
        self.assertTrue(torch.allclose(o, theirs(q, q, q), atol=1e-5))

    def test_order_of_axes_of_size_1(self):
        o = draw(2, 4, 9, 32)
        for query in (draw(1, 4, 9, 32).expand(2, -1, -1, -1), draw(2, 1, 9, 32).expand(
                -1, 4, -1, -1), draw(32)[None, None, None].expand(2, 4, 9, 32), draw(2, 9, 1, 32).transpose(1, 2)):
            self.assertIs(in_order_of(query, o), o)


class NoDenseTensorTest(unittest.TestCase):
    """Each argument that is a nested or sparse tensor is refused by its name."""
    D, LSE, LIST = draw(2, 9, 4, 32), torch.zeros(2, 4, 9), torch.tensor([0, 3, 9], dtype=torch.int32)
    KINDS = {
        "jagged": torch.nested.nested_tensor_from_jagged(draw(9, 4, 32), offsets=torch.tensor([0, 3, 9])),
        "sparse": D.to_sparse(), "nested": torch.nested.nested_tensor([draw(3, 4, 32), draw(6, 4, 32)])}
    # By name of the argument: calls with x (not dense), d (dense) and lse.
    CALLS = {
        "q": (lambda x, d, lse: attune.attention(x, x, x), lambda x, d, lse: attune.prepare(attune.attention, x, x, x),
              lambda x, d, lse: flash.flash_attn_func(x, x, x),
              lambda x, d, lse: flash_attn_varlen_func(x, x, x, NoDenseTensorTest.LIST, NoDenseTensorTest.LIST, 6, 6),
              lambda x, d, lse: flash.flash_attn_with_kvcache(x, d, d),
              lambda x, d, lse: attune.attention_kvcache(x, d, d)),
        "k": (lambda x, d, lse: attune.attention(d, x, d),
              lambda x, d, lse: attune.attention(d.clone().requires_grad_(), x, d),
              lambda x, d, lse: attune.append_kv(x, x, d, d),
              lambda x, d, lse: attune.attention_backward(d, d, x, d, d, lse)),
        "bias": (lambda x, d, lse: attune.attention(d, d, d, bias=x),
                 ),
        "out": (lambda x, d, lse: attune.attention(d, d, d, out=x),
                ),
        "key": (lambda x, d, lse: ours(d.transpose(1, 2), x, x),
                lambda x, d, lse: flex_attention(d.transpose(1, 2), x, x),
                lambda x, d, lse: attention_forward(TransformersTest.MODULE, d.transpose(1, 2), x, x, None)),
        "attn_mask": (lambda x, d, lse: ours(d, d, d, x),
                      ),
        "k_cache": (lambda x, d, lse: attune.attention_kvcache(d, x, d), lambda x, d, lse: attune.append_kv(d, d, x, d),
                    lambda x, d, lse: flash.flash_attn_with_kvcache(d, x, d)),
        "o": (lambda x, d, lse: attune.merge(x, lse, d, lse),
              ),
        "lse": (lambda x, d, lse: attune.merge(d, x, d, lse),
                ),
        "x": (lambda x, d, lse: attune.quantise(x),
              ),
        "dout": (lambda x, d, lse: attune.attention_backward(x, d, d, d, d, lse),
                 ), }

    def test_refusals(self):
        for kind, x in self.KINDS.items():
            for name, calls in self.CALLS.items():
                for number, call in enumerate(calls):
                    with self.subTest(kind, name=name, number=number), self.assertRaisesRegex(
                            ValueError, f"^{name} (is a nested tensor; |has layout torch.sparse)"):
                        call(x, self.D, self.LSE)

    def test_in_graphs(self):
        x = self.KINDS["jagged"]
        for call in (lambda x: attune.attention(x, x, x), lambda x: attune.attention_kvcache(x, x, x),
                     lambda x: attune.quantise(x)):
            with self.assertRaisesRegex(ValueError, "is a nested tensor"):
                torch.compile(call, backend="eager")(x)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    unittest.main()
