#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module on PyTorch's CPU tensors: results, gradients, tensors without memory. torch_compile_test.py has
torch.compile. Skips aloud (status 77) without PyTorch or the CPU target."""
import unittest
import warnings

import attune  # before PyTorch, which it then finds at the first call
from skips import run, torch


def operands(dtype=torch.float32, seqlen_q=33, seqlen_kv=33):
    torch.manual_seed(7)
    return [
        torch.randn(2, rows, heads, 64).to(dtype) for rows, heads in ((seqlen_q, 4), (seqlen_kv, 2), (seqlen_kv, 2))]


def sdpa(q, k, v, **choices):
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, **choices).transpose(1, 2)


class TorchCpuTest(unittest.TestCase):
    def test_results(self):
        for dtype, tolerance in ((torch.float32, 2e-5), (torch.bfloat16, 3e-2), (torch.float16, 4e-3)):
            q, k, v = operands(dtype)
            o = attune.attention(q, k, v, is_causal=True, scale=torch.tensor(0.2))
            self.assertEqual((o.dtype, o.shape), (dtype, q.shape))
            self.assertLess((o.double() - sdpa(q, k, v, is_causal=True, scale=0.2)).abs().max().item(), tolerance)

    def test_mixed_dtypes_are_refused(self):
        q, k, v = operands(torch.bfloat16)
        for wrong in (torch.float16, torch.float32, torch.float8_e4m3fn):
            with self.assertRaisesRegex(ValueError, "k is .* and q is bf16"):
                attune.attention(q, k.to(wrong), v.to(wrong))
            with self.assertRaisesRegex(ValueError, "out is .* and q is bf16"):
                attune.attention(q, k, v, out=q.to(wrong))

    def test_gradients_through_out_are_refused(self):
        q, k, v = operands()
        k.requires_grad_()
        with self.assertRaisesRegex(ValueError, r"k requires a gradient, .*k.detach\(\)"):
            attune.attention(q, k, v, out=torch.empty_like(q))
        with self.assertRaisesRegex(ValueError, "v requires a gradient"):
            attune.attention(q, k.detach(), k * 2, out=torch.empty_like(q))  # v has a history
        for scope in (torch.no_grad(), torch.inference_mode()):
            with scope:
                self.assertLess((attune.attention(q, k, v) - sdpa(q, k, v)).abs().max().item(), 2e-5)

    def test_tensors_without_plain_memory_are_refused(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        q, k, v = operands()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with FakeTensorMode() as mode:
                fakes = [mode.from_tensor(x) for x in (q, k, v)]
            with self.assertRaisesRegex(ValueError, "k is a FakeTensor without memory"):
                attune.Context("cpu").plan(attune.problem_text(q, k, v)).run(q, fakes[1], v, torch.empty_like(q))
        with self.assertRaisesRegex(ValueError, "k is on meta and q is on cpu"):
            attune.attention(q, k.to("meta"), v)
        with self.assertRaisesRegex(ValueError, "v has layout torch.sparse_coo; must be a dense tensor"):
            attune.attention(q, k, v.to_sparse())
        with self.assertRaisesRegex(ValueError, "v is a view of its negative"):
            attune.attention(q, k, torch._neg_view(v))

    def test_autocast_makes_nothing_of_float64(self):
        """float64 stays float64, as in PyTorch's own attention. It was once computed in bf16 without a warning."""
        q = torch.zeros(1, 4, 2, 16, dtype=torch.float64)
        with torch.autocast("cpu", torch.bfloat16):
            for given in ((q, q, q), (q.float(), q, q), (q.clone().requires_grad_(), q, q)):
                with self.assertRaisesRegex((ValueError, attune.Error), "(q|k) is .*64"):
                    attune.attention(*given)

    def test_transforms_are_named(self):
        q, k, v = operands(seqlen_kv=33)
        of_sdpa = lambda x: attune.sdpa.scaled_dot_product_attention(*(y.transpose(1, 2) for y in (x, x, x)))
        for name, call in (("q", lambda x: attune.attention(x, x, x)),
                           ("k", lambda x: attune.attention(q, x[..., :2, :], v)), ("q", of_sdpa),
                           ("q", lambda x: attune.attention(x[..., :20], x[..., :20], x[..., :20], pad_head_dim=True)),
                           ("bias", lambda x: attune.attention(q, k, v, bias=x[:, :, 0, :33]))):
            with self.assertRaisesRegex(
                    RuntimeError,
                    f"{name} is inside a torch.func transform .*vmap, grad, jvp.*; give plain tensors: fold a "
                    f"mapped axis"
            ):
                torch.func.vmap(call)(torch.stack([q, q]))

    def test_default_device_is_not_that_of_memory_for_the_host(self):
        from attune import flashinfer
        q, k, v = operands()
        ints = lambda *values: torch.tensor(values, dtype=torch.int32)
        cache, page, lists = torch.randn(3, 2, 4, 2, 64), torch.randn(7, 4, 64), (ints(0, 2, 3), ints(2, 0,
                                                                                                      1), ints(3, 4))
        begins, seen = ints(0, 3, 7), torch.rand(3 * 7 + 4 * 4) < 0.7
        packed = torch.tensor([
            sum(1 << j for j, bit in enumerate(part[i:i + 8]) if bit)
            for part in (seen[:21].tolist(), seen[21:].tolist()) for i in range(0, len(part), 8)], dtype=torch.uint8)

        def masked(**given):
            wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(None)
            wrapper.plan(begins, *lists, 4, 2, 64, 4, **given)
            return wrapper.run(page, cache)

        calls = (lambda: attune.dropout_mask(
            (1, 2, 33, 33), 0.5, 3, like=q), lambda: attune.attention(q, k, v, dropout_p=0.5, seed=3),
                 lambda: attune.rotary_table(0, 32, like=q)[0], lambda: attune.rotary_table(5, 32, like=q)[0],
                 lambda: masked(custom_mask=seen), lambda: masked(packed_custom_mask=packed),
                 lambda: masked(causal=True))
        for number, call in enumerate(calls):
            want = call()
            with torch.device("meta"):
                found = call()
            self.assertEqual(found.device.type, "cpu", number)
            self.assertTrue(torch.equal(found, want), number)

    def test_memory_of_bytes_and_threads(self):
        q, k, v = operands()
        out = torch.empty_like(q)
        self.assertIs(attune.attention(q, k, v, out=out, context="cpu:1"), out)
        self.assertLess((out - sdpa(q, k, v)).abs().max().item(), 2e-5)


if __name__ == "__main__":
    run()
