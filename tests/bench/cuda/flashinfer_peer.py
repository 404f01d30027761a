# SPDX-License-Identifier: Apache-2.0
"""FlashInfer (package flashinfer-python) as decode.py's peer. Backend fa2 decodes; fa2 and fa3 serve several rows per
request, packed prompts and latent attention. FlashInfer compiles its kernels at a shape's first use (nvcc and ninja, 40
to 135 s a set, kept in ~/.cache/flashinfer).

plan() runs when a runner is built, outside of the timing, as an engine calls it once per step. A timed call is the
wrapper's run alone. Decoding uses tensor cores: FlashInfer recommends them for four and more query heads per KV head,
and serves seven only with them. Slots are passed as consecutive pages of 16, since FlashInfer splits keys only between
pages.
"""
import itertools
import math

import torch

SLOT_PAGE = 16
WORKSPACE_BYTES = 512 << 20  # FlashInfer recommends 128 MB; chunks of long caches need more
_workspaces = {}


class Runner:
    def __init__(self, plan, run):
        self.plan, self.run = plan, run
        plan()

    def __call__(self):
        return self.run()


def workspace(device):
    """Returns one workspace per device for all wrappers, whose calls share a stream. It must be zero at first."""
    if device not in _workspaces:
        _workspaces[device] = torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    return _workspaces[device]


def ints(values):
    """Returns int32 values on the host, where plan() reads them."""
    return torch.tensor(list(values), dtype=torch.int32)


def begins(counts):
    return ints([0, *itertools.accumulate(counts)])


def pages(case, sets):
    """Returns the page size, the offset of each request's first page, and the pages of all requests end to end."""
    size, batch = case.page or SLOT_PAGE, len(case.lengths)
    counts = [-(-n // size) for n in case.lengths]
    table = sets.table
    if not case.page:
        table = torch.arange(batch * case.longest // size, dtype=torch.int32, device=sets.q.device).reshape(batch, -1)
    return size, begins(counts), torch.cat([row[:count] for row, count in zip(table, counts)])


def result(case, sets):
    return torch.empty(*sets.q.shape[:-1], case.head_dim_v or case.head_dim, dtype=sets.q.dtype, device=sets.q.device)


def over_pages(case, sets, backend):
    """Returns the runner for one or several rows per request; the last row sees all keys."""
    import flashinfer
    size, first_pages, indices = pages(case, sets)
    last_page = ints((n - 1) % size + 1 for n in case.lengths)
    out, shape = result(case, sets), (len(case.lengths) * case.rows, case.heads, case.head_dim)
    shared = (first_pages, indices, last_page, case.heads, case.heads_kv, case.head_dim, size)
    types = {"q_data_type": sets.q.dtype, "kv_data_type": sets.caches[0][0].dtype}
    if case.rows == 1:
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(sets.q.device), "NHD", use_tensor_cores=True,
                                                                backend=backend)
        arguments = shared
    else:
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(sets.q.device), "NHD", backend=backend)
        arguments, types = (begins([case.rows] * len(case.lengths)), *shared), {**types, "causal": True}

    def run():
        cache = tuple(x.view(-1, size, case.heads_kv, case.head_dim) for x in sets.take())
        wrapper.run(sets.q.view(shape), cache, out=out.view(shape))
        return out
    return Runner(lambda: wrapper.plan(*arguments, **types), run)


def end_to_end(case, sets, backend):
    """Returns the runner for packed causal prompts."""
    import flashinfer
    wrapper, out, first = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(
        sets.q.device), "NHD", backend=backend), result(case, sets), begins(case.lengths)

    def plan():
        wrapper.plan(first, first, case.heads, case.heads_kv, case.head_dim, causal=True, q_data_type=sets.q.dtype,
                     kv_data_type=sets.caches[0][0].dtype)
    return Runner(plan, lambda: wrapper.run(sets.q, *sets.take(), out=out))


def latent(case, sets, backend):
    """Returns the runner for latent attention, one row per request. Latent and rotary part are slices of q's and the
    cache's columns."""
    import flashinfer
    size, first_pages, indices = pages(case, sets)
    wrapper, out, wide = flashinfer.mla.BatchMLAPagedAttentionWrapper(workspace(
        sets.q.device), backend=backend), result(case, sets), case.head_dim_v
    q = sets.q[:, 0]

    def plan():
        wrapper.plan(begins([1] * len(case.lengths)), first_pages, indices, ints(case.lengths), case.heads, wide,
                     case.head_dim - wide, size, False, 1 / math.sqrt(case.head_dim), q.dtype, q.dtype)

    def run():
        k = sets.take()[0][:, :, 0]
        wrapper.run(q[..., :wide], q[..., wide:], k[..., :wide], k[..., wide:], out=out[:, 0])
        return out
    return Runner(plan, run)


def build(case, sets, backend):
    """Returns a runner, or None if the backend does not serve the case: fa3 does not split keys when it decodes, and
    does not compile for 8-bit caches under 16-bit q."""
    if not case.page and not case.packed and case.longest % SLOT_PAGE:
        return None
    if case.head_dim_v:
        return latent(case, sets, backend) if case.page and case.rows == 1 and not case.dtype_kv else None
    if case.by_key or case.dtype_kv == "int8":
        return None  # FlashInfer has neither
    if backend == "fa3" and (case.dtype_kv or case.rows == 1 and not case.packed):
        return None
    return (end_to_end if case.packed else over_pages)(case, sets, backend)


def fa2(case, sets):
    return build(case, sets, "fa2")


def fa3(case, sets):
    return build(case, sets, "fa3")
