#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C module of attune's Python package on a GPU: streams, threads, graph capture, memory of results. Each is
compared with the same call on the Python path. Skips aloud (status 77) without a CUDA device, or where PyTorch has no
DLPack exchange functions (before 2.10)."""
import os
import sys
import threading
import unittest

try:
    import torch
except ImportError:
    print("SKIP: there is no PyTorch here")
    sys.exit(77)

import attune
from attune.core.library import module
from held_gil import gil_held_elsewhere

checked = attune.ops.attention._checked


def operands(rows=256, seed=1, dtype=torch.bfloat16):
    made = torch.Generator(device="cuda").manual_seed(seed)
    return [torch.randn(2, rows, heads, 64, device="cuda", dtype=dtype, generator=made) for heads in (8, 2, 2)]


def same(a, b):
    return torch.allclose(a.float(), b.float(), atol=1e-2, rtol=1e-2)


def hits(run):
    before = module.counters()["hits"]
    run()
    return module.counters()["hits"] - before


CHOICES = {
    "plain": {}, "causal": {"mask": "causal"}, "window": {"mask": "causal_bottom_right", "window": (100, 0)},
    "softcap": {"softcap": 20.0}}


class QuickGpuTest(unittest.TestCase):
    def test_known_calls_run_in_the_module(self):
        for dtype in (torch.bfloat16, torch.float16, torch.float32):
            for name, choices in CHOICES.items():
                with self.subTest(f"{name}, {dtype}"):
                    q, k, v = operands(dtype=dtype)
                    want, want_lse = checked(q, k, v, return_lse=True, **choices)[0]
                    attune.attention(q, k, v, return_lse=True, **choices)
                    got = []
                    self.assertEqual(hits(lambda: got.append(attune.attention(q, k, v, return_lse=True, **choices))), 1)
                    self.assertTrue(same(got[0][0], want) and same(got[0][1], want_lse))
                    self.assertEqual((got[0][0].dtype, got[0][0].stride(), got[0][0].device),
                                     (want.dtype, want.stride(), want.device))

    def test_runs_and_launchers(self):
        q, k, v = operands()
        plan = attune.prepare(q, k, v)
        want, out = checked(q, k, v)[0], torch.zeros_like(q)
        plan.run(q, k, v, out)
        for call in (lambda: plan.run(q, k, v, out), plan.launcher(q, k, v, out)):
            out.zero_()
            call()
            self.assertTrue(same(out, want))
        self.assertEqual(hits(lambda: plan.run(q, k, v, out)), 1)

    def test_streams(self):
        q, k, v = operands()
        want = checked(q, k, v)[0]
        streams = [torch.cuda.Stream() for _ in range(4)]
        torch.cuda.synchronize()
        for turn in range(3):
            for stream in streams:
                with torch.cuda.stream(stream):
                    results = []
                    found = hits(lambda: results.append(attune.attention(q, k, v)))
                    self.assertTrue(turn == 0 or found == 1)
                stream.synchronize()
                self.assertTrue(same(results[0], want))

    def test_work_follows_the_stream(self):
        """A call sees what its stream was given before, and nothing of it is read early."""
        q, k, v = operands(2048)
        want = checked(q * 2, k, v)[0]
        attune.attention(q, k, v), attune.attention(q, k, v)
        stream = torch.cuda.Stream()
        for _ in range(3):
            with torch.cuda.stream(stream):
                moving = torch.zeros_like(q)
                torch.cuda._sleep(20_000_000)
                moving.copy_(q * 2)
                got = attune.attention(moving, k, v)
            stream.synchronize()
            self.assertTrue(same(got, want))

    def test_captures(self):
        q, k, v = operands(128, seed=3)
        for name, choices in CHOICES.items():
            with self.subTest(name):
                attune.prepare(q, k, v, **choices)
                attune.attention(q, k, v, **choices), attune.attention(q, k, v, **choices)
                graph, still = torch.cuda.CUDAGraph(), q.clone()
                with torch.cuda.graph(graph):
                    o = attune.attention(still, k, v, **choices)
                for scale in (1, 3, -1):
                    still.copy_(q * scale)
                    graph.replay()
                    self.assertTrue(same(o, checked(q * scale, k, v, **choices)[0]))
                self.assertEqual(hits(lambda: attune.attention(q, k, v, **choices)), 1)  # as before the capture

    def test_a_capture_that_was_not_prepared_is_refused_or_right(self):
        q, k, v = operands(384, seed=5)
        attune.attention(q, k, v), attune.attention(q, k, v)
        plan = attune.ops.attention.context_of(None, "cuda:0").plan(attune.problem_text(q, k, v))
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                o = attune.attention(q, k, v)
        except RuntimeError as error:
            self.assertRegex(str(error), "needs a workspace")
            self.assertGreater(plan.workspace_bytes, 0)
            return
        graph.replay()
        self.assertTrue(same(o, checked(q, k, v)[0]))

    def test_threads(self):
        for holds in (False, True):
            with self.subTest(gil_held_elsewhere=holds), gil_held_elsewhere(holds):
                self.threads()

    def threads(self):
        wrong = []

        def work(seed):
            q, k, v = operands(64 + 16 * (seed % 4), seed)
            torch.cuda.synchronize()  # the stream below does not wait for the stream that made them
            with torch.cuda.stream(torch.cuda.Stream()):
                want = checked(q, k, v)[0]
                for _ in range(200):
                    got = attune.attention(q, k, v)
                torch.cuda.current_stream().synchronize()
                if not same(got, want):
                    wrong.append(seed)
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_threads_that_share_a_stream(self):
        """All in the module's workspace of the default stream, with plans of different needs, and by Python in
        between."""
        made = [(x, checked(*x)[0]) for x in (operands(64 + 64 * i, i) for i in range(8))]
        torch.cuda.synchronize()
        wrong = []

        def work(turn):
            for i in range(100):
                x, want = made[(i + turn) % 8]
                got = checked(*x)[0] if i % 5 == 0 else attune.attention(*x)
                if i % 20 == 0 and not same(got, want):
                    wrong.append((turn, i))
        threads = [threading.Thread(target=work, args=(turn,)) for turn in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_results_come_from_pytorchs_allocator(self):
        q, k, v = operands()
        attune.attention(q, k, v), attune.attention(q, k, v)
        before = torch.cuda.memory_allocated()
        o = attune.attention(q, k, v)
        self.assertGreaterEqual(torch.cuda.memory_allocated() - before, o.numel() * o.element_size())
        o.record_stream(torch.cuda.Stream())
        del o
        torch.cuda.synchronize()
        for _ in range(300):
            attune.attention(q, k, v)
        torch.cuda.synchronize()
        self.assertLess(torch.cuda.memory_allocated() - before, 3 * q.numel() * q.element_size())

    def test_wrong_calls_after_known_ones(self):
        q, k, v = operands()
        attune.attention(q, k, v), attune.attention(q, k, v)
        for wrong, sentence in ((k.cpu(), "k is on cpu and q is on cuda:0"), (k.half(), "k is fp16 and q is bf16"),
                                (torch._neg_view(k), "k is a view of its negative"), (k[:, :-1], "v has shape"),
                                (k.to("meta"), "k is on meta")):
            with self.assertRaisesRegex(ValueError, sentence):
                attune.attention(q, wrong, v)
        self.assertEqual(hits(lambda: attune.attention(q, k, v)), 1)

    @unittest.skipIf(torch.cuda.device_count() < 2, "one device")
    def test_a_device_that_is_not_the_current_one(self):
        q, k, v = (x.to("cuda:1") for x in operands())
        want = checked(q, k, v)[0]
        attune.attention(q, k, v)
        got = []
        self.assertEqual(hits(lambda: got.append(attune.attention(q, k, v))), 1)
        torch.cuda.synchronize(1)
        self.assertTrue(same(got[0], want) and got[0].device == q.device)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""  # do not read or write the user's store
    if not torch.cuda.is_available():
        print("SKIP: there is no CUDA device here")
        sys.exit(77)
    if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        print("SKIP: PyTorch is older than 2.10")
        sys.exit(77)
    unittest.main()
