# SPDX-License-Identifier: Apache-2.0
"""Context, Plan and attention(): the C interface on tensors. A tensor is anything of PyTorch or NumPy with the four dimensions
[batch, seqlen, num_heads, head_dim], contiguous in head_dim; any other strides are taken as they are."""
import ctypes
import functools
import sys
import threading
import weakref

from ._library import (ContextOptions, Operands, PlanInfo, Problem, RUNG_NAMES, Tensor, check, library)

POLICIES = {"environment": -1, "default": 0, "nearest": 1, "strict": 2}


def _is_torch(tensor):
    torch = sys.modules.get("torch")  # imported by the caller, or not at all
    return torch is not None and isinstance(tensor, torch.Tensor)


def _dtype_name(tensor):
    return str(tensor.dtype).removeprefix("torch.")  # parse_dtype knows float32, bfloat16, float16


def _element_strides(tensor):
    if _is_torch(tensor):
        return tensor.stride()
    return tuple(stride // tensor.itemsize for stride in tensor.strides)


def _view(name, tensor, shape):
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; accepted is {shape}")
    strides = _element_strides(tensor)
    if strides[3] != 1 and shape[3] != 1:
        raise ValueError(f"{name} has stride {strides[3]} in head_dim; accepted is 1 (call .contiguous() on it)")
    address = tensor.data_ptr() if _is_torch(tensor) else tensor.ctypes.data
    return Tensor(address or None, strides[0], strides[1], strides[2])


def _current_stream(tensor):
    if _is_torch(tensor) and tensor.is_cuda:
        return sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream
    return None


def problem_text(q, k, v, mask="none", window=(-1, -1), scale=None):
    """The problem that these operands pose, in attune's text form."""
    batch, seqlen_q, heads_q, head_dim_qk = q.shape
    _, seqlen_kv, heads_kv, _ = k.shape
    text = (f"dtype={_dtype_name(q)},head_dim_qk={head_dim_qk},head_dim_v={v.shape[3]},heads={heads_q}/{heads_kv},batch={batch},"
            f"seqlen_q={seqlen_q},seqlen_kv={seqlen_kv},mask={mask}")
    if any(side >= 0 for side in window):
        text += ",window=" + ":".join(str(side) if side >= 0 else "-" for side in window)
    return text if scale is None else f"{text},scale={scale!r}"


def _parse(text):
    problem = Problem()
    check(library.attune_problem_parse_sized(text.encode(), ctypes.byref(problem), ctypes.sizeof(problem)))
    return problem


class Plan:
    """What will be launched for one problem; immutable. Made by Context.plan."""

    def __init__(self, handle, problem):
        self._handle = handle
        self._release = weakref.finalize(self, library.attune_plan_release, handle)
        self.problem = problem
        info = PlanInfo(size=ctypes.sizeof(PlanInfo))
        check(library.attune_plan_get_info(handle, ctypes.byref(info)))
        self.rung = RUNG_NAMES[info.rung]
        self.kernel_template = info.kernel_template.decode()
        self.arch = info.arch.decode()
        self.config = info.config.decode()
        self.expected_us = info.expected_us or None
        self.registers = info.registers
        self.shared_bytes = info.shared_bytes
        self.workspace_bytes = info.workspace_bytes
        self._workspaces = {}

    def explain(self):
        return library.attune_plan_explain(self._handle).decode()

    def operands(self, q, k, v, o, lse=None):
        p = self.problem
        q_heads, kv_heads = p.num_heads_q, p.num_heads_kv
        operands = Operands(size=ctypes.sizeof(Operands))
        operands.q = _view("q", q, (p.batch, p.seqlen_q, q_heads, p.head_dim_qk))
        operands.k = _view("k", k, (p.batch, p.seqlen_kv, kv_heads, p.head_dim_qk))
        operands.v = _view("v", v, (p.batch, p.seqlen_kv, kv_heads, p.head_dim_v))
        operands.o = _view("o", o, (p.batch, p.seqlen_q, q_heads, p.head_dim_v))
        if lse is not None:
            shape = (p.batch, q_heads, p.seqlen_q)
            if tuple(lse.shape) != shape or _dtype_name(lse) != "float32":
                raise ValueError(f"lse is {_dtype_name(lse)} {tuple(lse.shape)}; accepted is float32 {shape}")
            operands.lse = lse.data_ptr() if _is_torch(lse) else lse.ctypes.data
            strides = _element_strides(lse)
            operands.lse_batch_stride, operands.lse_head_stride = strides[0], strides[1]
        return operands

    def run(self, q, k, v, o, lse=None, workspace=None, stream=None):
        """Enqueues one launch on `stream`, by default torch's current one (NumPy: returns when done). `workspace`: an address
        prepared with init_workspace; by default the plan keeps one buffer for each stream."""
        if stream is None:
            stream = _current_stream(q)
        if workspace is None:
            workspace = self._workspace(q, stream)
        operands = self.operands(q, k, v, o, lse)
        check(library.attune_run(self._handle, ctypes.byref(operands), workspace, self.workspace_bytes, stream))

    def launcher(self, q, k, v, o, lse=None, stream=None):
        """A function without arguments that repeats this very run at the least cost: for benchmarks and graph capture."""
        if stream is None:
            stream = _current_stream(q)
        operands, workspace = self.operands(q, k, v, o, lse), self._workspace(q, stream)
        call = functools.partial(library.attune_run, self._handle, ctypes.byref(operands), workspace, self.workspace_bytes, stream)
        keep = (self, q, k, v, o, lse, operands)  # the addresses stay good as long as the function

        def launch(_keep=keep):
            check(call())

        return launch

    def init_workspace(self, address, stream=None):
        check(library.attune_workspace_init(self._handle, address, self.workspace_bytes, stream))

    def _workspace(self, like, stream):
        if self.workspace_bytes == 0:
            return None
        # Launches on one stream follow each other; on the CPU each thread that calls needs its own.
        key = stream if _is_torch(like) and like.is_cuda else threading.get_ident()
        if key not in self._workspaces:
            size = self.workspace_bytes + 256
            if _is_torch(like):
                buffer = sys.modules["torch"].empty(size, dtype=sys.modules["torch"].uint8, device=like.device)
                base = buffer.data_ptr()
            else:
                buffer = ctypes.create_string_buffer(size)
                base = ctypes.addressof(buffer)
            address = (base + 255) // 256 * 256
            self.init_workspace(address, stream)
            self._workspaces[key] = (buffer, address)
        return self._workspaces[key][1]


class Context:
    """A device with its stores, bundles and loaded kernels. target: auto, cuda, cuda:N, cpu or cpu:THREADS. store: a file, "" for
    none, None for the default. policy: environment, default, nearest or strict. Thread-safe."""

    def __init__(self, target="auto", store=None, bundles=(), policy="environment", no_jit=False, capture_file=None):
        if policy not in POLICIES:
            raise ValueError(f"policy is {policy!r}; accepted are {', '.join(POLICIES)}")
        options = ContextOptions()
        library.attune_context_options_init_sized(ctypes.byref(options), ctypes.sizeof(options))
        options.target = target.encode()
        options.store = None if store is None else str(store).encode()
        if bundles:
            options.bundles = (ctypes.c_char_p * len(bundles))(*(str(path).encode() for path in bundles))
            options.num_bundles = len(bundles)
        options.policy = POLICIES[policy]
        options.no_jit = int(no_jit)
        options.capture_file = None if capture_file is None else str(capture_file).encode()
        handle = ctypes.c_void_p()
        check(library.attune_context_create(ctypes.byref(options), ctypes.byref(handle)))
        self._handle = handle
        self._destroy = weakref.finalize(self, library.attune_context_destroy, handle)

    @property
    def device(self):
        return library.attune_context_device(self._handle).decode()

    def check(self, problem):
        """One line for each template: that it serves the problem, or why not. Raises Error when none does."""
        reasons = ctypes.create_string_buffer(1 << 14)
        check(library.attune_problem_check(self._handle, ctypes.byref(_parse(problem)), reasons, len(reasons)))
        return reasons.value.decode()

    def plan(self, problem, layout=None):
        """`layout`: a tuple (q, k, v, o) of tensors whose strides the coming runs have; by default contiguous ones."""
        parsed = _parse(problem)
        operands = None
        if layout is not None:
            operands = Operands(size=ctypes.sizeof(Operands))
            for name, tensor in zip("qkvo", layout):
                setattr(operands, name, _view(name, tensor, tuple(tensor.shape)))
            operands = ctypes.byref(operands)
        handle = ctypes.c_void_p()
        check(library.attune_plan_get(self._handle, ctypes.byref(parsed), operands, ctypes.byref(handle)))
        return Plan(handle, parsed)


@functools.lru_cache(maxsize=None)
def _default_context(target):
    return Context(target)


@functools.lru_cache(maxsize=1024)
def _cached_plan(target, problem, strides):
    context = _default_context(target)
    operands = Operands(size=ctypes.sizeof(Operands))
    for name, stride in zip("qkvo", strides):
        setattr(operands, name, Tensor(None, *stride[:3]))
    handle, parsed = ctypes.c_void_p(), _parse(problem)
    check(library.attune_plan_get(context._handle, ctypes.byref(parsed), ctypes.byref(operands), ctypes.byref(handle)))
    return Plan(handle, parsed)


def attention(q, k, v, mask="none", window=(-1, -1), scale=None, out=None, return_lse=False):
    """softmax(scale * q k^T + mask) v, on the device that holds the tensors. mask: none, causal_top_left or causal_bottom_right;
    window: keys visible left and right of the diagonal, negative = open. Returns o [batch, seqlen_q, num_heads_q, head_dim_v], with
    return_lse also the natural logarithm of each row's sum, [batch, num_heads_q, seqlen_q]."""
    shape, lse_shape = (*q.shape[:3], v.shape[3]), (q.shape[0], q.shape[2], q.shape[1])
    lse = None
    if _is_torch(q):
        torch = sys.modules["torch"]
        target = f"cuda:{q.device.index}" if q.is_cuda else "cpu"
        o = torch.empty(shape, dtype=q.dtype, device=q.device) if out is None else out
        if return_lse:
            lse = torch.empty(lse_shape, dtype=torch.float32, device=q.device)
    else:
        import numpy
        target = "cpu"
        o = numpy.empty(shape, dtype=q.dtype) if out is None else out
        if return_lse:
            lse = numpy.empty(lse_shape, dtype=numpy.float32)
    strides = tuple(_element_strides(tensor) for tensor in (q, k, v, o))
    plan = _cached_plan(target, problem_text(q, k, v, mask, tuple(window), scale), strides)
    plan.run(q, k, v, o, lse)
    return (o, lse) if return_lse else o
