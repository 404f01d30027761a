#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashAttention 3's qv in flash_attn_with_kvcache() and flash_attn_varlen_func(). qv adds a second product to the
scores, with v, which gives absorbed latent attention. Each request is compared with float64. On PyTorch's tensors, on
the device named by the first argument. Skips aloud (status 77) without PyTorch or that device."""
import unittest
import warnings

from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("PyTorch's tensors are wanted: cpu or cuda")

import attune
import attune.flash
from caches import DTYPE, LIMIT, ints, run_tests, turned
from published_grids import reference, visible

KIND = getattr(torch, DTYPE)
OWN, COMMON, HEADS, PAGE = 64, 384, 4, 8  # columns of K alone, and of K and V
with_cache, varlen = attune.flash.flash_attn_with_kvcache, attune.flash.flash_attn_varlen_func


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, KIND)


def parts(cache):
    """Returns k and v as views of one tensor."""
    return cache[..., COMMON:], cache[..., :COMMON]


class LatentTest(unittest.TestCase):
    """Three requests in slots or pages of 32 keys each, or end to end."""
    LENGTHS, ROWS = [20, 1, 32], [3, 0, 2]

    def setUp(self):
        self.slots = draw(3, 32, 1, COMMON + OWN, seed=1)
        self.order = torch.tensor([[5, 2, 9, 0], [1, 11, 3, 4], [8, 7, 10, 6]])
        self.pages = torch.zeros(12, PAGE, 1, COMMON + OWN).to(DEVICE, KIND)
        self.pages[self.order.flatten()] = self.slots.reshape(12, PAGE, 1, -1)
        self.table, self.lengths = self.order.to(DEVICE, torch.int32), ints(self.LENGTHS)
        warnings.simplefilter("error", UserWarning)  # nothing is copied
        self.addCleanup(warnings.resetwarnings)

    def near(self, found, want, times=6):
        torch.testing.assert_close(found.double(),
                                   torch.as_tensor(want, device=DEVICE).double(), atol=times * LIMIT,
                                   rtol=times * LIMIT)

    def wanted(self, q, qv, keys, causal=False, window=(-1, -1), scale=(OWN + COMMON) ** -0.5, **features):
        """Returns (o, lse) of one request. q: [rows, heads, OWN]. qv: [rows, heads, COMMON]. keys: [n, 1, COMMON +
        OWN]."""
        seen = visible(q.shape[0], keys.shape[0], "bottom_right" if causal else None, window, DEVICE)
        return (x[0] for x in reference(
            torch.cat((qv, q), -1)[None], keys[None], keys[None, ..., :COMMON], seen, scale=scale, **features))

    def test_over_slots_and_pages(self):
        q, qv = draw(3, 2, HEADS, OWN, seed=2), draw(3, 2, HEADS, COMMON, seed=3)
        for choices in ({}, {"causal": True}, {"causal": True, "softmax_scale": 0.1}, {"window_size": (5, 1)}):
            named = {{"window_size": "window", "softmax_scale": "scale"}.get(name, name): value
                     for name, value in choices.items()}
            for cache, given in ((self.slots, {}), (self.pages, {"block_table": self.table}), (self.slots.flip(0), {
                    "cache_batch_idx": ints([2, 1, 0])})):
                o, lse = with_cache(q, *parts(cache), qv=qv, cache_seqlens=self.lengths, return_softmax_lse=True,
                                    **given, **choices)
                self.assertEqual((o.shape, lse.shape), (qv.shape, (3, HEADS, 2)))
                for b, n in enumerate(self.LENGTHS):
                    want, want_lse = self.wanted(q[b], qv[b], self.slots[b, :n], **named)
                    self.near(o[b], want)
                    self.near(lse[b], want_lse)

    def test_rows_end_to_end(self):
        ends = [0, *np.cumsum(self.ROWS)]
        q, qv = draw(ends[-1], HEADS, OWN, seed=2), draw(ends[-1], HEADS, COMMON, seed=3)
        packed = torch.cat([self.slots[b, :n] for b, n in enumerate(self.LENGTHS)])
        of_keys = ints([0, *np.cumsum(self.LENGTHS)])
        calls = {
            "serving": lambda: with_cache(q, *parts(
                self.pages), qv=qv, cache_seqlens=self.lengths, block_table=self.table, cu_seqlens_q=ints(ends),
                                          max_seqlen_q=3, causal=True, return_softmax_lse=True),
            "pages": lambda: varlen(q, *parts(self.pages), ints(ends), None, 3, 32, seqused_k=self.lengths, block_table=
                                    self.table, q_v=qv, causal=True, return_softmax_lse=True, fa_version=3),
            "packed": lambda: varlen(q, *parts(packed), ints(ends), of_keys, 3, 32, qv=qv, causal=True, return_lse=True,
                                     out=torch.empty_like(qv)),
            "used": lambda: varlen(q, *parts(packed), ints(ends), of_keys, 3, 32, seqused_q=ints([2, 0, 1]), qv=qv,
                                   causal=True, return_lse=True)}
        for name, call in calls.items():
            o, lse = call()
            for b, n in enumerate(self.LENGTHS):
                rows = slice(ends[b], ends[b] + (max(self.ROWS[b] - 1, 0) if name == "used" else self.ROWS[b]))
                want, want_lse = self.wanted(q[rows], qv[rows], self.slots[b, :n], causal=True)
                with self.subTest(name, request=b):
                    self.near(o[rows], want)
                    self.near(lse[:, rows], want_lse)
            self.assertEqual(name == "used", not o[2].any().item())

    def test_new_rows_are_turned_and_written(self):
        q, qv, new = draw(3, 2, HEADS, OWN, seed=2), draw(3, 2, HEADS, COMMON, seed=3), draw(
            3, 2, 1, COMMON + OWN, seed=4)
        angle = torch.arange(32)[:, None] / 100.0 ** (torch.arange(16) / 16)
        cos, sin = (x.to(DEVICE, torch.float32) for x in (angle.cos(), angle.sin()))
        before = ints([18, 0, 7])
        o = with_cache(q, *parts(self.pages), *parts(new), cos, sin, before, block_table=self.table, causal=True, qv=qv)
        for b, n in enumerate(before.tolist()):
            keys = self.pages[self.order[b]].flatten(0, 1)[:n + 2]
            turn = lambda x: torch.from_numpy(
                turned(x.double().cpu().numpy(), *(t[n:n + 2].double().cpu().numpy()
                                                   for t in (cos, sin)), True)).to(DEVICE)  # noqa: E731
            self.near(keys[n:, :, COMMON:], turn(new[b, ..., COMMON:]))
            self.assertTrue(
                torch.equal(keys[n:, :, :COMMON], new[b, ..., :COMMON]) and torch.equal(keys[:n], self.slots[b, :n]))
            self.near(o[b], next(self.wanted(turn(q[b]), qv[b], keys, causal=True)))

    def test_separate_tensors_are_copied_with_a_warning(self):
        q, qv = draw(3, 1, HEADS, OWN, seed=2), draw(3, 1, HEADS, COMMON, seed=3)
        for cache, given in ((self.slots, {}), (self.pages, {"block_table": self.table})):
            together = with_cache(q, *parts(cache), qv=qv, cache_seqlens=self.lengths, **given)
            with self.assertWarnsRegex(
                    UserWarning,
                    "latent attention copies the pages of all requests at each run, because kpe_cache "
                    ".FlashAttention's k_cache"
            ):
                apart = with_cache(q, *(x.clone() for x in parts(cache)), qv=qv, cache_seqlens=self.lengths, **given)
            self.near(apart, together)

    def test_scores_and_padding(self):
        q, qv, sinks = draw(3, 2, HEADS, OWN, seed=2), draw(3, 2, HEADS, COMMON, seed=3), draw(HEADS, seed=5)
        o = with_cache(q, *parts(self.slots), qv=qv, cache_seqlens=self.lengths, causal=True, softcap=5.0,
                       learnable_sink=sinks)
        padded = with_cache(q, *parts(self.slots), qv=qv, cache_seqlens=self.lengths, causal=True, cache_leftpad=ints([
            4, 0, 9]))
        for b, (n, pad) in enumerate(zip(self.LENGTHS, [4, 0, 9])):
            self.near(o[b], next(self.wanted(q[b], qv[b], self.slots[b, :n], causal=True, softcap=5.0, sinks=sinks)))
            self.near(padded[b], next(self.wanted(q[b], qv[b], self.slots[b, pad:n], causal=True)))

    def test_captured(self):
        q, qv = draw(3, 1, HEADS, OWN, seed=2), draw(3, 1, HEADS, COMMON, seed=3)
        function = lambda q, qv, n: with_cache(q, *parts(self.pages), qv=qv, cache_seqlens=n, block_table=self.table,
                                               causal=True)  # noqa: E731
        want = function(q, qv, self.lengths)
        if DEVICE == "cpu":
            self.near(torch.compile(function, fullgraph=True, backend="aot_eager")(q, qv, self.lengths), want, 0)
            return
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = function(q, qv, self.lengths)
        graph.replay()
        self.assertTrue(torch.equal(found, want))

    def test_refusals(self):
        q, qv, k, v = draw(3, 2, HEADS, OWN), draw(3, 2, HEADS, COMMON), *parts(self.slots)
        for text, given in ((r"qv has shape \(3, 2, 4, 64\); must be \(3, 2, 4, 384\), q's shape with v's columns",
                             dict(qv=q)),
                            (r"qv is given and k has shape \(3, 32, 1, 64\) and v .*; both must be equal",
                             dict(v_cache=v[:, :31],
                                  qv=qv)), ("qv is torch.float64 on .* both must be on one device, of one dtype",
                                            dict(qv=qv.double())), ("k_descale is given with qv; must be None",
                                                                    dict(qv=qv, k_descale=torch.ones(
                                                                        3, 1, device=DEVICE)))):
            with self.assertRaisesRegex(ValueError, text):
                with_cache(**{"q": q, "k_cache": k, "v_cache": v, **given})
        ends = ints([0, 2, 4, 6])
        rows = (q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), ends, ints([0, 32, 64, 96]), 2, 32)
        for text, given in (("dropout_p is 0.5; must be 0.0 with qv", dict(qv=qv.flatten(0, 1), dropout_p=0.5)),
                            ("qv and q_v are given; give one of them", dict(qv=qv.flatten(0, 1), q_v=qv.flatten(
                                0, 1)))):
            with self.assertRaisesRegex(ValueError, text):
                varlen(*rows, **given)


    def test_dense(self):
        """flash_attn_func(qv=), with dense k and v."""
        q, qv = draw(3, 5, HEADS, OWN, seed=2), draw(3, 5, HEADS, COMMON, seed=3)
        for choices in ({}, {"causal": True}, {"causal": True, "softmax_scale": 0.1}, {"window_size": (5, 1)}):
            named = {{"window_size": "window", "softmax_scale": "scale"}.get(name, name): value
                     for name, value in choices.items()}
            o, lse = attune.flash.flash_attn_func(q, *parts(self.slots), qv=qv, return_lse=True, **choices)
            self.assertEqual((o.shape, lse.shape), (qv.shape, (3, HEADS, 5)))
            for b in range(3):
                want, want_lse = self.wanted(q[b], qv[b], self.slots[b], **named)
                self.near(o[b], want)
                self.near(lse[b], want_lse)
        with self.assertRaisesRegex(ValueError, "mask_mod is given with qv; must be None"):
            attune.flash.flash_attn_func(q, *parts(self.slots), qv=qv, mask_mod=lambda b, h, i, j: i >= j)

    def test_several_heads_of_keys(self):
        for together in (True, False):
            keys = draw(3, 32, 2, 192 if together else 96, seed=7)
            k, v = (keys[..., 128:], keys[..., :128]) if together else (keys[..., 64:].clone(), keys[..., :64].clone())
            q, qv = draw(3, 2, HEADS, k.shape[3], seed=2), draw(3, 2, HEADS, v.shape[3], seed=3)
            pages = [x.reshape(12, PAGE, 2, -1) for x in (k, v)]
            packed = [x.flatten(0, 1) for x in (q, k, v)]
            with warnings.catch_warnings():
                warnings.simplefilter("error" if together else "ignore", UserWarning)
                calls = [
                    lambda: with_cache(q, k, v, qv=qv, cache_seqlens=self.lengths, causal=True),
                    lambda: with_cache(q, *pages, qv=qv, cache_seqlens=self.lengths, causal=True, page_table=torch.
                                       arange(12, dtype=torch.int32, device=DEVICE).view(3, 4)),
                    lambda: varlen(*packed, ints([0, 2, 4, 6]), ints([0, 32, 64, 96]), 2, 32, qv=qv.flatten(0, 1),
                                   causal=True, seqused_k=self.lengths).view(qv.shape)]
                if DEVICE == "cpu":
                    torch._dynamo.reset()
                    calls.append(lambda: torch.compile(with_cache, fullgraph=True, backend="aot_eager")
                                 (q, k, v, qv=qv, cache_seqlens=self.lengths, causal=True))
                found = [call() for call in calls]
            for b, n in enumerate(self.LENGTHS):
                want = reference(
                    torch.cat((qv, q), -1)[b:b + 1],
                    torch.cat((v, k), -1)[b:b + 1, :n], v[b:b + 1, :n], visible(2, n, "bottom_right",
                                                                                device=DEVICE))[0][0]
                for each in found:
                    self.near(each[b], want)

    def test_forward_alone(self):
        q, qv = draw(3, 2, HEADS, OWN, seed=2).requires_grad_(), draw(3, 2, HEADS, COMMON, seed=3)
        for call in (lambda q: with_cache(q, *parts(self.slots), qv=qv, cache_seqlens=32),
                     lambda q: attune.flash.flash_attn_func(q, *parts(self.slots), qv=qv)):
            out = call(q)
            self.assertTrue(torch.equal(out, call(q.detach())) and out.requires_grad)
            with self.assertRaisesRegex(RuntimeError, "gradients are asked of flash_attn_"):
                out.float().sum().backward()


if __name__ == "__main__":
    run_tests()
