# SPDX-License-Identifier: Apache-2.0
"""Context and Plan: the C interface for tensors. Most programs call attention() in attention.py, which uses these."""
import atexit
import contextlib
import functools
import os
import threading
import time
import weakref

from ..core import tensors
from ..core.flags import flag
from ..core.library import Error, RUNG_NAMES, module
from ..core.program import nvrtc_folders
from ..core.operands import Layout, factors
from ..core.preparing import preparing
from ..core.recent import Recent
from ..core.torch_state import (capturing, on_stream, refuse_gradients, refuse_recording, stream_address, synchronize,
                                untraced)
from ..score.dropout import Seeds
from ..score.programs import program_of
from ..score.scores import give_map, named_operands
from . import quick
from . import workspace as workspaces

POLICIES = {"environment": -1, "default": 0, "nearest": 1, "strict": 2}
PLANS_KEPT = 512  # per context, by shapes and strides; the library keeps its own
LAYOUTS_KEPT = 64  # per plan
OTHER_OPS = {1: "quantise", 3: "merge", 4: "attention_backward", 5: "attention_kvcache",
             6: "append_kv", 7: "top_k", 8: "index_scores"}  # attune_op's values, and the functions of these ops
contexts = weakref.WeakSet()  # all open contexts
plan_made = None  # set by tools/tune_on_first_use.py: called with each context, new plan and its programs
SCALES = ("q_scale", "k_scale", "v_scale")


_making_plans = set()  # a token for each thread that waits for the library, which may be compiling
_ending = False


@contextlib.contextmanager
def _under_way():
    """Surrounds a call that may compile. The process does not end during the call, because compilers would crash.
    Raises RuntimeError in a thread that starts such a call after the interpreter began to shut down."""
    if _ending and threading.current_thread() is not threading.main_thread():
        raise RuntimeError("the interpreter is shutting down; plans must be made before that")
    token = object()
    _making_plans.add(token)
    try:
        yield
    finally:
        _making_plans.discard(token)


@atexit.register
def _wait_for_plans():
    global _ending
    _ending = True
    while _making_plans:
        time.sleep(0.001)


os.register_at_fork(after_in_child=_making_plans.clear)  # threads do not survive a fork


def _path(name, given):
    """Returns a path as the bytes that the library opens; None for None. Raises with the argument's name if `given` is
    not a path."""
    if given is None:
        return None
    try:
        path = os.fsencode(given)
    except TypeError:
        raise TypeError(
            f"{name} is of type {type(given).__name__}; must be a path: str, bytes or os.PathLike") from None
    if b"\0" in path:
        raise ValueError(f"{name} is {given!r}; must not hold a NUL")
    return path


def parse(text, fields=()):
    """Returns the Problem of a text. fields: pairs (field of attune_problem, value) for values that a text cannot hold.
    """
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(
            f"problem is {text!r}; must be a text such as \"dtype=bf16,head_dim=128,heads=32/8,seqlen=4096\"")
    return module.problem(text.encode(errors="surrogateescape"), tuple(fields))


class Plan(module.PlanBase):
    """The kernel, config and launch that are chosen for one problem. Immutable. Made by Context.plan().

    The choice is in rung, kernel_template, arch, config, expected_us (None: not tuned, or the timings are too noisy),
    registers, shared_bytes and workspace_bytes. explain() gives the reasons.
    target: "cpu" or "cuda:N", where the operands of its runs must be."""

    def __init__(self, handle, problem, text):
        self.handle = handle
        self._release = weakref.finalize(self, module.plan_release, handle)
        self._release.atexit = False  # other threads may still run it; the process frees all at its end
        self.problem, self._text = problem, text
        info = module.plan_info(handle)
        if info["device_ordinal"] is None:
            raise ImportError(
                f"libattune.so {module.version()} is older than this module: its plans do not give their device")
        self.rung = RUNG_NAMES[info["rung"]]
        self.kernel_template, self.arch, self.config = info["kernel_template"], info["arch"], info["config"]
        self.expected_us = info["expected_us"] or None
        self.registers, self.shared_bytes = info["registers"], info["shared_bytes"]
        self.workspace_bytes, self.zeroed_bytes = info["workspace_bytes"], info["zeroed_bytes"]
        self.ordinal = info["device_ordinal"]
        self.target = f"cuda:{self.ordinal}" if self.ordinal >= 0 else "cpu"
        self.graph_workspace = None
        self._layouts = {}

    def __repr__(self):
        return f"<attune.Plan for {self._text} on {self.target}: {self.kernel_template} {self.config}, {self.rung}>"

    def explain(self):
        """Returns lines that name the kernel, the rung that chose it, its age, and why other kernels were not chosen.
        """
        return module.plan_explain(self.handle)

    def operands(self, q, k, v, o, lse=None, q_scale=None, k_scale=None, v_scale=None, captures=None, scalars=None,
                 q_position0=0, kv_position0=0, block_map=None, seed=None, offset=0):
        """Returns attune_operands for these tensors, checked as in run(). Its attribute `address` is that of the C
        struct, which lives as long as the returned object. The caller keeps the tensors alive."""
        scales = (q_scale, k_scale, v_scale)
        layout = self._layout(q, k, v, o, lse, scales)
        operands = self.bind(layout, q, k, v, o, lse, scales, stream_address(None, self.ordinal))
        return self._with_scores(operands, captures, scalars, q_position0, kv_position0, block_map, seed, offset)

    def _with_scores(self, operands, captures, scalars, q_position0, kv_position0, block_map, seed, offset):
        if captures or scalars or q_position0 or kv_position0:
            operands.scores = named_operands(self, captures, scalars, q_position0, kv_position0)
            operands.kept = [*(operands.kept or ()), *(captures or {}).values()]
        give_map(operands, block_map, self)
        if seed is not None:
            operands.kept = [*(operands.kept or ()), Seeds(seed, offset).give(operands, self)]
        return operands

    def _layout(self, q, k, v, o, lse, scales):
        refuse_gradients(zip(("q", "k", "v", "o", "lse", *SCALES), (q, k, v, o, lse, *scales)))
        if self.problem.op in OTHER_OPS:
            op = OTHER_OPS[self.problem.op]
            raise ValueError(f"this plan is of op {op}; must be of op attention (attune.{op}() runs such plans)")
        key = tuple(tensors.signature(name, tensor) for name, tensor in (("q", q), ("k", k), ("v", v), ("o", o)))
        key = (*key, None if lse is None else tensors.signature("lse", lse))
        layout = self._layouts.get(key)
        if layout is None:
            layout = Layout(self.problem, self.target, q, k, v, o, lse)
            if len(self._layouts) >= LAYOUTS_KEPT:
                self._layouts.clear()
            self._layouts[key] = layout
        return layout

    def bind(self, layout, q, k, v, o, lse, scales, stream, fresh=False):
        """Implements operands() for tensors that fit `layout`; checks only addresses and overlaps. Factors that are
        numbers become tensors on `stream`."""
        operands = layout.bind(q, k, v, o, lse, fresh)
        p = self.problem
        if tensors.DTYPES[p.dtype] not in tensors.FP8_NAMES:
            for name, scale in zip(SCALES, scales):
                if scale is not None:
                    raise ValueError(
                        f"{name} is given for a tensor of {tensors.DTYPES[p.dtype]}; only 8-bit tensors have factors")
            return operands
        blocks_q, blocks_kv = tensors.num_blocks(p.seqlen_q, p.scale_block_q), tensors.num_blocks(
            p.seqlen_kv, p.scale_block_kv)
        extents = ((p.num_heads_q, blocks_q), (p.num_heads_kv, blocks_kv), (p.num_heads_kv, blocks_kv))
        kept, read = [], []
        for name, scale, (heads, blocks) in zip(SCALES, scales, extents):
            with on_stream(self.ordinal, stream):
                tensor, view, extent = factors(name, scale, q, p.batch, heads, blocks, self.target)
            setattr(operands, name, view)
            if tensor is not None:
                kept.append(tensor)
                read.append((name, view.data, extent))
        if not fresh:
            layout.refuse_overlap(operands, read)
        operands.kept = kept
        return operands

    @untraced
    def run(self, q, k, v, o, lse=None, workspace=None, stream=None, q_scale=None, k_scale=None, v_scale=None,
            captures=None, scalars=None, q_position0=0, kv_position0=0, block_map=None, seed=None, offset=0):
        """Computes o (and lse) from q, k and v: enqueues one launch on `stream`, by default PyTorch's current stream.
        On the CPU it returns when the work is done.

        q: [batch, seqlen_q, num_heads_q, head_dim_qk], k: [batch, seqlen_kv, num_heads_kv, head_dim_qk], v: [batch,
        seqlen_kv, num_heads_kv, head_dim_v], o: [batch, seqlen_q, num_heads_q, head_dim_v], of the problem's dtypes, on
        the plan's device. They are 16-byte aligned and contiguous in head_dim; other strides are multiples of 16 bytes.
        lse: fp32 [batch, num_heads_q, seqlen_q], or None.
        q_scale, k_scale, v_scale: factors of 8-bit tensors; see attention().
        captures, scalars: for a problem with score features, tensors and numbers by name: "bias", "alibi_slopes",
        "key_lengths", "documents_q", "documents_kv", and the names that its programs declare. Axes are as in
        attention().
        q_position0, kv_position0: positions of the first row and key, for programs, key_lengths, block_map, alibi,
        chunk and prefix. Tensors by row and key hold only this call's rows and keys.
        block_map: for a problem with block_map, a result of attune.block_map. seed, offset: for a problem with dropout,
        as in attention(); the seed must be given.

        workspace: by default the runs of a thread or stream share one. Otherwise a uint8 tensor of workspace_bytes,
        256-byte aligned; runs that may overlap in time (graphs replayed side by side) each need one. An int is the
        address of memory that init_workspace() has initialised; its size is not checked.
        Returns None. Raises ValueError or TypeError if arguments do not fit, and attune.Error if the library refuses
        the run."""
        self._checked_run(q, k, v, o, lse, workspace, stream, q_scale, k_scale, v_scale, captures, scalars, q_position0,
                          kv_position0, block_map, seed, offset)

    def _checked_run(self, q, k, v, o, lse=None, workspace=None, stream=None, q_scale=None, k_scale=None, v_scale=None,
                     captures=None, scalars=None, q_position0=0, kv_position0=0, block_map=None, seed=None, offset=0):
        """Implements run(); returns None and the recipe by which the C module can repeat the call (see quick.py), or
        None."""
        refuse_recording("Plan.run()")
        scales = (q_scale, k_scale, v_scale)
        layout = self._layout(q, k, v, o, lse, scales)
        address = stream_address(stream, self.ordinal)
        operands = self.bind(layout, q, k, v, o, lse, scales, address)
        self.enqueue(self._with_scores(operands, captures, scalars, q_position0, kv_position0, block_map, seed, offset),
                     address, workspace)
        if workspace is not None or captures or scalars or block_map is not None or seed is not None:
            return None, None
        return None, lambda: quick.recipe_of_run(self, layout, operands, q, k, v, o, lse, scales, stream)

    def enqueue(self, operands, stream, workspace=None):
        """Implements run() for a result of operands() and a stream's handle."""
        if preparing():
            return None
        if workspace is not None:
            address = workspaces.given(self, workspace, stream)
            return module.run(self.ordinal, self.handle, operands, address, self.workspace_bytes, stream)
        workspace = workspaces.shared(self, stream)
        if workspace is None:
            return module.run(self.ordinal, self.handle, operands, None, 0, stream)
        with workspace:
            address = workspace.ready(self, stream)
            try:
                module.run(self.ordinal, self.handle, operands, address, self.workspace_bytes, stream)
            except Error:
                workspace.zero_bytes = 0
                raise

    @untraced
    def launcher(self, q, k, v, o, lse=None, stream=None, q_scale=None, k_scale=None, v_scale=None, captures=None,
                 scalars=None, q_position0=0, kv_position0=0, block_map=None, seed=None, offset=0):
        """Returns a function without arguments that repeats this run with the least overhead, for benchmarks and graph
        capture. The function has a separate workspace.

        Arguments are those of run(). One thread and one stream at a time may call the function. Keep it as long as a
        graph that captured it."""
        scales = (q_scale, k_scale, v_scale)
        layout = self._layout(q, k, v, o, lse, scales)
        stream = stream_address(stream, self.ordinal)
        operands = self.bind(layout, q, k, v, o, lse, scales, stream)
        operands = self._with_scores(operands, captures, scalars, q_position0, kv_position0, block_map, seed, offset)
        workspace = workspaces.own(self, stream, "Plan.launcher()")
        address = None if workspace is None else workspace.address
        keep = (self, q, k, v, o, lse, workspace)  # keeps these addresses valid as long as the function
        return module.launcher(self.ordinal, self.handle, operands, address, self.workspace_bytes, stream, keep)

    def prepare(self):
        """Prepares runs inside a CUDA graph's capture; call it before the capture.

        Each graph gets its own workspace. If the driver does not report that a graph is gone, all captured runs of this
        plan share one workspace. Then graphs that are replayed at the same time need run(workspace=)."""
        if self.ordinal < 0 or self.graph_workspace is not None or module.watches_graphs():
            return
        stream = stream_address(None, self.ordinal)
        self.graph_workspace = workspaces.own(self, stream, "Plan.prepare()")
        if self.graph_workspace is not None:
            synchronize(self.ordinal)  # other streams will use it

    def init_workspace(self, address, stream=None):
        """Zeroes the parts of the memory at `address` that this plan needs zeroed: before its first run there, and
        after another plan's run there."""
        module.workspace_init(self.handle, address, self.workspace_bytes, stream_address(stream, self.ordinal))


Plan.run = quick.plan_method(Plan.run, Plan._checked_run)


class Context:
    """A device with its stores, bundles and loaded kernels. Thread-safe.

    target: "auto", "cuda", "cuda:N", "cpu" (all cores that this process may use) or "cpu:THREADS".
    store: a file, "" for none, None for the default store. bundles: folders and files of `attune export`, or the bytes
    of such a file.
    policy: "environment" ($ATTUNE_POLICY), "default", "nearest" or "strict". no_jit: True never compiles.
    capture_file: the file to which the problems of this context are written, for `attune tune --captured`.
    pin: a file of `attune pin`; only the kernels that it names run, all others are refused. "" for no file, None for
    $ATTUNE_PIN.
    Raises ValueError or TypeError if an argument does not fit, and attune.Error if the device, a store or a bundle
    cannot be used."""

    def __init__(self, target="auto", store=None, bundles=(), policy="environment", no_jit=False, capture_file=None,
                 pin=None):
        if policy not in POLICIES:
            raise ValueError(f"policy is {policy!r}; must be one of {', '.join(POLICIES)}")
        if not isinstance(target, str) or "\0" in target:
            raise ValueError(f"target is {target!r}; must be auto, cuda, cuda:N, cpu or cpu:THREADS")
        own_store = _path("store", store)
        paths = tuple(_path("bundles", bundle) for bundle in bundles if not isinstance(bundle, bytes))
        self._bundles = tuple(  # the library reads them where they are
            bundle for bundle in bundles if isinstance(bundle, bytes))
        handle = module.context_create(
            target.encode(errors="surrogateescape"), own_store, paths, self._bundles, POLICIES[policy],
            flag("no_jit", no_jit), _path("capture_file", capture_file), _path("pin", pin),
            tuple(os.fsencode(folder) for folder in nvrtc_folders()))
        self._handle, self._target = handle, target
        self.target, self.store = target, None if store is None else str(store)
        contexts.add(self)
        self._destroy = weakref.finalize(self, module.context_destroy, handle)
        self._destroy.atexit = False  # as in Plan
        self.recent = Recent(PLANS_KEPT)
        self._calls = module.Table(PLANS_KEPT)

    def __repr__(self):
        return f"<attune.Context {self._target!r}: {self.device}>"

    def __copy__(self):
        """Returns this context. A copy would share the handle, and could use it after this context destroyed it."""
        return self

    def __deepcopy__(self, _memo):
        return self

    def __reduce__(self):
        raise TypeError(
            "a Context holds a device and its loaded kernels, and cannot be pickled; make one with attune.Context("
            f"{self._target!r}) in the process that uses it")

    def reload(self):
        """Reads the stores again, to find winners that were tuned since. Later calls choose their plans anew; existing
        plans do not change."""
        module.context_reload(self._handle)
        self.forget()

    @property
    def device(self):
        return module.context_device(self._handle)

    def pin_digest(self):
        """Returns 32 bytes that identify the pin file, or the stores and bundles, from which kernels are chosen. Ranks
        with the same version of attune and equal digests run the same kernels."""
        return module.context_pin_digest(self._handle)

    def forget(self):
        """Makes the next calls of attention() look for their plans again, for instance after a tune or an import into
        the store. Plans that programs hold do not change."""
        self.recent = Recent(PLANS_KEPT)
        quick.forget(self._calls)

    def check(self, problem, programs=()):
        """Returns a line per template, which says that it serves the problem, or why it does not. Raises attune.Error
        if no template serves it. programs: as in plan_with_strides()."""
        return module.problem_check(self._handle, parse(problem, programs))

    def plan(self, problem, layout=None, *, score_mod=None, mask_mod=None):
        """Returns the Plan for a problem in text form (problem_text() makes it from tensors); looks it up, or compiles
        it.

        layout: a tuple (q, k, v, o) of tensors with the strides of the coming runs; by default contiguous. score_mod,
        mask_mod: texts of programs, with their declarations as comments. A problem's text cannot name files here.
        Raises ValueError or TypeError if an argument does not fit, and attune.Error if no kernel serves the problem."""
        programs = [(kind, program_of(kind, text).handle)
                    for kind, text in (("score_mod", score_mod), ("mask_mod", mask_mod)) if text is not None]
        if layout is None:
            return self.plan_with_strides(problem, None, programs)
        transposed = parse(problem).v_layout
        layouts = (tensors.ROWS, tensors.ROWS, transposed, tensors.ROWS)
        for name, tensor, order in zip("qkvo", layout, layouts):
            tensors.signature(name, tensor)  # refuses other types
            tensors.check_rank(name, tensor, tensors.DIMENSIONS[order])
        return self.plan_with_strides(problem, [tensors.layout_strides(*of) for of in zip("qkvo", layout, layouts)],
                                      programs)

    def plan_with_strides(self, problem, strides, programs=(), gradients=None):
        """Implements plan(). strides: the strides of q, k, v and o over (batch, rows, heads), or None. programs: pairs
        (field of attune_problem, value), such as ("score_mod", an attune_program's handle). gradients: a
        GradientOperands with strides, for op attention_backward."""
        operands = None
        if strides is not None:
            operands = module.Operands(
                gradients=gradients, **{name: module.Tensor(None, *stride)
                                        for name, stride in zip("qkvo", strides)})
        parsed = parse(problem, programs)
        with _under_way():
            handle = module.plan_get(self._handle, parsed, operands)
        plan = Plan(handle, parsed, problem)
        if plan_made is not None:
            plan_made(self, plan, programs)
        return plan


quick.context_type = Context


@functools.lru_cache(maxsize=None)
def default_context(target):
    return Context(target)


def context_of(context, target):
    """Returns a Context for tensors on `target`: the one given, one of the given target, or the default one."""
    if isinstance(context, Context):
        return context
    if context is not None and not isinstance(context, str):
        raise TypeError(
            f"context is of type {type(context).__name__}; must be an attune.Context, a target such as 'cpu:4' or None")
    if context is None:
        return default_context(target)
    try:
        return default_context(context)
    except Error as error:
        error.args = (str(error).replace("target is", "context is", 1),)
        raise


def pin_digest(context=None):
    """Returns Context.pin_digest() of `context`: a Context, a target, or None for the default one.

    Compare it over all ranks once, at the start: dist.all_gather_object(digests, attune.pin_digest())."""
    return context_of(context, "auto").pin_digest()


def refuse_capture(ordinal, function):
    """Raises RuntimeError inside a CUDA graph's capture, because a new plan may have to compile and load a kernel."""
    if ordinal >= 0 and capturing(ordinal, stream_address(None, ordinal)):
        raise RuntimeError(
            f"attune.{function}() was not prepared for these tensors, and a CUDA graph is being captured; call "
            f"attune.prepare(attune.{function}, ...) with the same arguments before the capture")
