# SPDX-License-Identifier: Apache-2.0
"""Workspaces: memory that kernels need besides their operands. Runs that follow each other share a workspace: on a CPU
the runs of a thread, on a GPU the runs of a stream.

A graph may repeat its captured runs at any time, so they use a workspace of the graph, which the runs captured from one
stream share. If the driver does not report when a graph is gone, they use the workspace that their plan's prepare()
made."""
import sys
import threading

from ..core import tensors
from ..core.library import module
from ..core.torch_state import PER_THREAD_STREAM, capturing, on_stream

ALIGNMENT = 256


class Workspace(module.Arena):
    """A buffer that grows to the largest plan. Its first `zero_bytes` bytes are zero between runs.

    A plan needs its first zeroed_bytes bytes to be zero, leaves them zero, and writes any values after them. A plan
    that needs no zeros uses the memory after the zeros, which stay for other plans. ready() and the launch are inside a
    `with` of the workspace, which keeps out other threads and the C module."""

    def __init__(self):
        super().__init__()
        self._lock = threading.RLock()
        self.buffer = None

    def __enter__(self):
        self._lock.acquire()
        self.busy += 1
        return self

    def __exit__(self, *_):
        self.busy -= 1
        self._lock.release()

    def ready(self, plan, stream):
        """Returns the address for the next run of `plan` on `stream`."""
        if self.size < self._offset(plan) + plan.workspace_bytes:
            self._grow(self._offset(plan) + plan.workspace_bytes + plan.workspace_bytes // 4, plan.ordinal, stream)
        if plan.zeroed_bytes == 0:
            return self.address + self._offset(plan)
        if self.zero_bytes < plan.zeroed_bytes:
            plan.init_workspace(self.address, stream)
            self.zero_bytes = plan.zeroed_bytes
        if plan.workspace_bytes > plan.zeroed_bytes:
            self.zero_bytes = min(self.zero_bytes, plan.zeroed_bytes)
        return self.address

    def _offset(self, plan):
        return 0 if plan.zeroed_bytes else -(-self.zero_bytes // ALIGNMENT) * ALIGNMENT

    def _grow(self, size, ordinal, stream):
        self.size = self.zero_bytes = 0
        if ordinal < 0:
            self.map(size)
        else:
            self._take(_outside_of_pools(lambda: _memory(size + ALIGNMENT, ordinal, stream)))
        self.size = size

    def _take(self, buffer):
        self.buffer = buffer
        self.address = -(-buffer.data_ptr() // ALIGNMENT) * ALIGNMENT


class _OfGraph(Workspace):
    """The workspace of runs that a graph captures from one stream. Its memory belongs to no pool, and lives as long as
    the graph. Only the first run zeroes the bytes that must be zero; the later ones keep them zero."""

    def __init__(self, graph):
        super().__init__()
        self.word = module.watch_graph(graph)
        self._outgrown = []  # memory of runs that were captured before it grew

    def _grow(self, size, ordinal, stream):
        if self.buffer is not None:
            self._outgrown.append(self.buffer)
        self.zero_bytes = 0
        self._take(_outside_of_pools(lambda: _memory(size + ALIGNMENT, ordinal, None)))
        self.size = size


class _OfRun(Workspace):
    """The workspace of one run inside a capture, if the driver does not report when the graph is gone. Its memory is
    from the graph's pool, as for PyTorch's own ops. Later captures on the stream reuse it. Each replay zeroes the bytes
    that must be zero."""

    def _grow(self, size, ordinal, stream):
        self._take(_memory(size + ALIGNMENT, ordinal, stream))
        self.size = size


def _memory(size, ordinal, stream):
    torch = sys.modules["torch"]
    with on_stream(ordinal, stream):  # only this stream reuses the earlier memory, after the work on it
        return torch.empty(size, dtype=torch.uint8, device=f"cuda:{ordinal}")


def _outside_of_pools(make):
    """Returns make(), called in another thread. In this thread PyTorch may allocate from a pool whose tensors it
    counts, as torch.compile with CUDA graphs does while it warms up."""
    made = []

    def run():
        try:
            module.relax_captures()
            made.append((make(), None))
        except Exception as error:
            made.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    found, error = made[0]
    if error is not None:
        raise error
    return found


_of_thread = threading.local()
_of_stream = {}  # by (ordinal, stream)
_in_graphs = {}  # plans with captured runs, by id: a graph may repeat them as long as the process lives
_of_graph = {}  # by (capture, stream), as long as the graph exists
_of_graph_lock = threading.Lock()


def shared(plan, stream):
    """Returns the workspace for runs of `plan` on `stream`; None if the plan needs none."""
    if plan.ordinal >= 0 and capturing(plan.ordinal, stream):
        return _of_capture(plan, stream)
    if plan.workspace_bytes == 0:
        return None
    if plan.ordinal >= 0:
        found = _of_stream.get((plan.ordinal, stream))
        if found is None and stream == PER_THREAD_STREAM:
            raise ValueError(
                "the current stream is 2, cudaStreamPerThread; must be a stream whose handle is the same stream in all "
                "threads, because runs on one handle share a workspace")
        return found or _shown(_of_stream.setdefault((plan.ordinal, stream), Workspace()), plan.ordinal, stream)
    try:
        return _of_thread.workspace
    except AttributeError:
        _of_thread.workspace = _shown(Workspace(), -1, None)
        return _of_thread.workspace


def _shown(workspace, ordinal, stream):
    """Registers a workspace with the C module, whose runs use it too. Returns the workspace."""
    module.add_arena(ordinal, stream or 0, workspace)
    return workspace


def _of_capture(plan, stream):
    _in_graphs[id(plan)] = plan
    if plan.workspace_bytes == 0:
        return None
    capture = module.capture_of(stream or 0) if module.watches_graphs() else None
    if capture is None:
        return plan.graph_workspace or _OfRun()
    number, graph = capture
    with _of_graph_lock:
        for key, known in list(_of_graph.items()):
            if key[0] != number and module.graph_is_gone(known.word):
                del _of_graph[key]
        if (number, stream) not in _of_graph:
            made = _OfGraph(graph)
            if made.word == 0:
                return plan.graph_workspace or _OfRun()
            _of_graph[number, stream] = made
        return _of_graph[number, stream]


def own(plan, stream, purpose):
    """Returns a new workspace for `plan` alone, ready for its runs; None if it needs none."""
    if plan.workspace_bytes == 0:
        return None
    if capturing(plan.ordinal, stream):
        raise RuntimeError(
            f"{purpose} needs a workspace, which cannot be made while a CUDA graph is being captured; call it before "
            f"the capture")
    workspace = Workspace()
    workspace.ready(plan, stream)
    return workspace


def given(plan, workspace, stream):
    """Returns the address of the caller's workspace. A tensor is checked, and zeroed as the plan needs. For an address,
    init_workspace() was called; its size cannot be checked."""
    if isinstance(workspace, int) and not isinstance(workspace, bool):
        return workspace
    accepted = (f"a uint8 tensor of at least {plan.workspace_bytes} elements in one dimension, "
                f"{ALIGNMENT}-byte aligned, on {plan.target}")
    if not (tensors.is_torch(workspace) or tensors.is_numpy(workspace)):
        raise TypeError(f"workspace is {tensors.kind_text(workspace)}; must be None, {accepted}, or an address")
    tensors.check_plain("workspace", workspace)
    tensors.check_rank("workspace", workspace, "[workspace_bytes]")
    dtype, size, target = tensors.dtype_text(workspace.dtype), workspace.shape[0], tensors.target_of(workspace)
    stride = tensors.element_strides("workspace", workspace)[0]
    address = tensors.address("workspace", workspace, written=True) or 0
    if (dtype, target, stride) != ("uint8", plan.target, 1) or size < plan.workspace_bytes or address % ALIGNMENT:
        raise ValueError(
            f"workspace is {dtype}, {size} elements with stride {stride} at address {address} on {target}; must be "
            f"{accepted}")
    if address:
        module.workspace_init(plan.handle, address, size, stream)
    return address
