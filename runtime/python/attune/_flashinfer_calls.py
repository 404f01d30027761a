# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's functions: of one request, of what is written into pages, and of states that are merged. See flashinfer.py."""
import math

from . import _flashinfer_lists as lists
from ._append import append_kv
from ._attention import attention
from ._cache_codes import write_codes
from ._flashinfer_wrappers import positions_of, window_of
from ._kvcache import attention_kvcache
from ._merge import merge


def _heads_last(k, v, kv_layout):
    """[keys, num_kv_heads, head_dim]."""
    return (k, v) if lists.check_layout(kv_layout) == "NHD" else (k.transpose(0, 1), v.transpose(0, 1))


def single_decode_with_kv_cache(q, k, v, kv_layout="NHD", pos_encoding_mode="NONE", use_tensor_cores=False, q_scale=None, k_scale=None, v_scale=None,
                                window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, return_lse=False):
    """One token of one request. q: [num_qo_heads, head_dim], k, v: [keys, num_kv_heads, head_dim], or HND. Returns out, as q; with return_lse (out, lse),
    lse fp32 [num_qo_heads] in base 2."""
    k, v = _heads_last(k, v, kv_layout)
    keywords, factor = lists.scales_of(q, k, sm_scale, q_scale, k_scale, v_scale)
    o, natural = attention_kvcache(q[None, None], k[None], v[None], window=window_of(window_left), softcap=logits_soft_cap or None, return_lse=True,
                                   **positions_of(pos_encoding_mode, q.shape[0], q.device, False, logits_soft_cap), **keywords)
    o = o[0, 0] if factor == 1 else o[0, 0].mul_(factor)
    return (o, lists.in_base_2(natural)[0, 0]) if return_lse else o


def _mask_of_one(custom_mask, packed_custom_mask, rows, keys, device):
    """bool [rows, keys]."""
    if packed_custom_mask is None:
        return custom_mask.bool().reshape(rows, keys)
    made = lists.mask_of(None, packed_custom_mask, [rows], [keys], device)
    return made["mask"][:rows * keys].reshape(rows, keys)


def single_prefill_with_kv_cache(q, k, v, scale_q=None, scale_k=None, scale_v=None, o_dtype=None, custom_mask=None, packed_custom_mask=None, causal=False,
                                 kv_layout="NHD", pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
                                 rope_scale=None, rope_theta=None, backend="auto", return_lse=False):
    """Rows of one request, the last at its last key. q: [rows, num_qo_heads, head_dim], k, v: [keys, num_kv_heads, head_dim], or HND; custom_mask: bool
    [rows, keys], True: seen, or packed_custom_mask: uint8, the same in bits, lowest first; either is in the place of causal. scale_q, scale_k,
    scale_v: float32 [num_heads] of tensors of 8 bits, whose out is of o_dtype. Returns out [rows, num_qo_heads, head_dim]; with return_lse (out, lse),
    lse fp32 [rows, num_qo_heads] in base 2. Gradients of q, k and v."""
    k, v = _heads_last(k, v, kv_layout)
    masked = custom_mask is not None or packed_custom_mask is not None
    causal = bool(causal) and not masked
    more = positions_of(pos_encoding_mode, q.shape[1], q.device, not causal, logits_soft_cap)
    if masked:
        more["mask_tensor"] = _mask_of_one(custom_mask, packed_custom_mask, q.shape[0], k.shape[0], q.device)
    if q.dtype.itemsize == 1:
        scales = (("q_scale", scale_q), ("k_scale", scale_k), ("v_scale", scale_v))
        more.update({name: 1.0 if scale is None else scale if scale.dim() == 0 else scale[None] for name, scale in scales}, out_dtype=o_dtype)
    elif not (scale_q is None and scale_k is None and scale_v is None):
        raise ValueError(f"scale_q, scale_k or scale_v is given and q is {q.dtype}; accepted are factors of 8-bit tensors")
    found = attention(q[None], k[None], v[None], "causal_bottom_right" if causal else None, window_of(window_left), sm_scale, None, bool(return_lse),
                      softcap=logits_soft_cap or None, **more)
    return (found[0][0], lists.in_base_2(found[1])[0]) if return_lse else found[0]


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


def merge_state(v_a, s_a, v_b, s_b):
    """Attention over the keys of two calls together. v: [rows, num_heads, head_dim], s: fp32 [rows, num_heads], their lse in base 2. Returns (v, s)."""
    o, lse = merge(v_a[None], lists.natural(s_a), v_b[None], lists.natural(s_b))
    return o[0], lists.in_base_2(lse)[0]


def merge_state_in_place(v, s, v_other, s_other, mask=None):
    """merge_state() into v and s. mask: bool [rows], of which rows; None: of all."""
    import torch
    merged_v, merged_s = merge_state(v, s, v_other, s_other)
    if mask is not None:
        merged_v, merged_s = torch.where(mask.bool()[:, None, None], merged_v, v), torch.where(mask.bool()[:, None], merged_s, s)
    v.copy_(merged_v)
    s.copy_(merged_s)


def merge_states(v, s):
    """merge_state() of several: v: [rows, states, num_heads, head_dim], s: fp32 [rows, states, num_heads]. Sums are fp32, rounded once."""
    import torch
    if v.dim() != 4 or v.shape[1] == 0:
        raise ValueError(f"v has shape {tuple(v.shape)}; accepted is [rows, states, num_heads, head_dim], of 1 state and more")
    o, lse = v[None, :, 0].to(torch.float32, copy=True), lists.natural(s[:, 0])
    o.masked_fill_(lse.transpose(1, 2)[..., None] == -math.inf, 0)  # which has seen no key
    for state in range(1, v.shape[1]):
        o, lse = merge(o, lse, v[None, :, state], lists.natural(s[:, state]), out=o, lse_out=lse)
    return o[0].to(v.dtype), lists.in_base_2(lse)[0]
