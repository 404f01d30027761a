#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workspaces of runs that CUDA graphs capture: each graph has one per stream, zeroed once per replay and kept as long
as the graph. Skips aloud (status 77) without PyTorch or a GPU."""
import ctypes
import gc
import unittest

from skips import skip, torch
if not torch.cuda.is_available():
    skip("PyTorch sees no GPU here")

import attune
from attune.ops import workspace as _workspace

MEMSET_NODE = 2  # CU_GRAPH_NODE_TYPE_MEMSET


def caches(seed, requests=3, length=3000):
    generator = torch.Generator("cuda").manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=generator)
    return draw(requests, 1, 32, 128), draw(requests, length, 8, 128), draw(requests, length, 8, 128)


def captured(calls, **options):
    """Returns a graph of calls, and their results."""
    graph = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(graph):
        found = [call() for call in calls]
    return graph, found


def memset_nodes(graph):
    driver = ctypes.CDLL("libcuda.so.1")
    raw, count = ctypes.c_void_p(graph.raw_cuda_graph()), ctypes.c_size_t(0)
    assert driver.cuGraphGetNodes(raw, None, ctypes.byref(count)) == 0
    nodes = (ctypes.c_void_p * count.value)()
    assert driver.cuGraphGetNodes(raw, nodes, ctypes.byref(count)) == 0
    kinds = []
    for node in nodes:
        kind = ctypes.c_int(-1)
        assert driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)) == 0
        kinds.append(kind.value)
    return kinds.count(MEMSET_NODE)


class GraphWorkspaceTest(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = caches(1)
        self.want = attune.attention_kvcache(self.q, self.k, self.v)
        torch.cuda.synchronize()

    def call(self):
        return attune.attention_kvcache(self.q, self.k, self.v)

    def test_one_memset_for_all_calls(self):
        graph, found = captured([self.call] * 5, keep_graph=True)
        self.assertEqual(memset_nodes(graph), 1)
        graph.instantiate()
        for _ in range(3):
            graph.replay()
            torch.cuda.synchronize()
            for o in found:
                self.assertTrue(torch.equal(o, self.want))

    def test_graphs_that_run_at_the_same_time(self):
        others = caches(2)
        want = attune.attention_kvcache(*others)
        graphs = [captured([self.call] * 20), captured([lambda: attune.attention_kvcache(*others)] * 20)]
        streams = [torch.cuda.Stream() for _ in graphs]
        torch.cuda.synchronize()
        for _ in range(20):
            for (graph, _found), stream in zip(graphs, streams):
                with torch.cuda.stream(stream):
                    graph.replay()
        torch.cuda.synchronize()
        for (_graph, found), expected in zip(graphs, (self.want, want)):
            for o in found:
                self.assertTrue(torch.equal(o, expected))

    def test_streams_of_a_graph_have_separate_workspaces(self):
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            side.wait_stream(torch.cuda.current_stream())
            here = [self.call() for _ in range(8)]
            with torch.cuda.stream(side):
                there = [self.call() for _ in range(8)]
            torch.cuda.current_stream().wait_stream(side)
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        for o in here + there:
            self.assertTrue(torch.equal(o, self.want))

    def test_plans_of_a_graph_share_a_workspace(self):
        many = caches(3, requests=40, length=700)
        want = attune.attention_kvcache(*many)
        graph, found = captured([
            self.call, lambda: attune.attention_kvcache(*many), self.call, lambda: attune.attention_kvcache(*many)])
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        for o, expected in zip(found, (self.want, want) * 2):
            self.assertTrue(torch.equal(o, expected))

    def test_memory_is_freed_with_the_graph(self):
        for _ in range(6):
            graph, _found = captured([self.call])
            graph.replay()
            torch.cuda.synchronize()
            del graph, _found
            gc.collect()
        graph, _found = captured([self.call])
        self.assertLessEqual(len(_workspace._of_graph), 3)
        graph.replay()
        torch.cuda.synchronize()
        self.assertTrue(torch.equal(_found[0], self.want))


if __name__ == "__main__":
    unittest.main()
