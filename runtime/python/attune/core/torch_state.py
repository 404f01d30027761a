# SPDX-License-Identifier: Apache-2.0
"""PyTorch's features besides tensors: gradients, torch.compile, dispatch modes, autocast, CUDA streams and graph
capture. Never imports PyTorch. Without a program that imports it, nothing here has an effect.

load_graph() and load_train() lead from the lower rooms to modules of the room torch, which only calls that need them
import."""
import contextlib
import functools
import sys
import threading

from .preparing import preparing
from .tensors import check_dense

# Functions that import and return torch/graph.py and torch/train.py; attune/__init__.py, above all rooms, sets them.
load_graph = load_train = None


def untraced(function):
    """Returns `function` in a wrapper that torch.compile does not trace into, since it cannot trace
    the C module and caches.

    The wrapper applies torch.compiler.disable at its first call after torch.compile was loaded. Applied earlier, it
    would load torch.compile for programs that never use it. in_graphs() is for functions that are traced as an op."""
    chosen = [function]

    @functools.wraps(function)
    def entry(*args, **kwargs):
        if chosen[0] is function and hasattr(sys.modules.get("torch._dynamo"), "disable"):
            chosen[0] = sys.modules["torch._dynamo"].disable(function)
        return chosen[0](*args, **kwargs)

    entry._torchdynamo_disable = True  # tracing of callers stops here; torch/_dynamo/decorators.py sets the same mark
    return entry


def in_graphs(name):
    """Returns a decorator: torch.compile traces torch/graph.py's <name>(), which calls attune's op, instead of the
    function."""
    def traced(*args, **kwargs):
        return getattr(load_graph(), name)(*args, **kwargs)

    def mark(function):
        function._torchdynamo_inline = traced
        return function

    return mark


def profiler_question(torch):
    """Returns PyTorch's function that tells whether a profiler runs."""
    return getattr(getattr(torch._C, "_autograd", None), "_profiler_enabled", None) or (lambda: False)


_rows = threading.local()  # is_open: this thread is inside a call that a profiler shows as one row


def _profiling():
    """Returns PyTorch's module if a profiler runs and does not show the current call yet, otherwise None."""
    torch = sys.modules.get("torch")
    found = hasattr(torch, "_C") and profiler_question(torch)() and not getattr(_rows, "is_open", False)
    return torch if found else None


@contextlib.contextmanager
def _row():
    _rows.is_open = True
    try:
        yield
    finally:
        _rows.is_open = False


def profiled(function, name=None):
    """Returns `function` in a wrapper that shows its calls to a running torch.profiler, as one row attune::<name>.
    Calls inside it have no rows of their own. A call that takes an op has the dispatcher's row."""
    name = name or function.__name__

    @functools.wraps(function)
    def entry(*args, **kwargs):
        torch = _profiling()
        if torch is None or _takes_op(torch, name, (*args, *kwargs.values())):
            return function(*args, **kwargs)
        with _row(), torch.autograd.profiler.record_function(f"attune::{name}"):
            return function(*args, **kwargs)

    return entry


def _takes_op(torch, name, values):
    operands = [x for x in values if isinstance(x, torch.Tensor)]
    try:
        return bool(operands) and needs_op(*operands, autocast=name == "attention",
                                           named=("tensor",) * len(operands)) is not None
    except (TypeError, ValueError):  # the function itself raises it, with the operand's name
        return False


def in_row(function):
    """Returns an op's kernel in a wrapper that makes no rows: the dispatcher has shown the op."""
    @functools.wraps(function)
    def entry(*args, **kwargs):
        with _row() if _profiling() else contextlib.nullcontext():
            return function(*args, **kwargs)

    return entry


def marked_constant(function):
    """Marks a function like torch.compiler.assume_constant_result, without importing PyTorch."""
    function._dynamo_marked_constant = True
    return function


@in_graphs("settled")
def settled(number):
    """Returns the number, or the tuple of numbers, unchanged. Inside torch.compile they may be symbols (with
    dynamic=True, defaults too); then this makes them constants of the graph, as @marked_constant needs."""
    return number


def needs_op(*operands, autocast=True, named=("q", "k", "v")):
    """Returns the module that calls attune's ops (torch/graph.py) if a call must go through PyTorch's dispatcher,
    otherwise None.

    It must for FakeTensors, DTensors and similar tensors, below dispatch modes such as make_fx's and FlopCounterMode,
    under torch.jit.trace, and if `autocast` must cast. Otherwise the dispatcher would cost several us and change
    nothing. Raises for nested and sparse tensors, by name."""
    torch = sys.modules.get("torch")
    native = getattr(torch, "_C", None)
    if native is None or not isinstance(operands[0], torch.Tensor):
        return None
    plain, seen = native._disabled_torch_dispatch_impl, native._len_torch_dispatch_stack() or native._is_tracing()
    for name, x in zip(named, operands):
        if type(x) is not torch.Tensor and getattr(type(x), "__torch_dispatch__", plain) is not plain:
            check_dense(name, x)
            seen = True
    if not seen:
        if not (autocast and native._is_any_autocast_enabled()) or autocast_dtype(*operands) is None:
            return None
    return load_graph()


def refuse_recording(name):
    """Raises if PyTorch records operations, for a call without an op: the recorder would miss that the call writes its
    memory."""
    native = getattr(sys.modules.get("torch"), "_C", None)
    if native is None:
        return
    recorder = "torch.jit.trace" if native._is_tracing() else None
    if native._len_torch_dispatch_stack() and native._get_dispatch_mode(native._TorchDispatchModeKey.PROXY) is not None:
        recorder = "make_fx"
    if recorder is not None:
        raise ValueError(
            f"{name} is called while {recorder} records, and has no op for its graph; call it outside, or use "
            "attention(), attention_kvcache(), append_kv(), quantise() or merge(), which have ops")


def autocast_dtype(*operands):
    """Returns the dtype that autocast casts these tensors to. None if it is off, if they have it, or if they are not
    16-bit or 32-bit floats: autocast does not cast float64."""
    torch = sys.modules["torch"]
    kind = operands[0].device.type
    if kind not in ("cuda", "cpu") or not torch.is_autocast_enabled(kind):
        return None
    dtype = torch.get_autocast_dtype(kind)
    floats = {getattr(x, "dtype", None) for x in operands} & {torch.float32, torch.float16, torch.bfloat16}
    return dtype if floats - {dtype} else None


def records_gradients(*operands):
    """True if autograd records a call of these tensors."""
    torch = sys.modules.get("torch")
    if not hasattr(torch, "_C") or not torch.is_grad_enabled():
        return False
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in operands)


def forward_derivatives(torch):
    """Returns PyTorch's module of dual tensors; None if there is none. Its _current_level is the depth of their scopes,
    below 0 outside."""
    found = getattr(getattr(torch, "autograd", None), "forward_ad", None)
    return found if hasattr(found, "_current_level") else None


def refuse_tangents(named):
    """Raises if a tensor has a forward-mode tangent. named: as in refuse_gradients()."""
    torch = sys.modules.get("torch")
    forward = forward_derivatives(torch)
    if forward is None or forward._current_level < 0:
        return
    for name, tensor in named:
        if isinstance(tensor, torch.Tensor) and forward.unpack_dual(tensor).tangent is not None:
            raise ValueError(
                f"{name} has a tangent of torch.autograd.forward_ad, and attune has no forward derivatives; must be a "
                f"plain tensor")


def tell_written(*tensors):
    """Tells autograd that a call has written these tensors in place (None: skipped). A backward that saved one of them
    then raises."""
    torch = sys.modules.get("torch")
    graph = getattr(getattr(torch, "autograd", None), "graph", None)
    if not hasattr(graph, "increment_version") or preparing():
        return
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            graph.increment_version(tensor)


def refuse_gradients(named, instead=""):
    """Raises if a tensor requires gradients that attune does not compute: a result would silently lose its history.

    named: pairs of a name and a tensor, number or None. instead: text that is appended to the message."""
    torch, named = sys.modules.get("torch"), tuple(named)
    if torch is None:
        return
    refuse_tangents(named)
    if not torch.is_grad_enabled():
        return
    for name, tensor in named:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            raise ValueError(
                f"{name} requires a gradient, and attune gives none of it here; give {name}.detach(), or make the call "
                f"under torch.no_grad(){instead}")


def ordinal_of(target):
    """Returns N of "cuda:N", or -1 for "cpu"."""
    return int(target[5:]) if target.startswith("cuda:") else -1


PER_THREAD_STREAM = 2  # cudaStreamPerThread: a handle of another stream in each thread


def stream_address(stream, ordinal):
    """Returns the handle of `stream` (a torch.cuda.Stream, a handle, or None for the current one) on device `ordinal`;
    None on a CPU."""
    if ordinal < 0:
        return None
    if stream is None:
        return sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream
    if hasattr(stream, "cuda_stream"):
        if stream.device.index != ordinal:
            raise ValueError(f"stream is of {stream.device}; must be of cuda:{ordinal}")
        stream = stream.cuda_stream
    if isinstance(stream, bool) or not isinstance(stream, int) or stream < 0:
        raise TypeError(
            f"stream is {stream!r}; must be a torch.cuda.Stream, its handle (an int) or None for the current one")
    if stream == PER_THREAD_STREAM:
        raise ValueError(
            "stream is 2, cudaStreamPerThread; must be a stream whose handle is the same stream in all threads, "
            "because runs on one handle share a workspace")
    return stream


def on_stream(ordinal, stream):
    """Returns a scope in which `stream` (a handle) is PyTorch's current one, so that new memory belongs to it."""
    if ordinal < 0:
        return contextlib.nullcontext()
    cuda = sys.modules["torch"].cuda
    if cuda.current_device() == ordinal and cuda.current_stream(ordinal).cuda_stream == stream:
        return contextlib.nullcontext()
    return cuda.stream(cuda.ExternalStream(stream, device=ordinal) if stream else cuda.default_stream(ordinal))


def capturing(ordinal, stream):
    """True if a CUDA graph captures the work of `stream` (a handle)."""
    torch = sys.modules.get("torch")
    if ordinal < 0 or torch is None:
        return False
    with on_stream(ordinal, stream):
        return torch.cuda.is_current_stream_capturing()


def synchronize(ordinal):
    """Waits for the current stream."""
    sys.modules["torch"].cuda.current_stream(ordinal).synchronize()
