#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module in PyTorch's own CUDA context: results, streams, CUDA graphs, devices, gradients, strided and
broadcast tensors. Skips aloud (status 77) without PyTorch or a GPU."""
import os
import sys
import threading
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


def operands(batch=2, seqlen=256, heads=8, heads_kv=2, head_dim=128, dtype=torch.bfloat16):
    torch.manual_seed(7)
    draw = lambda h: torch.randn(batch, seqlen, h, head_dim, device="cuda", dtype=dtype)
    return draw(heads), draw(heads_kv), draw(heads_kv)


def expected(q, k, v, causal=False):
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2), scores.logsumexp(-1)


class TorchTest(unittest.TestCase):
    def compare(self, o, want, tolerance=1e-2):
        self.assertFalse(torch.isnan(o).any().item())
        self.assertLess((o.double() - want).abs().max().item(), tolerance)

    def test_results(self):
        for dtype in (torch.bfloat16, torch.float16):
            q, k, v = operands(dtype=dtype)
            o, lse = attune.attention(q, k, v, mask="causal_bottom_right", return_lse=True)
            want_o, want_lse = expected(q, k, v, causal=True)
            self.compare(o, want_o)
            self.compare(lse, want_lse, 1e-3)

    def test_any_stream(self):
        q, k, v = operands()
        want = expected(q, k, v)[0]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            late = q * 1  # the launch must wait for work queued on this stream
            o = attune.attention(late, k, v)
        side.synchronize()
        self.compare(o, want)

    def test_graph_capture_and_replay(self):
        q, k, v = operands()
        o = torch.full_like(q, float("nan"))
        plan = attune.Context("cuda", store="").plan(attune.problem_text(q, k, v, "causal_bottom_right"))
        launch = plan.launcher(q, k, v, o)
        launch()
        torch.cuda.synchronize()
        plan.prepare()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plan.run(q, k, v, o)
        for seed in range(3):
            q.copy_(torch.randn_like(q) * (seed + 1))
            o.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            self.compare(o, expected(q, k, v, causal=True)[0], 2e-2)

    def test_attention_and_quantise_in_a_graph(self):
        q, k, v = operands(heads_kv=8)
        attune.prepare(attune.attention, q, k, v, is_causal=True)
        attune.prepare(attune.quantise, q, scale_block=128)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            o = attune.attention(q, k, v, is_causal=True)
            codes, scale = attune.quantise(q, scale_block=128)
        for seed in range(2):
            q.copy_(torch.randn_like(q) * (seed + 1))
            attune.quantise(k)  # other runs between replays share no workspace with the graph
            graph.replay()
            torch.cuda.synchronize()
            self.compare(o, expected(q, k, v, causal=True)[0], 2e-2)
            values = codes.double() * scale.double().repeat_interleave(128, 2)[:, :, :q.shape[1]].transpose(1, 2)[...,
                                                                                                                  None]
            self.compare(values, q.double(), 0.07 * q.abs().max().item())

    def test_a_capture_that_was_not_prepared_is_refused(self):
        q, k, v = operands(seqlen=96)
        plan = attune.Context("cuda", store="").plan(attune.problem_text(q, k, v))
        o = torch.empty_like(q)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            with self.assertRaisesRegex(RuntimeError, r"call attune.prepare\(attune.attention, ...\) with"):
                attune.attention(q, k, v, scale=0.123)
            if plan.workspace_bytes > 0:
                with self.assertRaisesRegex(RuntimeError, r"call Plan.prepare\(\) before"):
                    plan.run(q, k, v, o)
            o.zero_()  # an empty graph warns

    def test_plans_share_the_workspace_of_a_stream(self):
        q, k, v = operands()
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        for stream in (torch.cuda.current_stream(), side):
            with torch.cuda.stream(stream):
                for _ in range(3):
                    o = attune.attention(q, k, v)
                    attune.quantise(q, scale_block=0)
                    few = attune.attention(q[:1, :64], k[:1], v[:1])
            stream.synchronize()
            self.compare(o, expected(q, k, v)[0])
            self.compare(few, expected(q[:1, :64], k[:1], v[:1])[0])
        plan = attune.Context("cuda", store="").plan(attune.problem_text(q, k, v))
        o = torch.full_like(q, float("nan"))
        torch.cuda.synchronize()
        plan.run(q, k, v, o, stream=side)
        plan.run(q, k, v, o, stream=side.cuda_stream)
        side.synchronize()
        self.compare(o, expected(q, k, v)[0])

    def test_devices_and_gradients_are_refused(self):
        q, k, v = operands(batch=1)
        with self.assertRaisesRegex(ValueError, "k is on cpu and q is on cuda:0"):
            attune.attention(q, k.cpu(), v)
        with self.assertRaisesRegex(ValueError, "out is on cpu and q is on cuda:0"):
            attune.attention(q, k, v, out=torch.empty_like(q, device="cpu"))
        with self.assertRaisesRegex(ValueError, "v is a NumPy array and q is a PyTorch tensor"):
            attune.attention(q, k, v.float().cpu().numpy())
        cpu = [x.float().cpu() for x in (q, k, v)]
        plan = attune.Context("cuda", store="").plan(attune.problem_text(q, k, v))
        with self.assertRaisesRegex(ValueError, "q is on cpu; must be on cuda:0"):
            plan.run(*cpu, torch.empty_like(cpu[0]))
        if torch.cuda.device_count() > 1:
            with self.assertRaisesRegex(ValueError, "k is on cuda:1 and q is on cuda:0"):
                attune.attention(q, k.to("cuda:1"), v)
            self.compare(attune.attention(*(x.to("cuda:1") for x in (q, k, v))).to("cuda:0"), expected(q, k, v)[0])
        with self.assertRaisesRegex(ValueError, "k is fp16 and q is bf16"):
            attune.attention(q, k.half(), v.half())
        with self.assertRaisesRegex(ValueError, r"q requires a gradient, .*q.detach\(\)"):
            attune.attention(q.requires_grad_(), k, v, out=torch.empty_like(q))
        with torch.no_grad():
            self.compare(attune.attention(q, k, v), expected(q, k, v)[0])

    def test_strided_and_broadcast(self):
        packed = torch.randn(2, 200, 24, 64, device="cuda", dtype=torch.float16)
        q, k, v = packed[:, :, :8], packed[:, :, 8:16], packed[:, :, 16:]
        self.compare(attune.attention(q, k, v), expected(q, k, v)[0])
        one = k[:, :, :1].expand(-1, -1, 8, -1)
        self.compare(attune.attention(q, one, one), expected(q, one, one)[0])
        heads_first = q.transpose(1, 2).contiguous().transpose(1, 2)
        self.compare(attune.attention(heads_first, k, v), expected(q, k, v)[0])

    def test_a_thread_without_a_context(self):
        q, k, v = operands()
        outputs = []
        thread = threading.Thread(target=lambda: outputs.append(attune.attention(q, k, v)))
        thread.start()
        thread.join()
        torch.cuda.synchronize()
        self.compare(outputs[0], expected(q, k, v)[0])

    def test_misaligned_tensors_are_refused(self):
        q, k, v = operands(batch=1)
        shifted = torch.empty(q.numel() + 1, device="cuda", dtype=q.dtype)[1:].view_as(q)
        with self.assertRaisesRegex(ValueError, "q is at address .* aligned to 16 bytes"):
            attune.attention(shifted, k, v)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""
    unittest.main()
