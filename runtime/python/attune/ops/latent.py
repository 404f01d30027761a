# SPDX-License-Identifier: Apache-2.0
"""attend_latent(): attention_kvcache() for absorbed latent attention (DeepSeek's MLA), whose compressed and rotated
columns are separate tensors. Used by flashinfer/mla.py, by the functions of flash/ for FlashAttention's qv, and by
torch/cache_ops.py."""
import warnings

from ..core.torch_state import in_graphs, needs_op
from .kvcache import attention_kvcache


def _beside(first, second, names):
    """Returns both as one tensor, the second's columns behind the first's, without a copy; None if memory does not hold
    them so."""
    columns = first.shape[-1]
    alike = first.shape[:-1] == second.shape[:-1] and first.dtype == second.dtype and first.device == second.device
    if not alike:
        raise ValueError(
            f"{names[0]} is {first.dtype} of shape {tuple(first.shape)} and {names[1]} {second.dtype} of shape "
            f"{tuple(second.shape)}; both must be equal but for their last dimension")
    apart = second.data_ptr() - first.data_ptr()
    steps = [pair for extent, *pair in zip(first.shape[:-1], first.stride(), second.stride()) if extent > 1]
    if any(one != other for one, other in steps) or first.stride(-1) != 1 or second.stride(
            -1) != 1 or apart != columns * first.element_size():
        return None
    if first.untyped_storage().data_ptr() != second.untyped_storage().data_ptr():
        return None
    return first.as_strided((*first.shape[:-1], columns + second.shape[-1]), first.stride())


def _joined(ckv_cache, kpe_cache, page_table):
    """Returns the keys of both in one tensor, or the pages that a table names, and the table of their places there."""
    import torch
    warnings.warn(
        "latent attention copies the pages of all requests at each run, because kpe_cache (FlashAttention's k_cache) "
        "is not behind ckv_cache (its v_cache) in memory; keep both as columns of one tensor [pages, page_size, "
        "head_dim_ckv + head_dim_kpe], which kernels read once",
        stacklevel=4)
    if page_table is None:
        return torch.cat((ckv_cache, kpe_cache), -1), None
    pages = page_table.flatten().long().clamp(0, max(ckv_cache.shape[0] - 1, 0))
    return torch.cat((ckv_cache[pages], kpe_cache[pages]), -1), torch.arange(pages.numel(), dtype=torch.int32,
                                                                             device=pages.device).view(page_table.shape)


@in_graphs("attend_latent")
def attend_latent(q_nope, q_pe, ckv_cache, kpe_cache, out=None, *, page_table=None, kv_begins=None, **choices):
    """Returns (o, lse) of rows q_nope [.., num_heads, head_dim_ckv] and q_pe [.., num_heads, head_dim_kpe].

    The cache is of one head, [.., head_dim_ckv] and [.., head_dim_kpe], preferably columns of one tensor; or of several
    heads in the axis before the last. Other axes and choices are attention_kvcache()'s."""
    import torch
    graph = needs_op(q_nope, q_pe, ckv_cache, kpe_cache, autocast=False,
                     named=("q_nope", "q_pe", "ckv_cache", "kpe_cache"))
    if graph is not None:
        return graph.attend_latent(q_nope, q_pe, ckv_cache, kpe_cache, out, page_table=page_table, kv_begins=kv_begins,
                                   **choices)
    has_heads = ckv_cache.dim() == (4 if kv_begins is None else 3)
    cache = _beside(ckv_cache, kpe_cache, ("ckv_cache", "kpe_cache"))
    if cache is None:
        cache, page_table = _joined(ckv_cache, kpe_cache, page_table)
    q = _beside(q_nope, q_pe, ("q_nope", "q_pe"))
    cache = cache if has_heads else cache.unsqueeze(-2)
    return attention_kvcache(
        torch.cat((q_nope, q_pe), -1) if q is None else q, cache, cache[..., :q_nope.shape[-1]], page_table=page_table,
        kv_begins=kv_begins, out=out, return_lse=True, **choices)
