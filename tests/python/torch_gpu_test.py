#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module in PyTorch's own CUDA context: results, streams, CUDA graphs, strided and broadcast tensors. Skips aloud
(status 77) without PyTorch or a GPU."""
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
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            plan.run(q, k, v, o)
        for seed in range(3):
            q.copy_(torch.randn_like(q) * (seed + 1))
            o.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            self.compare(o, expected(q, k, v, causal=True)[0], 2e-2)

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
        with self.assertRaisesRegex(attune.Error, "q is at address .* aligned to 16 bytes"):
            attune.attention(shifted, k, v)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""
    unittest.main()
