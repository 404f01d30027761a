# SPDX-License-Identifier: Apache-2.0
"""A test double of PyTorch over NumPy arrays, with everything that the attune module reads. Tests use it to check
devices, gradients, streams and graph capture without PyTorch and without a GPU. "cuda:N" tensors are in host memory;
CudaLibrary makes the C module run them on the CPU. install() puts it into sys.modules."""
import contextlib
import sys
import types

import numpy as np


class dtype:
    def __init__(self, name, array_dtype):
        self.name, self.array_dtype = name, np.dtype(array_dtype)

    def __repr__(self):
        return f"torch.{self.name}"


DTYPES = {
    name: dtype(name, array)
    for name, array in (("float32", "f4"), ("float16", "f2"), ("bfloat16", "u2"), ("float64", "f8"),
                        ("complex64", "c8"), ("int32", "i4"), ("uint8", "u1"), ("bool", "?"), ("float8_e4m3fn", "u1"),
                        ("float8_e5m2", "u1"))}


class device:
    def __init__(self, text):
        if isinstance(text, device):
            text = str(text)
        self.type, _, index = text.partition(":")
        self.index = int(index or 0) if self.type == "cuda" else None

    def __repr__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other):
        return str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


class Tensor:
    """`kind`: the dtype's name if NumPy's dtype does not determine it."""
    is_nested = False

    def __init__(self, array, on="cpu", kind=None, requires_grad=False, layout="strided", negative=False, memory=True):
        self.array, self.device, self.requires_grad = array, device(on), requires_grad
        self.dtype = kind or DTYPES[array.dtype.name]
        self.layout, self._negative, self._memory = layout, negative, memory

    shape = property(lambda self: tuple(self.array.shape))
    is_cuda = property(lambda self: self.device.type == "cuda")

    def stride(self):
        if self.layout != "strided":
            raise RuntimeError("sparse tensors do not have strides")
        return tuple(stride // self.array.itemsize for stride in self.array.strides)

    def element_size(self):
        return self.array.itemsize

    def is_neg(self):
        return self._negative

    def data_ptr(self):
        if not self._memory:
            raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
        return self.array.ctypes.data if self.array.size else 0

    def fill_(self, number):
        self.array.fill(number)
        return self

    def __getitem__(self, index):
        return Tensor(self.array[index], self.device, self.dtype)

    def __setitem__(self, index, value):
        self.array[index] = value.array if isinstance(value, Tensor) else value

    def __float__(self):
        return float(self.array)

    def __repr__(self):
        return f"tensor({self.array.shape}, {self.dtype})"


class State:
    """Global state that programs switch: gradients, current device and stream, capture."""
    grad = True
    device = 0
    stream = {0: 0, 1: 0}
    captured = set()  # (device, stream)
    made = []         # shapes, devices and streams of tensors that empty() made


class Stream:
    def __init__(self, handle, device=0):
        self.cuda_stream = handle
        self.device = device_of(device)

    def synchronize(self):
        pass


def device_of(value):
    return device(f"cuda:{value}") if isinstance(value, int) else device(value)


@contextlib.contextmanager
def on_stream(stream):
    before = State.device, dict(State.stream)
    State.device = stream.device.index
    State.stream[State.device] = stream.cuda_stream
    try:
        yield
    finally:
        State.device, State.stream = before[0], before[1]


@contextlib.contextmanager
def no_grad():
    before, State.grad = State.grad, False
    try:
        yield
    finally:
        State.grad = before


@contextlib.contextmanager
def capture(device_index, stream):
    """Starts a graph capture on this stream."""
    State.captured.add((device_index, stream))
    try:
        yield
    finally:
        State.captured.discard((device_index, stream))


def empty(shape, dtype, device):
    on = device_of(device)
    State.made.append((tuple(np.atleast_1d(shape)), str(on), State.stream.get(on.index)))
    return Tensor(aligned(shape, dtype.array_dtype), on, dtype)


def aligned(shape, array_dtype, offset=0):
    """Returns an array at a multiple of 64 bytes plus `offset`."""
    size = int(np.prod(shape)) * np.dtype(array_dtype).itemsize
    memory = np.zeros(size + 128 + offset, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    return memory[start:start + size].view(array_dtype).reshape(shape)


def install():
    torch = types.ModuleType("torch")
    for name, value in DTYPES.items():
        setattr(torch, name, value)
    torch.Tensor, torch.strided, torch.empty, torch.no_grad = Tensor, "strided", empty, no_grad
    torch.is_grad_enabled = lambda: State.grad
    torch.cuda = types.SimpleNamespace(
        Stream=Stream, ExternalStream=lambda handle, device: Stream(handle, device),
        default_stream=lambda device: Stream(0, device), current_device=lambda: State.device,
        current_stream=lambda device: Stream(State.stream[device_of(device).index], device), stream=on_stream,
        is_current_stream_capturing=lambda: (State.device, State.stream[State.device]) in State.captured)
    sys.modules["torch"] = torch
    return torch


class CudaLibrary:
    """The C module, except that contexts of cuda:N run on the CPU and claim to be cuda:N."""

    REPLACED = ("context_create", "plan_get", "plan_info", "workspace_init", "run")
    originals = {}

    def __init__(self):
        from attune.core.library import module
        self._module, self._contexts, self._plans, self.launches, self.inits = module, {}, {}, [], []
        for name in self.REPLACED:
            self.originals.setdefault(name, getattr(module, name))

    def context_create(self, target, *options):
        on_cuda = target.startswith(b"cuda:")
        context = self.originals["context_create"](b"cpu:1" if on_cuda else target, *options)
        self._contexts[context] = int(target[5:]) if on_cuda else -1
        return context

    def plan_get(self, context, *rest):
        plan = self.originals["plan_get"](context, *rest)
        self._plans[plan] = self._contexts[context]
        return plan

    def plan_info(self, plan):
        return {**self.originals["plan_info"](plan), "device_ordinal": self._plans[plan]}

    def workspace_init(self, plan, address, size, stream):
        self.inits.append((address, stream))
        self.originals["workspace_init"](plan, address, size, stream)

    def run(self, ordinal, plan, operands, workspace, size, stream):
        self.launches.append((workspace, stream))
        self.originals["run"](ordinal, plan, operands, workspace, size, stream)

    def install(self):
        for name in self.REPLACED:
            setattr(self._module, name, getattr(self, name))
        return self
