#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module on PyTorch's CPU tensors: results, gradients, tensors without memory. torch_compile_test.py has torch.compile. Skips aloud
(status 77) without PyTorch or the CPU target."""
import os
import sys
import unittest
import warnings

import attune  # before PyTorch, which it then finds at the first call

try:
    import torch
except ImportError:
    print("SKIP: there is no PyTorch here")
    sys.exit(77)


def operands(dtype=torch.float32, seqlen_q=33, seqlen_kv=33):
    torch.manual_seed(7)
    return [torch.randn(2, rows, heads, 64).to(dtype) for rows, heads in ((seqlen_q, 4), (seqlen_kv, 2), (seqlen_kv, 2))]


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
        with self.assertRaisesRegex(ValueError, "v has layout torch.sparse_coo; accepted are dense"):
            attune.attention(q, k, v.to_sparse())
        with self.assertRaisesRegex(ValueError, "v is a view of its negative"):
            attune.attention(q, k, torch._neg_view(v))
        with self.assertRaisesRegex(ValueError, "without memory"):
            torch.func.vmap(lambda x: attune.attention(x, x, x))(torch.randn(3, 1, 4, 2, 64))

    def test_memory_of_bytes_and_threads(self):
        q, k, v = operands()
        out = torch.empty_like(q)
        self.assertIs(attune.attention(q, k, v, out=out, context="cpu:1"), out)
        self.assertLess((out - sdpa(q, k, v)).abs().max().item(), 2e-5)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""  # nothing of the user's is read or written
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    unittest.main()
