#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.flash.cute, FlashAttention 4's signatures: windows with negative sides against float64, dense, packed and over
pages, with and without gradients. The signatures of versions 2 and 3 must refuse negative sides. On PyTorch's tensors,
on the device named by the first argument. Skips aloud (status 77) without PyTorch or that device."""
import subprocess
import sys
import unittest
import warnings

from library_and_device import DEVICE, torch
from skips import skip

if torch is None:
    skip("PyTorch's tensors are wanted: cpu or cuda")

import attune
import attune.flash
from attune.flash import cute
from caches import DTYPE, LIMIT, ints, run_tests
from published_grids import reference

KIND = getattr(torch, DTYPE)
SHAPES = ((16, 16), (7, 20), (20, 7))
WINDOWS = ((None, -3), (-3, None), (None, -1), (-1, None), (-1, 3), (2, -1), (4, -4), (-4, 4), (None, 0), (3, 2),
           (-40, None), (None, -40))
OPEN = ((-3, -1), (-1, -1), (-1, 0), (2, -3), (None, None)
        )  # windows that show no key; version 4 ignores such windows


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, KIND)


def shown(rows, keys, window):
    """Returns bool [rows, keys] by version 4's definition of a window."""
    row, key = torch.arange(rows, device=DEVICE)[:, None] + keys - rows, torch.arange(keys, device=DEVICE)
    left, right = window
    seen = torch.ones(rows, keys, dtype=torch.bool, device=DEVICE)
    seen &= True if left is None else key >= row - left
    return seen & (True if right is None else key <= row + right)


class CuteTest(unittest.TestCase):
    def near(self, found, want, times=4):
        torch.testing.assert_close(found.double(), want.double(), atol=times * LIMIT, rtol=times * LIMIT)

    def operands(self, rows, keys):
        return draw(2, rows, 4, 64, seed=1), draw(2, keys, 2, 64, seed=2), draw(2, keys, 2, 64, seed=3)

    def test_dense(self):
        sinks = draw(4, seed=5)
        for rows, keys in SHAPES:
            given = self.operands(rows, keys)
            for window in (*WINDOWS, *OPEN):
                with self.subTest(rows=rows, keys=keys, window=window):
                    seen = None if window in OPEN else shown(rows, keys, window)
                    out, lse = cute.flash_attn_func(*given, window_size=window, return_lse=True)
                    want, want_lse = reference(*given, seen)
                    self.near(out, want)
                    self.near(lse, want_lse)
            out, lse = cute.flash_attn_func(*given, window_size=(-2, None), learnable_sink=sinks, softcap=3.0,
                                            softmax_scale=0.2, return_lse=True)
            want, want_lse = reference(*given, shown(rows, keys, (-2, None)), sinks=sinks, softcap=3.0, scale=0.2)
            self.near(out, want)
            self.near(lse, want_lse)

    def test_causal_ends_at_the_row(self):
        given = self.operands(7, 20)
        for window, same in (((3, None), (3, 0)), ((3, 5), (3, 0)), ((3, -2), (3, 0)), ((None, -3), (None, 0)),
                             ((-3, None), (None, 0)), (None, (None, 0))):
            out, lse = cute.flash_attn_func(*given, causal=True, window_size=window)
            self.near(out, reference(*given, shown(7, 20, same))[0])
            self.assertIsNone(lse)

    def test_gradients(self):
        for window in ((None, -3), (-3, None), (2, -1), (-1, 3)):
            for rows, keys in SHAPES:
                mine = [x.clone().requires_grad_() for x in self.operands(rows, keys)]
                theirs = [x.double().requires_grad_() for x in self.operands(rows, keys)]
                weights = draw(2, rows, 4, 64, seed=6)
                cute.flash_attn_func(*mine, window_size=window)[0].backward(weights)
                reference(*theirs, shown(rows, keys, window))[0].backward(weights.double())
                for x, want in zip(mine, theirs):
                    self.near(x.grad, want.grad, 20)

    def test_end_to_end(self):
        """Packed sequences; with gradients they run as documents. The lists of q and k are equal or different."""
        for rows, keys in SHAPES:
            given = self.operands(rows, keys)
            at_q, at_k = ints([0, rows, 2 * rows]), ints([0, keys, 2 * keys])
            for window in WINDOWS:
                want, want_lse = reference(*given, shown(rows, keys, window))
                for grad in (False, True):
                    packed = [x.flatten(0, 1).clone().requires_grad_(grad) for x in given]
                    with self.subTest(rows=rows, keys=keys, window=window, grad=grad):
                        out, lse = cute.flash_attn_varlen_func(*packed, None, at_q, at_q if rows == keys else at_k,
                                                               rows, keys, window_size=window, return_lse=True)
                        self.near(out.detach().unflatten(0, (2, rows)), want)
                        self.near(lse.detach().unflatten(1, (2, rows)).transpose(0, 1), want_lse)
                out, lse = cute.flash_attn_varlen_func(*given, window_size=window)
                self.near(out, want)
                self.assertIsNone(lse)

    def test_over_pages(self):
        q, k, v = self.operands(5, 12)
        pages = [x.reshape(6, 4, 2, 64)[[3, 0, 5, 1, 4, 2]] for x in (k, v)]
        table, used = ints([[1, 3, 5], [0, 4, 2]]), [12, 9]
        for window in WINDOWS:
            out, lse = cute.flash_attn_varlen_func(q, *pages, seqused_k=ints(used), page_table=table,
                                                   window_size=window, return_lse=True)
            for b, n in enumerate(used):
                want, want_lse = reference(q[b:b + 1], k[b:b + 1, :n], v[b:b + 1, :n], shown(5, n, window))
                self.near(out[b:b + 1], want)
                self.near(lse[b:b + 1], want_lse)

    @unittest.skipIf(DEVICE != "cpu", "compiled once is enough")
    def test_in_graphs(self):
        given = self.operands(7, 20)
        packed = [x.flatten(0, 1) for x in given]
        at_q, at_k = ints([0, 7, 14]), ints([0, 20, 40])
        calls = (
            lambda q, k, v: cute.flash_attn_func(q, k, v, window_size=(2, -1))[0],
            lambda q, k, v: cute.flash_attn_varlen_func(q, k, v, None, at_q, at_k, 7, 20, window_size=(None, -3))[0])
        for call, operands in zip(calls, (given, packed)):
            torch._dynamo.reset()
            self.near(torch.compile(call, fullgraph=True, backend="aot_eager")(*operands), call(*operands))
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        compiled = torch.compile(calls[0], fullgraph=True, backend="aot_eager")
        for keys in range(8, 20):
            cut = (given[0], *(x[:, :keys] for x in given[1:]))
            self.near(compiled(*cut), calls[0](*cut))
        self.assertLessEqual(torch._dynamo.utils.counters["stats"]["unique_graphs"], 2)

    def test_other_versions_refuse(self):
        flash, (q, k, v) = attune.flash, self.operands(7, 7)
        at = ints([0, 7, 14])
        packed = [x.flatten(0, 1) for x in (q, k, v)]
        for window in ((None, -3), (-3, None), [-2, 1], torch.tensor([1, -2])):
            for name, call in (("dense", lambda: flash.flash_attn_func(q, k, v, window_size=window)),
                               ("end to end",
                                lambda: flash.flash_attn_varlen_func(*packed, at, at, 7, 7, window_size=window)),
                               ("cache", lambda: flash.flash_attn_with_kvcache(q, k, v, window_size=window)),
                               ("kvpacked", lambda: flash.flash_attn_kvpacked_func(q, torch.stack(
                                   (k, v), 2), window_size=window))):
                with self.subTest(name, window=window), self.assertRaisesRegex(
                        ValueError,
                        r"window_size is .*; sides must be at least 0, or -1 or None .*attune.flash.cute"):
                    call()
        for call in (lambda: attune.attention(q, k, v, window=(-3, None)),
                     lambda: attune.attention_kvcache(q, k, v, window=(None, -2))):
            with self.assertRaisesRegex(ValueError, r"window is \(.*; sides must be at least 0"):
                call()
        self.assertTrue(
            torch.equal(flash.flash_attn_func(q, k, v, window_size=(-1, None)), flash.flash_attn_func(q, k, v)))
        from attune import flashinfer
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(0, device=DEVICE))
        for call in (lambda: flashinfer.single_prefill_with_kv_cache(*packed, window_left=-2),
                     lambda: flashinfer.single_decode_with_kv_cache(q[0, 0], k[0], v[0], window_left=-2),
                     lambda: wrapper.plan(at, at, 4, 2, 64, window_left=-2)):
            with self.assertRaisesRegex(ValueError, "window_left is -2; must be at least -1"):
                call()

    def test_windows_of_two_numbers(self):
        """Tensors of two numbers, as FlashAttention's own tests draw them."""
        q, k, v = self.operands(7, 20)
        at_q, at_k = ints([0, 7, 14]), ints([0, 20, 40])
        packed = [x.flatten(0, 1) for x in (q, k, v)]
        for call in (lambda window: attune.flash.flash_attn_func(q, k, v, window_size=window),
                     lambda window: attune.flash.flash_attn_varlen_func(*packed, at_q, at_k, 7, 20, window_size=window),
                     lambda window: attune.flash.flash_attn_with_kvcache(q, k, v, window_size=window),
                     lambda window: cute.flash_attn_func(q, k, v, window_size=window)[0]):
            want = call((3, 2))
            for window in ([3, 2], torch.tensor([3, 2]), torch.tensor(
                [3, 2], dtype=torch.int32), (torch.tensor(3), torch.tensor(2)), torch.tensor([3, 2]).numpy()):
                self.assertTrue(torch.equal(call(window), want))
            for window in (torch.tensor([3.0, 2.0]), torch.tensor([3, 2,
                                                                   1]), torch.tensor([[3, 2]]), torch.tensor(3), "32"):
                with self.assertRaisesRegex(ValueError, "window_size is "):
                    call(window)

    def test_latent(self):
        """qv as a positional argument; with qv, lse has heads last."""
        keys = draw(2, 20, 1, 192, seed=2)
        k, v = keys[..., 128:], keys[..., :128]
        q, qv = draw(2, 7, 4, 64, seed=1), draw(2, 7, 4, 128, seed=4)
        want, want_lse = reference(torch.cat((q, qv), -1), torch.cat((k, v), -1), v, shown(7, 20, (None, 0)))
        out, lse = cute.flash_attn_varlen_func(q, k, v, qv, causal=True, return_lse=True)
        self.near(out, want)
        self.near(lse, want_lse.transpose(1, 2))

    def test_refusals_and_hints(self):
        q, k, v = self.operands(7, 7)
        for name in ("gather_kv_indices", "score_mod_bwd", "aux_tensors", "aux_scalars", "block_sparse_tensors"):
            for call in (cute.flash_attn_func, cute.flash_attn_varlen_func):
                with self.assertRaisesRegex(ValueError, f"{name} is given; "):
                    call(q, k, v, **{name: q})
        seen = attune.mask_mod(lambda b, h, i, j: j <= i)
        self.near(cute.flash_attn_func(q, k, v, mask_mod=seen)[0], reference(q, k, v, shown(7, 7, (None, 0)))[0])
        for more in ({"causal": True}, {"window_size": (None, -1)}):
            with self.assertRaisesRegex(ValueError, "mask_mod is given with causal or window_size"):
                cute.flash_attn_func(q, k, v, mask_mod=seen, **more)
        with self.assertRaisesRegex(ValueError, "mask_mod is given for sequences end to end"):
            cute.flash_attn_varlen_func(q, k, v, mask_mod=seen)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            cute.flash_attn_varlen_func(q, k, v, min_seqlen_k=7, scheduler_metadata=cute.get_scheduler_metadata(1, 2),
                                        seqlen_k_per_split=4, disable_scheduler_metadata=True)

    def test_is_found_without_a_separate_import(self):
        code = "import attune; print(attune.flash.cute.flash_attn_func.__module__)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.stdout.strip(), "attune.flash.cute", done.stderr)
        with self.assertRaisesRegex(AttributeError, "has no attribute 'cut'"):
            attune.flash.cut

    def test_combine(self):
        states = draw(3, 2, 5, 4, 64, seed=7).float(), draw(3, 2, 5, 4, seed=8).float()
        want = (torch.softmax(states[1].double(), 0)[..., None] * states[0].double()).sum(0)
        for combine in (cute.flash_attn_combine, attune.flash.flash_attn_combine):
            out, lse = combine(*states)
            self.near(out, want)
            self.near(lse, states[1].double().logsumexp(0))
            alone, nothing = combine(*states, return_lse=False)
            self.assertTrue(torch.equal(alone, out) and nothing is None)
            self.assertTrue(torch.equal(combine(*states, virtual_batch_idx=ints([1, 0]))[0], out))
            for message, order in ((r"virtual_batch_idx is torch.int32 of shape \(3,\)", ints([
                    0, 1, 2])), ("virtual_batch_idx is torch.int64", ints([
                        0, 1]).long()), *((("virtual_batch_idx is \\[0, 0\\]; must hold each number from 0 to 1 once",
                                            ints([0, 0])), ) if DEVICE == "cpu" else ())):
                with self.assertRaisesRegex(ValueError, message):
                    combine(*states, virtual_batch_idx=order)
        with self.assertRaisesRegex(ValueError, "virtual_batch_idx is given for rows end to end"):
            attune.flash.flash_attn_combine(states[0][:, 0], states[1][:, 0], virtual_batch_idx=ints([0]))


if __name__ == "__main__":
    run_tests()
