# SPDX-License-Identifier: Apache-2.0
"""Context, Plan and attention(): the C interface on tensors. A tensor is anything of PyTorch or NumPy with the four dimensions
[batch, seqlen, num_heads, head_dim], contiguous in head_dim; any other strides are taken as they are."""
import ctypes
import functools
import sys
import threading
import weakref

from . import _tensors as tensors
from ._library import (ContextOptions, Operands, PlanInfo, Problem, RUNG_NAMES, Tensor, check, library)

POLICIES = {"environment": -1, "default": 0, "nearest": 1, "strict": 2}


def current_stream(tensor):
    if tensors.is_torch(tensor) and tensor.is_cuda:
        return sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream
    return None


def problem_text(q, k, v, mask="none", window=(-1, -1), scale=None, *, dtype=None, dtype_kv=None, out_dtype=None, accuracy="accurate",
                 v_layout="rows", scale_block=0):
    """The problem that these operands pose, in attune's text form. What follows `scale` is for 8-bit operands; see attention()."""
    batch, seqlen_q, heads_q, head_dim_qk = q.shape
    seqlen_kv, heads_kv = k.shape[1:3]
    head_dim_v = v.shape[2 if v_layout == "transposed" else 3]
    name = tensors.dtype_name(q, dtype)
    text = (f"dtype={name},head_dim_qk={head_dim_qk},head_dim_v={head_dim_v},heads={heads_q}/{heads_kv},batch={batch},"
            f"seqlen_q={seqlen_q},seqlen_kv={seqlen_kv},mask={mask}")
    if any(side >= 0 for side in window):
        text += ",window=" + ":".join(str(side) if side >= 0 else "-" for side in window)
    if name in tensors.FP8_NAMES:
        block_q, block_kv = _scale_blocks(scale_block)
        text += (f",dtype_kv={tensors.dtype_name(k, dtype_kv or dtype)},dtype_o={_out_name(q, out_dtype)},accuracy={accuracy},"
                 f"v_layout={v_layout},scale_block_q={block_q},scale_block_kv={block_kv}")
    return text if scale is None else f"{text},scale={scale!r}"


def _scale_blocks(scale_block):
    return scale_block if isinstance(scale_block, tuple) else (scale_block, scale_block)


def _out_name(q, out_dtype):
    """8-bit operands give bf16, or fp16 where there is no bf16."""
    if out_dtype is not None:
        return tensors.dtype_text(out_dtype)
    return "bf16" if tensors.is_torch(q) else "fp16"


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

    def operands(self, q, k, v, o, lse=None, q_scale=None, k_scale=None, v_scale=None):
        """The C struct; `kept` of it are the tensors whose addresses it holds beyond the given ones."""
        p = self.problem
        q_heads, kv_heads = p.num_heads_q, p.num_heads_kv
        operands = Operands(size=ctypes.sizeof(Operands))
        operands.q = tensors.view("q", q, (p.batch, p.seqlen_q, q_heads, p.head_dim_qk))
        operands.k = tensors.view("k", k, (p.batch, p.seqlen_kv, kv_heads, p.head_dim_qk))
        operands.v = tensors.view("v", v, (p.batch, p.seqlen_kv, kv_heads, p.head_dim_v), p.v_layout)
        operands.o = tensors.view("o", o, (p.batch, p.seqlen_q, q_heads, p.head_dim_v))
        blocks_q, blocks_kv = tensors.num_blocks(p.seqlen_q, p.scale_block_q), tensors.num_blocks(p.seqlen_kv, p.scale_block_kv)
        kept_q, operands.q_scale = tensors.factors("q_scale", q_scale, q, p.batch, q_heads, blocks_q)
        kept_k, operands.k_scale = tensors.factors("k_scale", k_scale, q, p.batch, kv_heads, blocks_kv)
        kept_v, operands.v_scale = tensors.factors("v_scale", v_scale, q, p.batch, kv_heads, blocks_kv)
        operands.kept = (kept_q, kept_k, kept_v)
        if lse is not None:
            shape = (p.batch, q_heads, p.seqlen_q)
            if tuple(lse.shape) != shape or tensors.dtype_name(lse) != "fp32":
                raise ValueError(f"lse is {tensors.dtype_name(lse)} {tuple(lse.shape)}; accepted is fp32 {shape}")
            operands.lse = tensors.address(lse)
            strides = tensors.element_strides(lse)
            operands.lse_batch_stride, operands.lse_head_stride = strides[0], strides[1]
        return operands

    def run(self, q, k, v, o, lse=None, workspace=None, stream=None, q_scale=None, k_scale=None, v_scale=None):
        """Enqueues one launch on `stream`, by default torch's current one (NumPy: returns when done). `workspace`: an address
        prepared with init_workspace; by default the plan keeps one buffer for each stream."""
        if stream is None:
            stream = current_stream(q)
        self.run_operands(self.operands(q, k, v, o, lse, q_scale, k_scale, v_scale), q, stream, workspace)

    def run_operands(self, operands, like, stream, workspace=None):
        """As run, for a struct that is ready; `like`: a tensor of the device."""
        if workspace is None:
            workspace = self._workspace(like, stream)
        check(library.attune_run(self._handle, ctypes.byref(operands), workspace, self.workspace_bytes, stream))

    def launcher(self, q, k, v, o, lse=None, stream=None, q_scale=None, k_scale=None, v_scale=None):
        """A function without arguments that repeats this very run at the least cost: for benchmarks and graph capture."""
        if stream is None:
            stream = current_stream(q)
        operands, workspace = self.operands(q, k, v, o, lse, q_scale, k_scale, v_scale), self._workspace(q, stream)
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
        key = stream if tensors.is_torch(like) and like.is_cuda else threading.get_ident()
        if key not in self._workspaces:
            size = self.workspace_bytes + 256
            if tensors.is_torch(like):
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
                setattr(operands, name, Tensor(None, *tensors.layout_strides(tensor, parsed.v_layout if name == "v" else tensors.ROWS)))
            operands = ctypes.byref(operands)
        handle = ctypes.c_void_p()
        check(library.attune_plan_get(self._handle, ctypes.byref(parsed), operands, ctypes.byref(handle)))
        return Plan(handle, parsed)


@functools.lru_cache(maxsize=None)
def _default_context(target):
    return Context(target)


@functools.lru_cache(maxsize=1024)
def cached_plan(target, problem, strides):
    """The default context's plan; `strides` of q, k, v and o over (batch, rows, heads)."""
    context = _default_context(target)
    operands = Operands(size=ctypes.sizeof(Operands))
    for name, stride in zip("qkvo", strides):
        setattr(operands, name, Tensor(None, *stride))
    handle, parsed = ctypes.c_void_p(), _parse(problem)
    check(library.attune_plan_get(context._handle, ctypes.byref(parsed), ctypes.byref(operands), ctypes.byref(handle)))
    return Plan(handle, parsed)


def attention(q, k, v, mask="none", window=(-1, -1), scale=None, out=None, return_lse=False, *, q_scale=None, k_scale=None, v_scale=None,
              scale_block=0, accuracy="accurate", v_layout="rows", out_dtype=None, dtype=None, dtype_kv=None):
    """softmax(scale * q k^T + mask) v, on the device that holds the tensors. mask: none, causal_top_left or causal_bottom_right;
    window: keys visible left and right of the diagonal, negative = open. Returns o [batch, seqlen_q, num_heads_q, head_dim_v], with
    return_lse also the natural logarithm of each row's sum, [batch, num_heads_q, seqlen_q].

    8-bit tensors (quantise() makes them): q of e4m3, k and v of e4m3 or e5m2; NumPy's are uint8 with dtype (and dtype_kv) by name.
    q_scale, k_scale, v_scale: factors, a number or float32 of shape [], [batch, heads] or, with scale_block rows sharing one,
    [batch, heads, blocks]; scale_block may be a pair (of q, of k and v). accuracy: accurate or fast. v_layout: transposed for v of
    shape [batch, num_heads_kv, head_dim_v, seqlen_kv]. out_dtype: bf16 (default with PyTorch) or fp16."""
    text = problem_text(q, k, v, mask, tuple(window), scale, dtype=dtype, dtype_kv=dtype_kv, accuracy=accuracy, v_layout=v_layout,
                        out_dtype=out_dtype if out is None else out.dtype, scale_block=scale_block)
    name, layout = tensors.dtype_name(q, dtype), tensors.TRANSPOSED if v_layout == "transposed" else tensors.ROWS
    o_name = _out_name(q, out_dtype) if name in tensors.FP8_NAMES else name
    head_dim_v = v.shape[3 if layout == tensors.ROWS else 2]
    o = tensors.empty(q, (*q.shape[:3], head_dim_v), o_name) if out is None else out
    lse = tensors.empty(q, (q.shape[0], q.shape[2], q.shape[1]), "fp32") if return_lse else None
    strides = (tensors.layout_strides(q), tensors.layout_strides(k), tensors.layout_strides(v, layout), tensors.layout_strides(o))
    plan = cached_plan(tensors.target_of(q), text, strides)
    plan.run(q, k, v, o, lse, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
    return (o, lse) if return_lse else o
