# SPDX-License-Identifier: Apache-2.0
"""What of PyTorch is more than a tensor: gradients, torch.compile, dispatch modes, autocast, CUDA streams and graph capture. Imports PyTorch
never; until a program does so itself, nothing here has an effect."""
import contextlib
import functools
import sys

from ._tensors import check_dense


def untraced(function):
    """Keeps torch.compile out of `function`, where it would trace into ctypes and caches. PyTorch's own torch.compiler.disable
    does that, applied at the first call after torch.compile was loaded: earlier it would load it for all who never compile.
    What has an op beside it is traced as that: see in_graphs()."""
    chosen = [function]

    @functools.wraps(function)
    def entry(*args, **kwargs):
        if chosen[0] is function and hasattr(sys.modules.get("torch._dynamo"), "disable"):
            chosen[0] = sys.modules["torch._dynamo"].disable(function)
        return chosen[0](*args, **kwargs)

    entry._torchdynamo_disable = True  # callers that are traced stop here; torch/_dynamo/decorators.py sets the same mark
    return entry


def in_graphs(name):
    """A decorator: torch.compile traces _graph.<name>() in the place of the function, which makes a call of attune's op of it."""
    def traced(*args, **kwargs):
        from . import _graph
        return getattr(_graph, name)(*args, **kwargs)

    def mark(function):
        function._torchdynamo_inline = traced
        return function

    return mark


def needs_op(*operands, autocast=True, named=("q", "k", "v")):
    """The module with the calls of attune's ops (_graph.py) where a call must go through PyTorch's dispatcher: for FakeTensors, DTensors
    and their like, below dispatch modes such as those of make_fx and FlopCounterMode, under torch.jit.trace, and where `autocast` has something
    to cast. Else None: there is nothing to be seen there, and the way costs several us. Refuses nested and sparse tensors by name."""
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
    from . import _graph
    return _graph


def refuse_recording(name):
    """Of what has no op: what records operations would keep the memory that it writes, and lose that it does."""
    native = getattr(sys.modules.get("torch"), "_C", None)
    if native is None:
        return
    recorder = "torch.jit.trace" if native._is_tracing() else None
    if native._len_torch_dispatch_stack() and native._get_dispatch_mode(native._TorchDispatchModeKey.PROXY) is not None:
        recorder = "make_fx"
    if recorder is not None:
        raise ValueError(
            f"{name} is called while {recorder} records, and has no op that could stand in its graph; must be the call "
            f"outside, or "
            "attention(), attention_kvcache(), append_kv(), quantise() and merge(), which have one")


def autocast_dtype(*operands):
    """What autocast makes of these tensors; None where it is off, and where they are so or are no floats of 16 and 32 bits: of float64 it makes nothing."""
    torch = sys.modules["torch"]
    kind = operands[0].device.type
    if kind not in ("cuda", "cpu") or not torch.is_autocast_enabled(kind):
        return None
    dtype = torch.get_autocast_dtype(kind)
    floats = {getattr(x, "dtype", None) for x in operands} & {torch.float32, torch.float16, torch.bfloat16}
    return dtype if floats - {dtype} else None


def records_gradients(*operands):
    """Whether autograd is to record a call of these tensors."""
    torch = sys.modules.get("torch")
    if not hasattr(torch, "_C") or not torch.is_grad_enabled():
        return False
    return any(isinstance(x, torch.Tensor) and x.requires_grad for x in operands)


def forward_derivatives(torch):
    """PyTorch's module of dual tensors, whose _current_level is that of the scopes for them, below 0 outside; None where it has none."""
    found = getattr(getattr(torch, "autograd", None), "forward_ad", None)
    return found if hasattr(found, "_current_level") else None


def refuse_tangents(named):
    """`named`: as of refuse_gradients()."""
    torch = sys.modules.get("torch")
    forward = forward_derivatives(torch)
    if forward is None or forward._current_level < 0:
        return
    for name, tensor in named:
        if isinstance(tensor, torch.Tensor) and forward.unpack_dual(tensor).tangent is not None:
            raise ValueError(
                f"{name} has a tangent, of torch.autograd.forward_ad, and attune has no forward derivatives; must be "
                f"plain tensors"
            )


def tell_written(*tensors):
    """Tells autograd that a call has written these in place (None: nothing), so that a backward that kept one of them says so."""
    torch = sys.modules.get("torch")
    graph = getattr(getattr(torch, "autograd", None), "graph", None)
    if not hasattr(graph, "increment_version"):
        return
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and not tensor.is_inference():
            graph.increment_version(tensor)


def refuse_gradients(named, instead=""):
    """`named`: pairs of name and tensor (or number, or None), of which attune gives no gradients: a result would lose its history in silence.
    `instead`: what else is accepted."""
    torch, named = sys.modules.get("torch"), tuple(named)
    if torch is None:
        return
    refuse_tangents(named)
    if not torch.is_grad_enabled():
        return
    for name, tensor in named:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            raise ValueError(
                f"{name} requires a gradient, and attune gives none of it here; must be {name}.detach(), or a call "
                f"under "
                f"torch.no_grad(){instead}")


def ordinal_of(target):
    """N of cuda:N, -1 for cpu."""
    return int(target[5:]) if target.startswith("cuda:") else -1


PER_THREAD_STREAM = 2  # cudaStreamPerThread: a handle of another stream in each thread


def stream_address(stream, ordinal):
    """The handle of `stream` (a torch.cuda.Stream, a handle, or None for the current one) of device `ordinal`; None on a CPU."""
    if ordinal < 0:
        return None
    if stream is None:
        return sys.modules["torch"].cuda.current_stream(ordinal).cuda_stream
    if hasattr(stream, "cuda_stream"):
        if stream.device.index != ordinal:
            raise ValueError(f"stream is of {stream.device}; must be those of cuda:{ordinal}")
        stream = stream.cuda_stream
    if isinstance(stream, bool) or not isinstance(stream, int) or stream < 0:
        raise TypeError(
            f"stream is {stream!r}; must be a torch.cuda.Stream, its handle (an int) and None for the current one")
    if stream == PER_THREAD_STREAM:
        raise ValueError(
            "stream is 2, cudaStreamPerThread; must be streams that threads can tell apart: runs of a stream share a "
            "workspace"
        )
    return stream


def on_stream(ordinal, stream):
    """A scope in which `stream` (a handle) is PyTorch's current one, so that memory made there belongs to it."""
    if ordinal < 0:
        return contextlib.nullcontext()
    cuda = sys.modules["torch"].cuda
    if cuda.current_device() == ordinal and cuda.current_stream(ordinal).cuda_stream == stream:
        return contextlib.nullcontext()
    return cuda.stream(cuda.ExternalStream(stream, device=ordinal) if stream else cuda.default_stream(ordinal))


def capturing(ordinal, stream):
    """Whether a CUDA graph captures what `stream` (a handle) is given."""
    torch = sys.modules.get("torch")
    if ordinal < 0 or torch is None:
        return False
    with on_stream(ordinal, stream):
        return torch.cuda.is_current_stream_capturing()


def synchronize(ordinal):
    """Waits for the current stream."""
    sys.modules["torch"].cuda.current_stream(ordinal).synchronize()
