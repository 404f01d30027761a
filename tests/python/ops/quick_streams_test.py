#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C module's GPU path without a GPU: a test double of PyTorch (fake_torch.py), whose "cuda:0" is the CPU and which
has DLPack's exchange functions, and a stub driver (capture_stub.c, argument 1). Streams, their workspaces, captures,
gradients, modes. Skips aloud (status 77) without NumPy, the CPU target or the stub."""
import ctypes
import os
import sys
import threading
import types
import unittest
from unittest import mock

try:
    import numpy as np
except ImportError:
    print("SKIP: there is no NumPy here")
    sys.exit(77)

import fake_torch
from operand_table_test import PROBLEM, SHAPES, expected, values_of

torch = fake_torch.install()
import attune  # noqa: E402
from attune.core.library import module  # noqa: E402
from attune.ops import workspace as _workspace  # noqa: E402

stub = ctypes.CDLL(sys.argv.pop(1), mode=ctypes.RTLD_GLOBAL) if len(sys.argv) > 1 else None
cuda = fake_torch.CudaLibrary().install()
CODES = {"f": 2, "i": 0, "u": 1, "b": 6}
CPU, CUDA = 1, 2


class DlpackTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DlpackTensor))
def tensor_from_object(tensor, out):
    if not tensor._memory:
        return -1
    array, rank = tensor.array, tensor.array.ndim
    tensor.kept = (ctypes.c_int64 * rank)(*array.shape), (ctypes.c_int64 * rank)(*tensor.stride())
    on_cuda = tensor.device.type == "cuda"
    out[0] = DlpackTensor(array.ctypes.data, CUDA if on_cuda else CPU, tensor.device.index or 0, rank,
                          CODES[array.dtype.kind], 8 * array.itemsize, 1, ctypes.addressof(tensor.kept[0]),
                          ctypes.addressof(tensor.kept[1]), 0)
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def current_stream(device_type, device, out):
    out[0] = fake_torch.State.stream[device] or None
    return 0


class Exchange(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        *((name, ctypes.c_void_p)
          for name in ("allocate", "managed_from_object", "managed_to_object", "tensor_from_object", "current_stream"))]


def offer_exchange():
    """Tables as in PyTorch from 2.10 on. The newest has a version that nobody knows yet."""
    known = Exchange(1, 3, None, None, None, None,
                     *(ctypes.cast(one, ctypes.c_void_p) for one in (tensor_from_object, current_stream)))
    newest = Exchange(2, 0, ctypes.addressof(known))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    name = ctypes.create_string_buffer(b"dlpack_exchange_api")
    fake_torch.Tensor.__dlpack_c_exchange_api__ = new(ctypes.addressof(newest), ctypes.addressof(name), None)
    fake_torch.Tensor.untyped_storage = lambda self: types.SimpleNamespace(resize_=lambda size: None)
    torch.empty_like = lambda x: torch.empty(x.shape, x.dtype, x.device)
    torch._C = types.SimpleNamespace(_len_torch_dispatch_stack=lambda: 0, _is_tracing=lambda: False,
                                     _is_any_autocast_enabled=lambda: State.autocast,
                                     _disabled_torch_dispatch_impl=None)
    torch.is_autocast_enabled = lambda kind: False  # for this kind of device
    return known, newest, name


class State:
    autocast = False


def on(device, *names):
    return [fake_torch.Tensor(placed(values_of(name)), device) for name in names]


def placed(array):
    copy = fake_torch.aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


class QuickStreamsTest(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = on("cuda:0", "q", "k", "v")
        self.o = fake_torch.Tensor(fake_torch.aligned(SHAPES["out"], np.float32), "cuda:0")
        self.want = expected(*(values_of(name) for name in "qkv"))[0]
        self.context = attune.Context("cuda:0", store="")
        self.plan = self.context.plan(PROBLEM)
        for _ in range(3):
            self.attend()
            self.plan.run(self.q, self.k, self.v, self.o)

    def tearDown(self):
        stub_values(0, 0)
        State.autocast = False

    def attend(self, **choices):
        return attune.attention(self.q, self.k, self.v, context=self.context, **choices)

    def ran_quickly(self, run):
        """True if a call ran in the module and was right."""
        before, launches = module.counters(), len(cuda.launches)
        self.o.array[...] = 0
        result = run()
        np.testing.assert_allclose((self.o if result is None else result).array, self.want, atol=2e-5)
        after = module.counters()
        self.assertEqual(after["hits"] - before["hits"] + len(cuda.launches) - launches, 1)
        return after["hits"] - before["hits"] == 1

    def test_known_calls(self):
        self.assertTrue(self.ran_quickly(self.attend))
        self.assertTrue(self.ran_quickly(lambda: self.plan.run(self.q, self.k, self.v, self.o)))
        self.assertEqual(self.attend().device, self.q.device)

    def test_each_stream_has_its_workspace(self):
        for stream in (0x10, 0x20):
            with fake_torch.on_stream(fake_torch.Stream(stream)):
                self.assertFalse(self.ran_quickly(self.attend))  # makes it
                self.assertTrue(self.ran_quickly(self.attend))
                self.assertEqual(ctypes.c_void_p.in_dll(stub, "attune_stub_stream").value, stream)
            run = lambda stream=stream: self.plan.run(self.q, self.k, self.v, self.o, stream=stream)
            run()
            self.assertTrue(self.ran_quickly(run))
        workspaces = [_workspace.shared(self.plan, stream) for stream in (0, 0x10, 0x20)]
        self.assertEqual(len({workspace.address for workspace in workspaces}), 3)

    def test_a_workspace_in_use_is_left_alone(self):
        workspace, results = _workspace.shared(self.plan, 0), []
        with workspace:
            thread = threading.Thread(target=lambda: results.append(self.ran_quickly(self.attend)))
            thread.start()
            thread.join(0.2)
            self.assertTrue(thread.is_alive())  # waits for the workspace, in Python
        thread.join()
        self.assertEqual(results, [False])
        self.assertTrue(self.ran_quickly(self.attend))

    def test_a_workspace_is_zeroed_and_grows_in_python(self):
        workspace = _workspace.shared(self.plan, 0)
        self.assertGreater(self.plan.zeroed_bytes, 0)
        for change in ({"zero_bytes": 0}, {"zero_bytes": self.plan.zeroed_bytes - 1}, {
                "size": self.plan.workspace_bytes - 1}):
            for name, value in change.items():
                setattr(workspace, name, value)
            self.assertFalse(self.ran_quickly(self.attend), change)
            self.assertTrue(self.ran_quickly(self.attend), change)
            self.assertGreaterEqual(workspace.zero_bytes, self.plan.zeroed_bytes)

    def test_captures_use_the_python_path(self):
        stub_values(0, 1)
        with fake_torch.capture(0, 0):
            self.assertFalse(self.ran_quickly(self.attend))
        self.plan.prepare()
        with fake_torch.capture(0, 0):
            self.assertFalse(self.ran_quickly(lambda: self.plan.run(self.q, self.k, self.v, self.o)))
        self.assertEqual(cuda.launches[-1][0], self.plan.graph_workspace.address)
        stub_values(901, 0)  # the driver fails to report the capture status
        self.assertFalse(self.ran_quickly(self.attend))
        stub_values(0, 0)
        self.assertTrue(self.ran_quickly(self.attend))

    def test_calls_that_pytorch_observes_use_the_python_path(self):
        State.autocast = True
        self.assertFalse(self.ran_quickly(self.attend))
        State.autocast = False
        for tensor in (self.q, self.v):
            tensor.requires_grad = True
            with torch.no_grad():
                self.assertTrue(self.ran_quickly(self.attend))
            trained = types.SimpleNamespace(train=lambda given: "recorded")
            with mock.patch("attune.core.torch_state.load_train", lambda: trained):
                self.assertEqual(self.attend(), "recorded")
            tensor.requires_grad = False
        self.k._negative = True
        with self.assertRaisesRegex(ValueError, "k is a view of its negative"):
            self.attend()
        self.k._negative, self.k._memory = False, False
        with self.assertRaisesRegex(ValueError, "without memory"):
            self.attend()
        self.k._memory = True
        self.assertTrue(self.ran_quickly(self.attend))

    def test_devices(self):
        for wrong in on("cpu", "k") + on("cuda:1", "k"):
            with self.assertRaisesRegex(ValueError, "k is on .* and q is on cuda:0"):
                attune.attention(self.q, wrong, self.v, context=self.context)

    def test_new_tensors_of_another_type_are_not_used(self):
        """Like a mode of PyTorch that makes other tensors: Python makes the call again, with tensors that it checks."""
        o, wrong = self.attend(), on("cpu", "q")[0]
        made = []
        torch.empty_like, before = lambda x: made.append(x) or wrong, torch.empty_like
        try:
            other = attune.Context("cuda:0", store="")
            run = lambda: attune.attention(self.q, self.k, self.v, context=other)
            run()
            self.assertFalse(self.ran_quickly(run))
            self.assertEqual((len(made), run().device), (1, o.device))
        finally:
            torch.empty_like = before

    def test_new_tensors_past_the_dispatcher(self):
        """They stand on the current device. Where that is not the operands', a call takes PyTorch's other way, and
        later ones begin with it."""
        made = []

        def empty_strided(shape, strides, dtype):
            made.append("short")
            self.assertEqual(strides, o.stride())
            return torch.empty(shape, dtype, f"cuda:{fake_torch.State.device}")

        o, empty_like = self.attend(), torch.empty_like
        torch.empty_like = lambda x: made.append("like") or empty_like(x)
        torch._C._dynamo = types.SimpleNamespace(guards=types.SimpleNamespace(_empty_strided_cuda=empty_strided))
        try:
            other = attune.Context("cuda:0", store="")
            run = lambda: attune.attention(self.q, self.k, self.v, context=other)
            run()  # tries it once
            for device, way in ((0, ["short"]), (0, ["short"]), (1, ["short", "like"]), (1, ["like"])):
                made.clear()
                fake_torch.State.device = device
                self.assertTrue(self.ran_quickly(run))
                self.assertEqual(made, way)
        finally:
            fake_torch.State.device, torch.empty_like = 0, empty_like
            del torch._C._dynamo


def stub_values(status, capturing):
    ctypes.c_int.in_dll(stub, "attune_stub_status").value = status
    ctypes.c_int.in_dll(stub, "attune_stub_capturing").value = capturing


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""  # do not read or write the user's store
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    if stub is None:
        print("SKIP: no driver's stub was given")
        sys.exit(77)
    offered = offer_exchange()
    unittest.main()
