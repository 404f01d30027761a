#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arguments of FlashAttention 3 and 4 and of vLLM's calls in flash_attn_varlen_func(). Each sequence is compared with
float64, with and without gradients. varlen_test.py covers version 2, flash_serving_test.py flash_attn_with_kvcache().
On PyTorch's tensors, on the device named by the first argument. Skips aloud (status 77) without PyTorch or that
device."""
import unittest

from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("PyTorch's tensors are wanted: cpu or cuda")

import attune
import attune.flash
from caches import DTYPE, LIMIT, ints, run_tests
from published_grids import reference, visible

KIND = getattr(torch, DTYPE)
varlen = attune.flash.flash_attn_varlen_func


def begins(lengths):
    return ints([0, *np.cumsum(lengths)])


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, KIND)


def of_each(q, k, v, at_q, at_k, used_q, used_k, *, causal=False, window=(-1, -1), chunk=0, slopes=None, mod=None,
            **more):
    """Yields (rows, out, lse) of each sequence by reference(), which autograd may record."""
    for b, (first, key, n, m) in enumerate(zip(at_q, at_k, used_q, used_k)):
        seen = visible(n, m, "bottom_right" if causal else None, window, DEVICE)
        if chunk:
            rows, keys = torch.arange(n, device=DEVICE)[:, None] + m - n, torch.arange(m, device=DEVICE)
            mine = rows // chunk == keys // chunk
            seen = mine if seen is None else seen & mine
        own = None if mod is None else lambda score, _, h, i, j, b=b: mod(score, b, h, i, j)
        o, lse = reference(q[None, first:first + n], k[None, key:key + m], v[None, key:key + m], seen,
                           alibi=None if slopes is None else slopes[b], score_mod=own, **more)
        yield slice(first, first + n), o[0], lse[0]


class VersionsTest(unittest.TestCase):
    ROWS, KEYS = [5, 0, 33, 1], [9, 4, 33, 70]

    def setUp(self):
        self.q, self.k, self.v = draw(sum(self.ROWS), 4, 64, seed=1), draw(sum(self.KEYS), 2, 64, seed=2), draw(
            sum(self.KEYS), 2, 64, seed=3)
        self.cu_q, self.cu_k = begins(self.ROWS), begins(self.KEYS)

    def near(self, found, want, times=4):
        torch.testing.assert_close(found.double(), want.double(), atol=times * LIMIT, rtol=times * LIMIT)

    def compare(self, found, lse, used_q=None, used_k=None, q=None, k=None, v=None, **choices):
        operands = [x if given is None else given for given, x in zip((q, k, v), (self.q, self.k, self.v))]
        for rows, want, want_lse in of_each(*operands, self.cu_q.tolist(), self.cu_k.tolist(), used_q or self.ROWS,
                                            used_k or self.KEYS, **choices):
            self.near(found[rows], want)
            self.near(lse[:, rows], want_lse)

    def test_defaults_of_all(self):
        plain = varlen(self.q, self.k, self.v, self.cu_q, self.cu_k, 33, 70)
        given = dict.fromkeys(("page_table", "seqused_q", "seqused_k", "learnable_sink", "s_aux", "score_mod",
                               "q_descale", "k_descale", "v_descale", "out", "qv", "q_v", "aux_tensors", "pack_gqa",
                               "scheduler_metadata", "fa_version", "block_table", "window_size"))
        found = varlen(self.q, self.k, self.v, self.cu_q, self.cu_k, **given, max_seqlen_q=None, max_seqlen_k=None,
                       num_splits=1, sm_margin=0, attention_chunk=0, deterministic=False, softcap=0.0)
        self.assertTrue(torch.equal(plain, found))
        ignored = varlen(self.q, self.k, self.v, self.cu_q, self.cu_k,
                         fa_version=3, scheduler_metadata=attune.flash.get_scheduler_metadata(
                             2, 3, cache_seqlens=self.cu_q), k_descale=torch.ones(1, 2, device=DEVICE))
        self.assertTrue(torch.equal(plain, ignored))
        with self.assertRaisesRegex(ValueError, "aux_tensors is given; must be None: "):
            varlen(self.q, self.k, self.v, self.cu_q, self.cu_k, aux_tensors=[self.q])
        with self.assertRaisesRegex(ValueError, "learnable_sink and s_aux are given; give one of them"):
            varlen(self.q, self.k, self.v, self.cu_q, self.cu_k, learnable_sink=self.q[0, :, 0], s_aux=self.q[0, :, 0])
        with self.assertRaisesRegex(TypeError, "score_mod is str; must be a function"):
            varlen(self.q, self.k, self.v, self.cu_q, self.cu_k, score_mod="return score;")

    def test_features_by_lists_and_as_documents(self):
        """The lists of rows and keys differ; with gradients and a mask such calls were once refused."""
        slopes, sinks = torch.rand(4, 4, generator=torch.Generator().manual_seed(4)).to(DEVICE), draw(4, seed=5)
        mod = lambda score, b, h, i, j: score + 0.1 * (i - j) + 0.5 * h * b  # noqa: E731
        for choices in ({"causal": True}, {"window": (6, 3)}, {"causal": True, "window": (4, -1)}, {
                "causal": True, "chunk": 8}, {"slopes": slopes}, {"sinks": sinks}, {
                    "causal": True, "slopes": slopes, "sinks": sinks, "softcap": 4.0, "scale": 0.2}, {
                        "causal": True, "mod": mod}, {"mod": mod, "slopes": slopes}):
            given = {{
                "window": "window_size", "chunk": "attention_chunk", "slopes": "alibi_slopes",
                "sinks": "learnable_sink", "mod": "score_mod", "scale": "softmax_scale"}.get(name, name): value
                     for name, value in choices.items()}
            with self.subTest(choices=list(choices)):
                out, lse = varlen(self.q, self.k, self.v, self.cu_q, self.cu_k, return_lse=True, **given)
                self.compare(out, lse, **choices)
                learned = [x.clone().requires_grad_() for x in (self.q, self.k, self.v)]
                also = {
                    name: value.clone().requires_grad_()
                    for name, value in choices.items() if name in ("slopes", "sinks")}
                out, lse = varlen(
                    *learned, self.cu_q, self.cu_k, return_softmax_lse=True, **{
                        **given, **{{"slopes": "alibi_slopes", "sinks": "learnable_sink"}[name]: value
                                    for name, value in also.items()}})
                self.compare(out.detach(), lse.detach(), **choices)
                self.check_gradients(out, learned, also, choices)

    def check_gradients(self, out, learned, also, choices):
        weights = draw(*out.shape, seed=6)
        out.backward(weights)
        own = [x.detach().double().requires_grad_() for x in learned]
        own_also = {name: value.detach().double().requires_grad_() for name, value in also.items()}
        total = 0
        for rows, want, _ in of_each(*own, self.cu_q.tolist(), self.cu_k.tolist(), self.ROWS, self.KEYS,
                                     **{**choices, **own_also}):
            total = total + (want * weights[rows].double()).sum()
        total.backward()
        for x, want in zip([*learned, *also.values()], [*own, *own_also.values()]):
            self.near(x.grad, want.grad, 20)

    def test_used_rows_and_keys(self):
        used_q, used_k = [3, 0, 33, 1], [9, 0, 20, 41]
        for choices in ({"causal": True}, {}, {"causal": True, "window": (5, -1)}):
            given = {{"window": "window_size"}.get(name, name): value for name, value in choices.items()}
            for grad in (False, True):
                q, k, v = (x.clone().requires_grad_(grad) for x in (self.q, self.k, self.v))
                for of_q, of_k in ((used_q, used_k), (None, used_k), (used_q, None)):
                    out, lse = varlen(q, k, v, self.cu_q, self.cu_k, seqused_q=None if of_q is None else ints(of_q),
                                      seqused_k=None if of_k is None else ints(of_k), return_lse=True, **given)
                    self.compare(out.detach(), lse.detach(), of_q, of_k, **choices)
                    left_out = torch.tensor([
                        n >= (of_q or self.ROWS)[b] for b, m in enumerate(self.ROWS) for n in range(m)])
                    self.assertTrue((out[left_out] == 0).all() and (lse[:, left_out] == -torch.inf).all())
        one = ints(used_q)
        out, lse = varlen(self.q, self.q, self.q, self.cu_q, self.cu_q, seqused_q=one, seqused_k=one, causal=True,
                          return_lse=True)
        for rows, want, want_lse in of_each(self.q, self.q, self.q, self.cu_q.tolist(), self.cu_q.tolist(), used_q,
                                            used_q, causal=True):
            self.near(out[rows], want)
            self.near(lse[:, rows], want_lse)

    @unittest.skipIf(DEVICE != "cpu", "lists on a GPU are not checked")
    def test_wrong_lists_are_refused(self):
        for message, given in ((r"seqused_q\[0\] is 6; must be 0 to 5: rows of the sequence", {
                "seqused_q": ints([6, 0, 1, 1])}), (r"seqused_k\[1\] is -1; must be 0 to 4: keys of the sequence", {
                    "seqused_k": ints([6, -1, 1, 1])
                }), (r"seqused_k is torch.int32 of shape \(3,\) on cpu; must be a tensor of int32 \[batch\] = \(4,\)", {
                    "seqused_k": ints([6, 1, 1])}), (r"seqused_q is \[1\]; must be a tensor", {"seqused_q": [1]})):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                varlen(self.q, self.k, self.v, self.cu_q, self.cu_k, **given)

    def test_batches_without_lists(self):
        """In version 4 q, k or both may be batches without lists."""
        q, k, v = draw(4, 7, 4, 64, seed=7), draw(4, 12, 2, 64, seed=8), draw(4, 12, 2, 64, seed=9)
        used = ints([12, 1, 0, 5])
        out, lse = varlen(q, k, v, seqused_k=used, causal=True, return_lse=True)
        self.assertEqual((out.shape, lse.shape), (q.shape, (4, 4, 7)))
        packed, packed_lse = varlen(q.flatten(0, 1), k, v, begins([7] * 4), seqused_k=used, causal=True,
                                    return_lse=True)
        for b, m in enumerate(used.tolist()):
            want, want_lse = reference(q[b:b + 1], k[b:b + 1, :m], v[b:b + 1, :m],
                                       visible(7, m, "bottom_right", device=DEVICE))
            for found, found_lse in ((out[b], lse[b]), (packed[7 * b:7 * b + 7], packed_lse[:, 7 * b:7 * b + 7])):
                self.near(found, want[0])
                self.near(found_lse, want_lse[0])
        with self.assertRaisesRegex(
                ValueError,
                r"cu_seqlens_q is None and q has shape \(39, 4, 64\); without cu_seqlens_q it must be \[batch, seqlen"):
            varlen(self.q, self.k, self.v, None, self.cu_k)

    def test_pages_as_vllm_gives_them(self):
        size, columns = 4, 18
        order = torch.randperm(4 * columns, generator=torch.Generator().manual_seed(1)).reshape(4, columns)
        pages = [torch.full((4 * columns, size, 2, 64), float("nan")).to(DEVICE, KIND) for _ in "kv"]
        for to, x in zip(pages, (self.k, self.v)):
            for b, (first, m) in enumerate(zip(self.cu_k.tolist(), self.KEYS)):
                for at in range(m):
                    to[order[b, at // size], at % size] = x[first + at]
        sinks, out = draw(4, seed=5), torch.empty_like(self.q)
        table, factors = order.to(DEVICE, torch.int32), torch.ones((), device=DEVICE).expand(4, 2)
        found, lse = varlen(
            q=self.q, k=pages[0], v=pages[1], out=out, cu_seqlens_q=self.cu_q, max_seqlen_q=33,
            seqused_k=ints(self.KEYS), max_seqlen_k=70, softmax_scale=0.2, causal=True, alibi_slopes=None, window_size=[
                20, 0], block_table=table, softcap=0.0, scheduler_metadata=None, fa_version=3, q_descale=factors,
            k_descale=factors, v_descale=factors, num_splits=0, s_aux=sinks, return_softmax_lse=True)
        self.assertIs(found, out)
        self.compare(found, lse, causal=True, window=(20, 0), scale=0.2, sinks=sinks)
        again = varlen(self.q, *pages, self.cu_q, seqused_k=ints(self.KEYS), page_table=table, causal=True,
                       attention_chunk=16, return_lse=True)
        self.compare(*again, causal=True, chunk=16)
        used = varlen(self.q, *pages, self.cu_q, seqused_q=ints([2, 0, 9, 1]), seqused_k=ints(self.KEYS),
                      page_table=table, causal=True, return_lse=True)
        self.compare(*used, [2, 0, 9, 1], causal=True)
        for message, given in (("block_table is given without seqused_k and cu_seqlens_k", {}),
                               ("dropout_p is 0.5; must be 0.0 with block_table", {
                                   "seqused_k": ints(self.KEYS), "dropout_p": 0.5})):
            with self.assertRaisesRegex(ValueError, message):
                varlen(self.q, *pages, self.cu_q, block_table=table, **given)
        if DEVICE == "cpu":
            with self.assertRaisesRegex(
                    ValueError, r"seqused_k\[0\] is 73; must be 0 to 72: block_table has room for as many keys"):
                varlen(self.q, *pages, self.cu_q, block_table=table, seqused_k=ints([73, 1, 1, 1]))

    def test_eight_bits(self):
        if DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
            self.skipTest("e4m3 starts with sm_89")
        codes = [x.to(torch.float8_e4m3fn) for x in (self.q, self.k, self.v)]
        factors = [
            torch.rand(4, 2, generator=torch.Generator().manual_seed(seed)).to(DEVICE) + 0.5 for seed in range(3)]
        out = varlen(*codes, self.cu_q, self.cu_k, causal=True, q_descale=factors[0], k_descale=factors[1],
                     v_descale=factors[2])
        self.assertEqual(out.dtype, torch.bfloat16)
        wide = []
        for x, of, lengths in zip(codes, factors, (self.ROWS, self.KEYS, self.KEYS)):
            of_rows = of.repeat_interleave(torch.tensor(lengths, device=DEVICE), 0).repeat_interleave(
                x.shape[1] // 2, 1)
            wide.append(x.double() * of_rows[..., None])
        for rows, want, _ in of_each(*wide, self.cu_q.tolist(), self.cu_k.tolist(), self.ROWS, self.KEYS, causal=True):
            torch.testing.assert_close(out[rows].double(), want, atol=3e-2, rtol=3e-2)
        half = codes[0].to(torch.float16)
        found = varlen(half, *codes[1:], self.cu_q, self.cu_k, 33, 70, k_descale=factors[1][:1],
                       v_descale=factors[2][:1].expand(4, 2))
        for rows, want, _ in of_each(half, *(x.double() * f[:1, :, None] for x, f in zip(codes[1:], factors[1:])),
                                     self.cu_q.tolist(), self.cu_k.tolist(), self.ROWS, self.KEYS):
            torch.testing.assert_close(found[rows].double(), want, atol=1e-2, rtol=1e-2)

    def test_forward_alone(self):
        """The forward over pages, and with 8 bits, serves tensors that require gradients; a
        backward raises."""
        pages, table = [x[:104].reshape(26, 4, 2, 64) for x in (self.k, self.v)], ints([[0, 1], [2, 3], [4, 5], [6, 7]])
        codes = [x.to(torch.float8_e4m3fn) for x in (self.q, self.k, self.v)]
        dense = [x[None, :20].contiguous() for x in codes]
        calls = {
            "block_table": lambda q: varlen(q, *pages, self.cu_q, seqused_k=ints([8, 3, 8, 5]), block_table=table,
                                            return_lse=True),
            "8-bit tensors": lambda q: varlen(q.to(torch.bfloat16), *codes[1:], self.cu_q, self.cu_k, return_lse=True),
            "flash_attn_func": lambda q: attune.flash.flash_attn_func(q, *dense[1:], return_lse=True)}
        for name, call in calls.items():
            if name != "block_table" and DEVICE == "cuda" and torch.cuda.get_device_capability() < (8, 9):
                continue  # e4m3 starts with sm_89
            q = dense[0] if name == "flash_attn_func" else self.q
            out, lse = call(q.clone().requires_grad_())
            with self.subTest(name):
                self.assertTrue(all(torch.equal(*pair) for pair in zip((out, lse), call(q))) and out.requires_grad)
                with self.assertRaisesRegex(RuntimeError, f"gradients are asked of .*{name}.*, which has none"):
                    out.float().sum().backward()

    def test_dropout(self):
        q, k, v = (x.clone().requires_grad_() for x in (self.q, self.k, self.v))
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                torch.manual_seed(3)
                out = varlen(q, k, v, self.cu_q, self.cu_k, dropout_p=0.25, causal=True)
                torch.manual_seed(3)
                self.assertTrue(torch.equal(out, varlen(q, k, v, self.cu_q, self.cu_k, dropout_p=0.25, causal=True)))
        ones = torch.ones_like(self.v)
        means = [varlen(self.q, self.k, ones, self.cu_q, self.cu_k, dropout_p=0.25).mean().item() for _ in range(40)]
        self.assertAlmostEqual(sum(means) / 40, 1.0, delta=0.05)
        self.assertFalse(torch.equal(out, varlen(self.q, self.k, self.v, self.cu_q, self.cu_k, causal=True)))

    @unittest.skipIf(DEVICE != "cpu", "a host that sees lists reads them, which no graph can hold")
    def test_in_graphs(self):
        q = draw(sum(self.ROWS), 2, 64, seed=1)
        for choices in ({"causal": True}, {"causal": True, "window_size": (4, 0), "softcap": 3.0}):
            attend = lambda q, k, v, ends, choices=choices: varlen(q, k, v, ends, ends, 33, 33, **choices)  # noqa: E731
            torch._dynamo.reset()
            found = torch.compile(attend, fullgraph=True, backend="eager")(self.q, q, q, self.cu_q)
            self.near(found, attend(self.q, q, q, self.cu_q))

    def test_learned_slopes_alone(self):
        """Learned slopes with frozen q, k and v were once refused with two different lists."""
        slopes = torch.rand(4, 4, generator=torch.Generator().manual_seed(4)).to(DEVICE).requires_grad_()
        found = []
        for keys in (self.cu_q, self.cu_q.clone()):
            out = varlen(self.q, self.q, self.q, self.cu_q, keys, causal=True, alibi_slopes=slopes)
            found.append(torch.autograd.grad(out.float().square().sum(), slopes)[0])
        self.near(*found, 20)
        self.assertGreater(found[0].abs().max().item(), 0)


if __name__ == "__main__":
    run_tests()
