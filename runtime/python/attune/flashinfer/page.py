# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's functions that write rows into pages. See __init__.py."""
from ..core.preparing import copied
from ..core.torch_state import refuse_gradients
from ..ops.append import append_kv
from ..adapters.errors import named
from ..adapters.lists import write_codes
from . import arguments
from . import lists


def get_seq_lens(kv_indptr, kv_last_page_len, page_size):
    """Returns the number of keys of each request, int32 [batch], on the lists' device."""
    arguments.check_integers("kv_indptr", kv_indptr, "[batch + 1]")
    arguments.check_integers("kv_last_page_len", kv_last_page_len, "[batch]")
    return lists.lengths_of(kv_indptr, kv_last_page_len, arguments.count("page_size", page_size)).int()


def get_batch_indices_positions(append_indptr, seq_lens, nnz, batch_indices=None, positions=None):
    """Returns the request and the position of each new row, both int32 [nnz].

    The rows of request i are append_indptr[i] to append_indptr[i + 1]; its last row is at key seq_lens[i] - 1. Rows
    after the last request get -1. batch_indices, positions: the tensors to write, or None for new ones. Does not wait
    for the device."""
    import torch
    arguments.check_integers("append_indptr", append_indptr, "[batch + 1]")
    arguments.check_integers("seq_lens", seq_lens, "[batch]")
    if seq_lens.numel() != max(append_indptr.numel() - 1, 0):
        raise ValueError(
            f"append_indptr has shape {tuple(append_indptr.shape)} and seq_lens {tuple(seq_lens.shape)}; must be "
            f"[batch + 1] and [batch]")
    rows = torch.arange(arguments.count("nnz", nnz, 0), device=append_indptr.device, dtype=torch.int64)
    for name, given in (("batch_indices", batch_indices), ("positions", positions)):
        arguments.buffer(name, given, rows.shape, torch.int32, rows.device)
    begins = append_indptr.long()
    requests = torch.searchsorted(begins[1:].contiguous(), rows, right=True)
    inside = requests < begins.numel() - 1
    requests = requests.clamp(max=max(begins.numel() - 2, 0))
    at = seq_lens.to(rows.device).long()[requests] - (begins[1:][requests] - rows)
    found = [torch.where(inside, x, -1).int() for x in (requests, at)]
    for place, given in enumerate((batch_indices, positions)):
        if given is not None:
            found[place] = copied(given, found[place])
    return tuple(found)


def _slots_of(batch_indices, positions, kv_indices, kv_indptr, page_size):
    """Returns the place of each row, page * page_size + key of the page; -1 if its request has no such page."""
    import torch
    at, of = positions.long(), batch_indices.long()
    requests = kv_indptr.numel() - 1
    known = (of >= 0) & (of < requests) & (at >= 0)
    of, at = torch.where(known, of, 0), torch.where(known, at, 0)
    page = kv_indptr.long()[of] + at // page_size
    known &= (page < kv_indptr.long()[of + 1]) & (page < kv_indices.numel())
    pages = kv_indices.long()[torch.where(known, page, 0)]
    return torch.where(known, pages * page_size + at % page_size, -1)


def _check_lists(batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len, rows):
    """Raises if a list has a wrong type or length. kv_last_page_len may be None, because the other lists determine it.
    """
    given = dict(batch_indices=batch_indices, positions=positions, kv_indices=kv_indices, kv_indptr=kv_indptr)
    for name, values in given.items() if kv_last_page_len is None else (*given.items(), ("kv_last_page_len",
                                                                                         kv_last_page_len)):
        arguments.check_integers(name, values, {
            "kv_indptr": "[batch + 1]", "kv_indices": "[pages]", "kv_last_page_len": "[batch]"}.get(name, "[nnz]"))
    for name in ("batch_indices", "positions"):
        if given[name].shape[0] != rows:
            raise ValueError(
                f"{name} has {given[name].shape[0]} elements; must be {rows}, one per appended row")
    if kv_last_page_len is not None and kv_last_page_len.shape[0] != max(kv_indptr.shape[0] - 1, 0):
        raise ValueError(
            f"kv_last_page_len has shape {tuple(kv_last_page_len.shape)} and kv_indptr {tuple(kv_indptr.shape)}; must "
            f"be [batch] and [batch + 1]")


def _check_rows(named, caches):
    """Raises if rows do not fit their caches. Both are tensors by name."""
    for (name, rows), (name_of_cache, cache) in zip(named.items(), caches.items()):
        if rows.shape[1:] != cache.shape[2:] or rows.shape[0] != next(iter(
                named.values())).shape[0] or rows.device != cache.device:
            first, count = next((one, given.shape[0]) for one, given in named.items())
            raise ValueError(
                f"{name} has shape {tuple(rows.shape)} on {rows.device}; must be {(count, *cache.shape[2:])} on "
                f"{cache.device} (rows as {first}, other axes as {name_of_cache})")


def _write(names, k, v, k_cache, v_cache, batch_indices, positions, kv_indices, kv_indptr):
    refuse_gradients(zip(names.values(), (k, v, k_cache, v_cache)))
    if k.shape[0] == 0 or kv_indptr.numel() < 2 or kv_indices.numel() == 0:
        return
    slots = _slots_of(batch_indices, positions, kv_indices, kv_indptr, k_cache.shape[1])
    if k.dtype == k_cache.dtype and k.dtype.itemsize == 1:
        for cache, new in ((k_cache, k), (v_cache, v)):
            write_codes(cache, new, slots)
        return
    scales = {name: 1.0 for name in ("k_scale", "v_scale")} if k_cache.dtype.itemsize == 1 else {}
    named(names, append_kv, k, v, k_cache, v_cache, row_slots=slots, positions=positions.long(), **scales)


def append_paged_kv_cache(append_key, append_value, batch_indices, positions, paged_kv_cache, kv_indices, kv_indptr,
                          kv_last_page_len, kv_layout="NHD"):
    """Writes rows [nnz, num_kv_heads, head_dim] into the pages of their requests. Returns None.

    Row i becomes key positions[i] of request batch_indices[i]; both are int32 [nnz], made by
    get_batch_indices_positions(). Pages: as in BatchDecodeWithPagedKVCacheWrapper. Into an 8-bit cache 16-bit rows are
    rounded; rows of the cache's dtype are written unchanged. A row whose request has no page for it is not written."""
    k_cache, v_cache = lists.caches_of(paged_kv_cache, lists.check_layout(kv_layout))
    for name, rows in (("append_key", append_key), ("append_value", append_value)):
        arguments.floats_or_codes(name, rows, "[nnz, num_kv_heads, head_dim]")
    _check_rows(dict(append_key=append_key, append_value=append_value),
                {"K of paged_kv_cache": k_cache, "V of paged_kv_cache": v_cache})
    _check_lists(batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len, append_key.shape[0])
    names = {"k": "append_key", "v": "append_value", "k_cache": "paged_kv_cache", "v_cache": "paged_kv_cache"}
    _write(names, append_key, append_value, k_cache, v_cache, batch_indices, positions, kv_indices, kv_indptr)


def append_paged_mla_kv_cache(append_ckv, append_kpe, batch_indices, positions, ckv_cache, kpe_cache, kv_indices,
                              kv_indptr, kv_last_page_len):
    """Writes latent vectors [nnz, head_dim_ckv] and rotated columns [nnz, head_dim_kpe] into ckv_cache and kpe_cache
    [pages, page_size, ..], like append_paged_kv_cache(). Returns None."""
    rows, caches = dict(append_ckv=append_ckv, append_kpe=append_kpe), dict(ckv_cache=ckv_cache, kpe_cache=kpe_cache)
    for wanted, named in (("[nnz, columns]", rows), ("[pages, page_size, columns]", caches)):
        for name, given in named.items():
            arguments.floats_or_codes(name, given, wanted)
    _check_rows(rows, caches)
    _check_lists(batch_indices, positions, kv_indices, kv_indptr, kv_last_page_len, append_ckv.shape[0])
    names = {"k": "append_ckv", "v": "append_kpe", "k_cache": "ckv_cache", "v_cache": "kpe_cache"}
    _write(names, append_ckv[:, None], append_kpe[:, None], ckv_cache.unsqueeze(2), kpe_cache.unsqueeze(2),
           batch_indices, positions, kv_indices, kv_indptr)
