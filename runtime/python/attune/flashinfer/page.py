# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's pages: what is written into them. See __init__.py."""
from . import _lists as lists
from .._append import append_kv
from .._cache_codes import write_codes


def get_seq_lens(kv_indptr, kv_last_page_len, page_size):
    """Keys of each request, int32 [batch], where its lists are."""
    return lists.lengths_of(kv_indptr, kv_last_page_len, page_size).int()


def get_batch_indices_positions(append_indptr, seq_lens, nnz, batch_indices=None, positions=None):
    """The request of each new row, and its position: rows of request i are append_indptr[i] to append_indptr[i + 1], the last at key seq_lens[i] - 1. Both
    int32 [nnz], new or the given tensors; -1 in rows behind the last request's. Nothing waits for the device."""
    import torch
    rows = torch.arange(nnz, device=append_indptr.device, dtype=torch.int64)
    begins = append_indptr.long()
    requests = torch.searchsorted(begins[1:].contiguous(), rows, right=True)
    inside = requests < begins.numel() - 1
    requests = requests.clamp(max=max(begins.numel() - 2, 0))
    at = seq_lens.to(rows.device).long()[requests] - (begins[1:][requests] - rows)
    found = [torch.where(inside, x, -1).int() for x in (requests, at)]
    for place, given in enumerate((batch_indices, positions)):
        if given is not None:
            found[place] = given.copy_(found[place])
    return tuple(found)


def _slots_of(batch_indices, positions, kv_indices, kv_indptr, page_size):
    """Where each row goes, page * page_size + key of the page; -1 where the request has no such page."""
    import torch
    at, of = positions.long(), batch_indices.long()
    requests = kv_indptr.numel() - 1
    known = (of >= 0) & (of < requests) & (at >= 0)
    of, at = torch.where(known, of, 0), torch.where(known, at, 0)
    page = kv_indptr.long()[of] + at // page_size
    known &= (page < kv_indptr.long()[of + 1]) & (page < kv_indices.numel())
    pages = kv_indices.long()[torch.where(known, page, 0)]
    return torch.where(known, pages * page_size + at % page_size, -1)


def _write(k, v, k_cache, v_cache, batch_indices, positions, kv_indices, kv_indptr):
    if k.shape[0] == 0 or kv_indptr.numel() < 2 or kv_indices.numel() == 0:
        return
    slots = _slots_of(batch_indices, positions, kv_indices, kv_indptr, k_cache.shape[1])
    if k.dtype == k_cache.dtype and k.dtype.itemsize == 1:
        for cache, new in ((k_cache, k), (v_cache, v)):
            write_codes(cache, new, slots)
        return
    scales = {name: 1.0 for name in ("k_scale", "v_scale")} if k_cache.dtype.itemsize == 1 else {}
    append_kv(k, v, k_cache, v_cache, row_slots=slots, positions=positions.long(), **scales)


def append_paged_kv_cache(append_key, append_value, batch_indices, positions, paged_kv_cache, kv_indices, kv_indptr, kv_last_page_len, kv_layout="NHD"):
    """Writes rows [nnz, num_kv_heads, head_dim] into the pages of their requests, row i at key positions[i] of request batch_indices[i] (int32 [nnz],
    get_batch_indices_positions() makes both). Pages as of BatchDecodeWithPagedKVCacheWrapper. Into a cache of 8 bits rows of 16 are rounded; rows of its
    own type are written as they stand. A row whose request has no page for it is not written. kv_last_page_len is not looked at."""
    k_cache, v_cache = lists.caches_of(paged_kv_cache, lists.check_layout(kv_layout))
    _write(append_key, append_value, k_cache, v_cache, batch_indices, positions, kv_indices, kv_indptr)


def append_paged_mla_kv_cache(append_ckv, append_kpe, batch_indices, positions, ckv_cache, kpe_cache, kv_indices, kv_indptr, kv_last_page_len):
    """The same of latent vectors [nnz, head_dim_ckv] and turned columns [nnz, head_dim_kpe], into ckv_cache and kpe_cache [pages, page_size, ..]."""
    _write(append_ckv[:, None], append_kpe[:, None], ckv_cache.unsqueeze(2), kpe_cache.unsqueeze(2), batch_indices, positions, kv_indices, kv_indptr)
