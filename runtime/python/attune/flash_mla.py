# SPDX-License-Identifier: Apache-2.0
"""FlashMLA's functions on attune: latent attention over caches of one head, dense or over lists of keys.

    import attune.flash_mla as flash_mla

The columns of a latent are keys, and its first head_dim_v columns are values. Any number of query heads is served, 16
as well as 128, and lists of keys over bf16 caches too. FlashMLA's caches of 656 bytes a key (512 of e4m3, 4 factors, 64
columns of bf16) are read as they are, dense too, if q is bf16. For other q the chosen keys are copied in q's dtype,
with a warning."""
import warnings

from .core.flags import flag
from .core.preparing import preparing
from .core.problem import whole
from .core.torch_state import refuse_gradients
from .ops.kvcache import attention_kvcache
from .adapters.errors import check_tensors, named

_CODES, _FACTORS, _TURNED = 512, 4, 64  # bytes, floats and columns of a key of 656 bytes
_KEY_BYTES = _CODES + 4 * _FACTORS + 2 * _TURNED
_INSTEAD = {"extra_k_cache": "attune attends to one cache", "extra_indices_in_kvcache": "attune attends to one cache",
            "extra_topk_length": "attune attends to one cache"}


def get_mla_metadata(*_arguments, **_keywords):
    """Returns (None, None), for the arguments tile_scheduler_metadata and num_splits: attune's kernels share the work
    of a call on the device."""
    return None, None


def flash_mla_with_kvcache(q, k_cache, block_table, cache_seqlens, head_dim_v, tile_scheduler_metadata=None,
                           num_splits=None, softmax_scale=None, causal=False, is_fp8_kvcache=False, indices=None,
                           attn_sink=None, extra_k_cache=None, extra_indices_in_kvcache=None, topk_length=None,
                           extra_topk_length=None):
    """Returns (out, lse) of latent attention over a paged cache.

    q: [batch, seqlen_q, num_heads, head_dim], bf16 or fp16 (CPU: fp32 too). k_cache: [pages, page_size, 1, head_dim] of
    q's dtype; with is_fp8_kvcache 656 bytes a key, of a dtype of one byte, and without `indices` q of bf16.
    head_dim_v: the columns that are values.
    block_table: int32 [batch, pages of a request], cache_seqlens: int32 [batch]. With `indices` they may be None.
    indices: int32 [batch, seqlen_q, topk], the keys that each row sees: page * page_size + index in the page; an entry
    that names no key, such as -1, is skipped. topk_length: int32 [batch], how many entries the rows of a request read.
    softmax_scale: 1 / sqrt(head_dim) if None. causal: a row does not see later rows' keys; not with `indices`.
    attn_sink: fp32 [num_heads]; out is multiplied by 1 / (1 + exp(attn_sink - lse)).
    tile_scheduler_metadata, num_splits: what get_mla_metadata() returned, not read.

    Returns out [batch, seqlen_q, num_heads, head_dim_v] and lse fp32 [batch, num_heads, seqlen_q], natural. A row that
    sees no key gets 0 and +inf. Has no gradients. Raises ValueError or TypeError for arguments that do not fit."""
    _refuse(extra_k_cache=extra_k_cache, extra_indices_in_kvcache=extra_indices_in_kvcache,
            extra_topk_length=extra_topk_length)
    check_tensors(dict(q=q, k_cache=k_cache), block_table=block_table, cache_seqlens=cache_seqlens, indices=indices,
                  topk_length=topk_length, attn_sink=attn_sink)
    columns, is_causal = whole("head_dim_v", head_dim_v), flag("causal", causal)
    if flag("is_fp8_kvcache", is_fp8_kvcache):
        k_cache, indices = _packed(q, k_cache, indices)
    given = dict(page_table=block_table, kv_lengths=cache_seqlens, is_causal=is_causal)
    if indices is None:
        if block_table is None or cache_seqlens is None or topk_length is not None:
            raise ValueError("indices is None; then block_table and cache_seqlens must be given, and topk_length not")
    else:
        if is_causal:
            raise ValueError("causal is True and indices is given; give one of the two: a list is what its row sees")
        counts = None if topk_length is None else _of_rows("topk_length", topk_length, q)
        given = dict(key_places=indices, key_counts=counts)
    return _attend(q, k_cache, columns, attn_sink, softmax_scale, given)


def flash_mla_sparse_fwd(q, kv, indices, sm_scale, d_v=512, attn_sink=None, topk_length=None, indexer_topk=0):
    """Returns (out, None, lse) of latent attention in which each row sees the keys that its list names.

    q: [rows, num_heads, head_dim], bf16 or fp16 (CPU: fp32 too). kv: [keys, 1, head_dim]. indices: int32 [rows, 1,
    topk]; entries below 0 or from `keys` on are skipped. topk_length: int32 [rows], how many entries a row reads.
    sm_scale, attn_sink (fp32 [num_heads]): as in flash_mla_with_kvcache(). indexer_topk: must be 0.

    Returns out [rows, num_heads, d_v] and lse fp32 [rows, num_heads], natural; +inf for a row that sees no key.
    FlashMLA's second result, the largest scores, is None."""
    if whole("indexer_topk", indexer_topk) != 0:
        raise ValueError(f"indexer_topk is {indexer_topk}; must be 0: attune computes one lse")
    check_tensors(dict(q=q, kv=kv, indices=indices), topk_length=topk_length, attn_sink=attn_sink)
    if q.dim() != 3 or kv.dim() != 3 or indices.dim() != 3 or indices.shape[1] != 1:
        shapes = f"q has shape {tuple(q.shape)}, kv {tuple(kv.shape)} and indices {tuple(indices.shape)}"
        raise ValueError(f"{shapes}; must be [rows, num_heads, head_dim], [keys, 1, head_dim] and [rows, 1, topk]")
    counts = None if topk_length is None else topk_length.unsqueeze(0)
    given = dict(key_places=indices.transpose(0, 1), key_counts=counts)
    out, lse = _attend(q.unsqueeze(0), kv.unsqueeze(0), whole("d_v", d_v), attn_sink, sm_scale, given)
    return out[0], None, lse[0].t()


def _refuse(**given):
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is given; must be None: {_INSTEAD[name]}")


def _of_rows(name, counts, q):
    """Returns counts of requests [batch] as counts of rows [batch, seqlen_q]."""
    if counts.shape != q.shape[:1]:
        raise ValueError(f"{name} has shape {tuple(counts.shape)}; must be {tuple(q.shape[:1])}, one for each request")
    return counts[:, None].expand(q.shape[:2]).contiguous()


def _attend(q, cache, columns, sink, scale, given):
    refuse_gradients((("q", q), ("k_cache", cache)))
    if not 0 < columns <= cache.shape[-1]:
        raise ValueError(f"head_dim_v is {columns}; must be 1 to {cache.shape[-1]}, the columns of the cache")
    theirs = {"page_table": "block_table", "kv_lengths": "cache_seqlens", "key_places": "indices",
              "key_counts": "topk_length", "scale": "softmax_scale"}
    import torch
    out = None
    if sink is not None:
        out = torch.empty((*q.shape[:3], columns), dtype=torch.float32, device=q.device)
    out, lse = named(theirs, attention_kvcache, q, cache, cache[..., :columns], out=out, scale=scale, return_lse=True,
                     **given)
    if preparing():
        return out, lse
    if sink is not None:
        share = torch.sigmoid(lse - sink[:, None]).transpose(1, 2)  # 1 / (1 + exp(sink - lse))
        out = torch.where(share[..., None] > 0, out * share[..., None], 0).to(q.dtype)
    return out, lse.masked_fill(lse == -torch.inf, torch.inf)


def _packed(q, k_cache, indices):
    """Returns a cache of 656 bytes a key, and indices, in the form that attention_kvcache() takes."""
    import torch
    if indices is None and q.dtype != torch.bfloat16:
        raise ValueError(f"is_fp8_kvcache is True, indices is None and q is {q.dtype}; q must be torch.bfloat16")
    if k_cache.dtype.itemsize != 1 or k_cache.dim() != 4 or k_cache.shape[2:] != (1, _KEY_BYTES):
        raise ValueError(f"k_cache is {k_cache.dtype} of shape {tuple(k_cache.shape)}; must be [pages, page_size, 1, "
                         f"{_KEY_BYTES}] of a dtype of one byte with is_fp8_kvcache")
    if q.dtype == torch.bfloat16:
        return k_cache.view(torch.float8_e4m3fn), indices
    return _widened(q, k_cache, indices)


def _widened(q, k_cache, indices):
    """Returns the keys that lists name as a cache [1 slot, keys, 1, head_dim] of q's dtype, and the places of the keys
    there."""
    import torch
    warnings.warn(f"flash_mla_with_kvcache copies the keys that `indices` names at each run, because its kernels read "
                  f"{q.dtype} and is_fp8_kvcache is True", stacklevel=4)
    keys = k_cache.shape[0] * k_cache.shape[1]
    is_key = (indices >= 0) & (indices < keys)
    chosen = indices.clamp(0, max(keys - 1, 0)).flatten().long()
    rows = k_cache.view(torch.uint8).reshape(keys, _KEY_BYTES)[chosen]
    codes = rows[:, :_CODES].view(torch.float8_e4m3fn).float().view(-1, _FACTORS, _CODES // _FACTORS)
    factors = rows[:, _CODES:-2 * _TURNED].contiguous().view(torch.float32)
    turned = rows[:, -2 * _TURNED:].contiguous().view(torch.bfloat16)
    wide = torch.cat([(codes * factors[:, :, None]).flatten(1).to(q.dtype), turned.to(q.dtype)], 1)
    places = torch.arange(chosen.numel(), dtype=torch.int32, device=q.device).view(indices.shape)
    return wide[None, :, None], torch.where(is_key, places, -1)
