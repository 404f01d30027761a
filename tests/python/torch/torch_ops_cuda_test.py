#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune's PyTorch ops, torch.compile, CUDA graphs, autocast and PyTorch's registry of flash attention on a GPU. Skips
aloud (status 77) without PyTorch or a GPU."""
import logging
import os
import sys
import unittest

try:
    import torch
except ImportError:
    print("SKIP: there is no PyTorch here")
    sys.exit(77)
if not torch.cuda.is_available():
    print("SKIP: PyTorch sees no GPU here")
    sys.exit(77)

import attune
import attune.torch
import published_grids as grids

OP = torch.ops.attune.attention.default


def operands(seqlen=256, batch=2, heads=8, heads_kv=2, head_dim=128, dtype=torch.bfloat16):
    torch.manual_seed(7)
    return [torch.randn(batch, seqlen, h, head_dim, device="cuda", dtype=dtype) for h in (heads, heads_kv, heads_kv)]


def layer(q, k, v):
    return attune.attention(q * 2, k, v, mask="causal_bottom_right", softcap=20.0) + 1


class TorchOpsCudaTest(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()

    def test_results_and_opcheck(self):
        q, k, v = operands()
        spec = attune.torch.spec(mask="causal_bottom_right", window=(100, 0))
        o, lse = OP(q, k, v, spec=spec)
        want_o, want_lse = grids.reference(q, k, v, grids.visible(256, 256, "bottom_right", (100, 0), "cuda"))
        self.assertLess((o.double() - want_o).abs().max().item(), 2e-2)
        self.assertLess((lse.double() - want_lse).abs().max().item(), 1e-3)
        torch.library.opcheck(OP, (q, k, v), {"spec": spec})

    def test_lengths_compile_twice(self):
        for backend in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            counter = torch._dynamo.testing.CompileCounterWithBackend(backend)
            call = torch.compile(layer, fullgraph=True, backend=counter)
            for number, seqlen in enumerate((128, 200, 333, 64, 500)):
                given = operands(seqlen)
                with torch._dynamo.config.patch(error_on_recompile=number >= 2):
                    self.assertLess((call(*given) - layer(*given)).abs().max().item(), 2e-2)
            self.assertEqual(counter.frame_count, 2)

    def test_graphs_of_ops_and_of_compiled_functions(self):
        q, k, v = operands()
        attune.prepare(attune.attention, q * 2, k, v, mask="causal_bottom_right", softcap=20.0)
        spec = attune.torch.spec(mask="causal_bottom_right", softcap=20.0)
        compiled = torch.compile(layer, fullgraph=True)
        compiled(q, k, v)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            by_op = OP(q, k, v, spec=spec)[0]
            by_compiled = compiled(q, k, v)
        for seed in range(2):
            q.copy_(torch.randn_like(q) * (seed + 1))
            graph.replay()
            torch.cuda.synchronize()
            self.assertTrue(torch.equal(by_op, attune.attention(q, k, v, mask="causal_bottom_right", softcap=20.0)))
            self.assertLess((by_compiled - layer(q, k, v)).abs().max().item(), 2e-2)

    def test_reduce_overhead(self):
        q, k, v = operands()
        attune.prepare(attune.attention, q * 2, k, v, mask="causal_bottom_right", softcap=20.0)
        call = torch.compile(layer, fullgraph=True, mode="reduce-overhead")
        for seed in range(4):
            fresh = q * (seed + 1)
            self.assertLess((call(fresh, k, v).clone() - layer(fresh, k, v)).abs().max().item(), 2e-2)

    def test_autocast(self):
        q, k, v = operands(dtype=torch.float32)
        bias = torch.randn(256, 256, device="cuda")
        want = attune.attention(q.bfloat16(), k.bfloat16(), v.bfloat16(), bias=bias)
        with torch.autocast("cuda", torch.bfloat16):
            self.assertTrue(torch.equal(attune.attention(q, k, v, bias=bias), want))
            self.assertTrue(torch.equal(OP(q, k.bfloat16(), v, bias=bias)[0], want))
        with torch.no_grad(), torch.autocast("cuda", torch.float16):
            self.assertEqual(
                torch.compile(lambda q, k, v: attune.attention(q, k, v), fullgraph=True)(q, k, v).dtype, torch.float16)

    @unittest.skipUnless(hasattr(torch.nn.attention, "register_flash_attention_impl"), "this PyTorch has no registry")
    def test_models_that_call_sdpa(self):
        def attend(q, k, v, **given):
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2),
                                                                        v.transpose(1, 2), **given).transpose(1, 2)

        q, k, v = operands(heads_kv=8)
        theirs = attend(q, k, v, is_causal=True, scale=0.05)
        attune.torch.activate()
        try:
            ours = attend(q, k, v, is_causal=True, scale=0.05)
            self.assertTrue(torch.equal(ours, attune.attention(q, k, v, "causal", scale=0.05)))
            self.assertFalse(torch.equal(ours, theirs))
            self.assertLess((ours - theirs).abs().max().item(), 2e-2)
            compiled = torch.compile(attend, fullgraph=True)
            self.assertLess((compiled(q, k, v, is_causal=True, scale=0.05) - theirs).abs().max().item(), 2e-2)
            leaf = q.clone().requires_grad_()
            dout = torch.randn_like(q)
            with self.assertNoLogs("attune", logging.INFO):  # the backward runs on attune, too
                attend(leaf, k, v, is_causal=True).backward(dout)
            doubled = q.double().requires_grad_()
            torch.nn.functional.scaled_dot_product_attention(
                *(x.double().transpose(1, 2) if x is not q else doubled.transpose(1, 2) for x in (q, k, v)),
                is_causal=True).transpose(1, 2).backward(dout.double())
            self.assertLess(((leaf.grad - doubled.grad).norm() / doubled.grad.norm()).item(), 2e-2)
            with self.assertLogs("attune", logging.INFO) as log:
                attend(q, k, v, dropout_p=0.5)
            self.assertIn("dropout_p is not 0", log.output[0])
        finally:
            attune.torch.restore()
        self.assertTrue(torch.equal(attend(q, k, v, is_causal=True, scale=0.05), theirs))


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""
    unittest.main()
