#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workspaces and memory: one for each thread or stream, shared by plans that dirty it for each other; graph capture,
gradients and streams on a test double of PyTorch (fake_torch.py) whose "cuda:N" is the CPU; memory over many lengths.
Skips aloud (status 77) without NumPy or the CPU target."""
import ctypes
import os
import subprocess
import sys
import threading
import unittest

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)

import fake_torch
from operand_table_test import PROBLEM, SHAPES, expected, values_of

torch = fake_torch.install()
import attune  # noqa: E402
from attune.ops import workspace as _workspace  # noqa: E402

cuda = fake_torch.CudaLibrary().install()
MANY_LENGTHS = int(os.environ.get("ATTUNE_TEST_LENGTHS", "2000"))
BYTES_OF_A_LENGTH = 13.5e3  # limit for a plan and its cache entries; 12.8e3 were measured


def on(device, *names):
    return [fake_torch.Tensor(placed(values_of(name)), device) for name in names]


def placed(array):
    copy = fake_torch.aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


class OnCpu(unittest.TestCase):
    def test_a_stream_that_threads_cannot_tell_apart(self):
        with self.assertRaisesRegex(ValueError, "stream is 2, cudaStreamPerThread"):
            attune.core.torch_state.stream_address(2, 0)
        q, k, v = (fake_torch.Tensor(placed(np.ones((2, n, 2, 64), np.float32)), "cuda:0") for n in (1, 600, 600))
        with fake_torch.on_stream(fake_torch.Stream(2)), self.assertRaisesRegex(
                ValueError, "the current stream is 2, cudaStreamPerThread"):
            attune.attention_kvcache(q, k, v)

    def test_plans_that_dirty_each_others_workspace(self):
        """quantise() writes where attention keeps counters that must be zero."""
        q, k, v = (placed(values_of(name)) for name in "qkv")
        want = expected(q, k, v)[0]
        for _ in range(3):
            np.testing.assert_allclose(attune.attention(q, k, v), want, atol=2e-5)
            attune.quantise(placed(np.full((1, 300, 2, 64), 3, np.float32)), scale_block=16, rotation="hadamard")

    def test_a_plan_that_was_dirtied_is_zeroed_again(self):
        q, k, v, o = *(placed(values_of(name)) for name in "qkv"), fake_torch.aligned(SHAPES["out"], np.float32)
        plan = attune.Context("cpu:1", store="").plan(PROBLEM)
        self.assertLess(0, plan.zeroed_bytes)
        plan.run(q, k, v, o)
        workspace = _workspace.shared(plan, None)
        self.assertGreaterEqual(workspace.zero_bytes, plan.zeroed_bytes)
        other = attune.prepare(attune.quantise, placed(np.ones((1, 300, 2, 64), np.float32)), context="cpu")
        self.assertLess(other.zeroed_bytes, plan.zeroed_bytes)
        self.assertIs(_workspace.shared(other, None), workspace)
        workspace.ready(other, None)
        ctypes.memset(workspace.address, 255, plan.zeroed_bytes)  # as `other` may
        plan.run(q, k, v, o)
        np.testing.assert_allclose(o, expected(q, k, v)[0], atol=2e-5)

    def test_each_thread_has_one(self):
        plan, found = attune.Context("cpu:1", store="").plan(PROBLEM), []
        threads = [threading.Thread(target=lambda: found.append(_workspace.shared(plan, None))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len({id(workspace) for workspace in found}), 3)

    def test_workspaces_given(self):
        q, k, v, o = *(placed(values_of(name)) for name in "qkv"), fake_torch.aligned(SHAPES["out"], np.float32)
        plan = attune.Context("cpu:1", store="").plan(PROBLEM)
        memory = fake_torch.aligned((plan.workspace_bytes + 512,), np.uint8)
        memory = memory[-memory.ctypes.data % 256:]
        memory[:] = 255
        plan.run(q, k, v, o, workspace=memory)  # zeroed as needed
        np.testing.assert_allclose(o, expected(q, k, v)[0], atol=2e-5)
        frozen = memory[:]
        frozen.flags.writeable = False
        for wrong in (memory[:8], memory[1:], memory.view("f4"), memory[::2], frozen, memory.reshape(
                1, -1), memory.astype(object)):
            with self.assertRaisesRegex(ValueError, "workspace (is|has) "):
                plan.run(q, k, v, o, workspace=wrong)
        for wrong in (True, b"x" * plan.workspace_bytes, 1.5, [1]):
            with self.assertRaisesRegex(TypeError, "workspace is of type"):
                plan.run(q, k, v, o, workspace=wrong)
        for wrong in (0, 16):
            with self.assertRaisesRegex(attune.Error, "workspace is .* aligned to 256 bytes"):
                plan.run(q, k, v, o, workspace=wrong)
        address = memory.ctypes.data
        plan.init_workspace(address)
        plan.run(q, k, v, o, workspace=address)

    def test_a_library_that_is_too_old_is_refused(self):
        class OldLibrary(fake_torch.CudaLibrary):
            def plan_info(self, plan):
                return {**super().plan_info(plan), "device_ordinal": None}

        OldLibrary().install()
        try:
            with self.assertRaisesRegex(ImportError, "older than this module"):
                attune.Context("cpu:1", store="").plan(PROBLEM)
        finally:
            cuda.install()

    def test_memory_over_many_lengths(self):
        child = subprocess.run(
            [sys.executable, __file__, "--lengths", str(MANY_LENGTHS)], stdout=subprocess.PIPE, text=True, check=True)
        self.assertLess(float(child.stdout.split()[-1]) / MANY_LENGTHS, BYTES_OF_A_LENGTH, child.stdout)


class OnCuda(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = on("cuda:0", "q", "k", "v")
        self.o = fake_torch.Tensor(fake_torch.aligned(SHAPES["out"], np.float32), "cuda:0")
        self.context = attune.Context("cuda:0", store="")
        self.plan = self.context.plan(PROBLEM)
        fake_torch.State.made.clear()
        cuda.launches.clear()
        cuda.inits.clear()

    def attend(self, **choices):
        return attune.attention(self.q, self.k, self.v, context=self.context, **choices)

    def test_one_workspace_for_each_stream(self):
        addresses = {}
        for stream in (0, 0x10, 0x20, 0x10):
            self.plan.run(self.q, self.k, self.v, self.o, stream=stream)
            address, used = cuda.launches[-1]
            self.assertEqual(used, stream)
            self.assertEqual(addresses.setdefault(stream, address), address)
        self.assertEqual(len(set(addresses.values())), 3)
        for shape, device, stream in fake_torch.State.made:
            self.assertEqual((device, stream in addresses), ("cuda:0", True))  # memory of the stream that uses it
        with fake_torch.on_stream(fake_torch.Stream(0x20)):
            self.attend()
        self.assertEqual(cuda.launches[-1], (addresses[0x20], 0x20))

    def test_streams_are_checked(self):
        run = lambda stream: self.plan.run(self.q, self.k, self.v, self.o, stream=stream)
        run(fake_torch.Stream(0x10))
        self.assertEqual(cuda.launches[-1][1], 0x10)
        with self.assertRaisesRegex(ValueError, "stream is of cuda:1; must be of cuda:0"):
            run(fake_torch.Stream(0x10, 1))
        for wrong in ("0", True, -1, 1.5):
            with self.assertRaisesRegex(TypeError, "stream is .*; must be a torch.cuda.Stream"):
                run(wrong)

    def test_devices(self):
        with self.assertRaisesRegex(ValueError, "k is on cuda:1 and q is on cuda:0"):
            attune.attention(self.q, *on("cuda:1", "k", "v"), context=self.context)
        with self.assertRaisesRegex(ValueError, "v is on cpu and q is on cuda:0"):
            attune.attention(self.q, self.k, *on("cpu", "v"), context=self.context)
        with self.assertRaisesRegex(ValueError, "q is on cuda:1; must be on cuda:0, the plan's device"):
            attune.attention(*on("cuda:1", "q", "k", "v"), context=self.context)
        with self.assertRaisesRegex(ValueError, "q is on cpu; must be on cuda:0"):
            self.plan.run(*on("cpu", "q", "k", "v"), self.o)
        with self.assertRaisesRegex(ValueError, "q is on meta; must be on cpu or cuda"):
            attune.attention(*on("meta", "q", "k", "v"))
        with self.assertRaisesRegex(ValueError, "x is on meta"):
            attune.quantise(*on("meta", "q"))
        with self.assertRaisesRegex(ValueError, "v is a NumPy array and q is a PyTorch tensor"):
            attune.attention(self.q, self.k, values_of("v"), context=self.context)
        self.assertEqual(self.attend().device, self.q.device)

    def test_gradients(self):
        for tensor, name in ((self.q, "q"), (self.k, "k"), (self.v, "v"), (self.o, "out")):
            tensor.requires_grad = True
            with self.assertRaisesRegex(
                    ValueError,
                    rf"{name} requires a gradient, .*none of it here; give {name}.detach\(\), .*no_grad"):
                self.attend(out=self.o)
            with self.assertRaisesRegex(ValueError, f"{name[0]}.* requires a gradient"):
                self.plan.run(self.q, self.k, self.v, self.o)
            with self.assertRaisesRegex(ValueError, f"{name[0]}.* requires a gradient"):
                self.plan.launcher(self.q, self.k, self.v, self.o)
            with torch.no_grad():
                self.attend(out=self.o)
                self.plan.run(self.q, self.k, self.v, self.o)
            tensor.requires_grad = False
        scale = fake_torch.Tensor(np.array(0.5, np.float32), "cpu", requires_grad=True)
        with self.assertRaisesRegex(ValueError, "scale requires a gradient"):
            self.attend(scale=scale)
        self.q.requires_grad = True
        with self.assertRaisesRegex(ValueError, "x requires a gradient"):
            attune.quantise(self.q, context=self.context)

    def test_a_capture_makes_no_plan(self):
        with fake_torch.capture(0, 0):
            with self.assertRaisesRegex(RuntimeError, r"call attune.prepare\(attune.attention, ...\) with"):
                self.attend(scale=0.3)
            with self.assertRaisesRegex(RuntimeError, r"call attune.prepare\(attune.quantise, ...\) with"):
                attune.quantise(self.q, context=self.context)
            with self.assertRaisesRegex(RuntimeError, r"Plan.launcher\(\) needs a workspace"):
                self.plan.launcher(self.q, self.k, self.v, self.o)
            with self.assertRaisesRegex(RuntimeError, r"Plan.prepare\(\) needs a workspace"):
                self.plan.prepare()
        self.assertEqual((cuda.launches, cuda.inits, fake_torch.State.made), ([], [], []))

    def test_a_capture_behind_a_warm_up_takes_memory_of_the_graph(self):
        self.attend()
        eager, warm = cuda.launches[-1][0], list(fake_torch.State.made)
        cuda.inits.clear()
        with fake_torch.on_stream(fake_torch.Stream(0x30)), fake_torch.capture(0, 0x30):
            o = self.attend()
            self.attend()
        made = [entry for entry in fake_torch.State.made[len(warm):] if entry[0] != tuple(SHAPES["out"])]
        self.assertEqual(len(made), 2)  # one for each run, in the capture's thread and on its stream
        self.assertEqual({stream for _, _, stream in made}, {0x30})
        self.assertEqual([stream for _, stream in cuda.launches[-2:]], [0x30] * 2)
        self.assertEqual(len(cuda.inits), 2)  # each replay zeroes what its runs want zeroed
        self.assertNotIn(eager, [address for address, _ in cuda.launches[-2:]])
        self.attend()
        self.assertEqual(cuda.launches[-1][0], eager)
        np.testing.assert_allclose(o.array, expected(*(values_of(name) for name in "qkv"))[0], atol=2e-5)

    def test_a_capture_that_was_prepared_runs(self):
        self.plan.prepare()
        plan = attune.prepare(attune.attention, self.q, self.k, self.v, context=self.context)
        quantising = attune.prepare(attune.quantise, self.q, context=self.context)
        self.attend()
        eager = cuda.launches[-1][0]
        cuda.inits.clear()
        with fake_torch.on_stream(fake_torch.Stream(0x30)), fake_torch.capture(0, 0x30):
            self.plan.run(self.q, self.k, self.v, self.o)
            o = self.attend()
            attune.quantise(self.q, context=self.context)
        self.assertEqual(cuda.inits, [])  # nothing of a graph relies on what happened between its replays
        self.assertEqual([stream for _, stream in cuda.launches[-3:]], [0x30] * 3)
        captured = [address for address, _ in cuda.launches[-3:]]
        self.assertEqual(captured[:2], [self.plan.graph_workspace.address, plan.graph_workspace.address])
        self.assertNotIn(eager, captured)
        self.assertEqual(
            len({self.plan.graph_workspace.address, plan.graph_workspace.address, quantising.graph_workspace.address}),
            3)
        want = expected(*(values_of(name) for name in "qkv"))[0]
        for got in (o, self.o):
            np.testing.assert_allclose(got.array, want, atol=2e-5)

    def test_plans_of_a_graph_are_kept(self):
        plan = attune.prepare(attune.attention, self.q, self.k, self.v, context=self.context)
        with fake_torch.capture(0, 0):
            self.attend()
        self.assertIn(plan, _workspace._in_graphs.values())

    def test_captures_on_another_stream_or_device_do_not_count(self):
        with fake_torch.capture(0, 0x50), fake_torch.capture(1, 0):
            self.plan.run(self.q, self.k, self.v, self.o)
            self.assertNotIn(self.plan, _workspace._in_graphs.values())
            self.plan.run(self.q, self.k, self.v, self.o, stream=0x50)
            self.assertIn(self.plan, _workspace._in_graphs.values())

    def test_factors_are_made_on_the_stream_of_the_run(self):
        plan = self.context.plan("dtype=e4m3,dtype_o=fp16," + PROBLEM.partition(",")[2])
        q, k, v = (fake_torch.Tensor(fake_torch.aligned(SHAPES[name], np.uint8), "cuda:0") for name in "qkv")
        o = fake_torch.Tensor(fake_torch.aligned(SHAPES["out"], np.float16), "cuda:0")
        plan.run(q, k, v, o, stream=0x60, q_scale=2, k_scale=1, v_scale=1.0)
        self.assertIn(((), "cuda:0", 0x60), fake_torch.State.made)


def grow_over_lengths(count):
    """Prints by how many bytes the process grew after the first 100 of `count` lengths."""
    resident = lambda: int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    rows = placed(np.ones((1, count, 1, 16), np.float32))
    few = placed(np.ones((1, 3, 1, 16), np.float32))
    for length in range(1, count + 1):
        long = rows[:, :length]
        attune.attention(few, long, long, mask="causal_bottom_right") if length % 2 else attune.attention(
            long, few, few)
        if length == 100:
            before = resident()
    print(resident() - before)


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""  # nothing of the user's is read or written
    if sys.argv[1:2] == ["--lengths"]:
        grow_over_lengths(int(sys.argv[2]))
        sys.exit(0)
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    unittest.main()
