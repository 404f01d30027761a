# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's prompts: rows of requests end to end over pages, or with keys that are in no cache yet, and of one request. See __init__.py."""
import functools

from . import _lists as lists
from .._attention import attention
from .._flags import flag
from ._wrapper import Wrapper, positions_of, refuse_items, window_of


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
    k, v = lists.heads_last(k, v, kv_layout)
    masked = custom_mask is not None or packed_custom_mask is not None
    causal = flag("causal", causal) and not masked
    more = positions_of(pos_encoding_mode, q.shape[1], q.device, not causal, logits_soft_cap)
    if masked:
        more["mask_tensor"] = _mask_of_one(custom_mask, packed_custom_mask, q.shape[0], k.shape[0], q.device)
    if q.dtype.itemsize == 1:
        scales = (("q_scale", scale_q), ("k_scale", scale_k), ("v_scale", scale_v))
        more.update({name: 1.0 if scale is None else scale if scale.dim() == 0 else scale[None] for name, scale in scales}, out_dtype=o_dtype)
    elif not (scale_q is None and scale_k is None and scale_v is None):
        raise ValueError(f"scale_q, scale_k or scale_v is given and q is {q.dtype}; accepted are factors of 8-bit tensors")
    found = attention(q[None], k[None], v[None], "causal_bottom_right" if causal else None, window_of(window_left), sm_scale, None, flag("return_lse", return_lse),
                      softcap=logits_soft_cap or None, **more)
    return (found[0][0], lists.in_base_2(found[1])[0]) if return_lse else found[0]


single_prefill_with_kv_cache_return_lse = functools.partial(single_prefill_with_kv_cache, return_lse=True)


class _Prefill(Wrapper):
    """Rows of requests end to end."""

    def _masked(self, made, custom_mask, packed_custom_mask, qo_indptr, key_counts, causal, device):
        """Whether rows are causal. A mask of the caller's is in the place of that."""
        causal = flag("causal", causal)
        if custom_mask is None and packed_custom_mask is None:
            return causal
        begins = lists.on_host(qo_indptr)
        held = None if self._held is None else self._held.get("mask")
        room = held.shape[0] if self._follows and held is not None else 0
        made.update(lists.mask_of(custom_mask, packed_custom_mask, begins[1:] - begins[:-1], key_counts, device, room))
        return False


class BatchPrefillWithPagedKVCacheWrapper(_Prefill):
    """Several tokens of each request over pages, the last at the request's last key. With use_cuda_graph run() may be captured, and the graph follows later
    plans of as many requests, and of no more rows, pages and elements of a mask than the first has (most_pages: or of as many pages each)."""

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None, paged_kv_indptr_buf=None,
                 paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None, custom_mask_buf=None, mask_indptr_buf=None, backend="auto", jit_args=None,
                 jit_kwargs=None, *, most_pages=None):
        self._layout = lists.check_layout(kv_layout)
        super().__init__(float_workspace_buffer, use_cuda_graph, jit_args, most_pages)

    def plan(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim_qk, page_size, head_dim_vo=None,
             custom_mask=None, packed_custom_mask=None, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1,
             logits_soft_cap=None, rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None, o_data_type=None, non_blocking=True,
             prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0, max_item_len_ptr=None, seq_lens=None, seq_lens_q=None,
             block_tables=None, max_token_per_sequence=None, max_sequence_kv=None, fixed_split_size=None, disable_split_kv=False):
        """qo_indptr: int32 [batch + 1], where the rows of each request begin; the lists of pages as of BatchDecodeWithPagedKVCacheWrapper. custom_mask:
        bool, of each request its rows times its keys, end to end, True: seen; packed_custom_mask: uint8, the same in bits, lowest first, each
        request's from a byte on; either is in the place of causal."""
        refuse_items(prefix_len_ptr=prefix_len_ptr, token_pos_in_items_ptr=token_pos_in_items_ptr, max_item_len_ptr=max_item_len_ptr)
        device = lists.device_of(self._workspace, qo_indptr, paged_kv_indptr, paged_kv_indices)
        made = self._pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, seq_lens, device, block_tables)
        self._add_rows(made, qo_indptr, device)
        causal = self._masked(made, custom_mask, packed_custom_mask, qo_indptr, made["kv_lengths"], causal, device)
        self._choose(made, num_qo_heads, num_kv_heads, (head_dim_qk, head_dim_vo or head_dim_qk), page_size, pos_encoding_mode, not causal, window_left,
                     logits_soft_cap, sm_scale, fixed_split_size or flag("disable_split_kv", disable_split_kv), device, causal, o_data_type)

    def run(self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False, enable_pdl=None, window_left=None,
            sinks=None):
        """q: [rows, num_qo_heads, head_dim_qk]; paged_kv_cache as of BatchDecodeWithPagedKVCacheWrapper. Returns out [rows, num_qo_heads, head_dim_vo];
        with return_lse (out, lse), lse fp32 [rows, num_qo_heads] in base 2."""
        return self._over_pages(q, paged_kv_cache, args, (q_scale, k_scale, v_scale), window_left=window_left, sinks=sinks, out=out, lse=lse, return_lse=return_lse)

    def _over_pages(self, q, paged_kv_cache, of_jit, scales, **given):
        k, v = lists.caches_of(paged_kv_cache, self._layout)
        self._check(q, k, v, of_jit)
        found = self._attend(q, k, v, self._lists(), scales, **given)
        return found if given.get("return_lse") else found[0]

    begin_forward = plan


class BatchPrefillWithRaggedKVCacheWrapper(_Prefill):
    """Rows of requests end to end, with their keys end to end: in no cache yet."""

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None, kv_indptr_buf=None, custom_mask_buf=None,
                 mask_indptr_buf=None, backend="auto", jit_args=None, jit_kwargs=None):
        self._layout = lists.check_layout(kv_layout)
        super().__init__(float_workspace_buffer, use_cuda_graph, jit_args)

    def plan(self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None, custom_mask=None, packed_custom_mask=None, causal=False,
             pos_encoding_mode="NONE", use_fp16_qk_reduction=False, window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None,
             q_data_type="float16", kv_data_type=None, o_data_type=None, non_blocking=True, prefix_len_ptr=None, token_pos_in_items_ptr=None,
             token_pos_in_items_len=0, max_item_len_ptr=None, fixed_split_size=None, disable_split_kv=False, seq_lens=None, seq_lens_q=None,
             max_token_per_sequence=None, max_sequence_kv=None, v_indptr=None, o_indptr=None):
        """qo_indptr, kv_indptr: int32 [batch + 1], where the rows and the keys of each request begin. Masks as of BatchPrefillWithPagedKVCacheWrapper."""
        refuse_items(prefix_len_ptr=prefix_len_ptr, token_pos_in_items_ptr=token_pos_in_items_ptr, max_item_len_ptr=max_item_len_ptr, v_indptr=v_indptr,
                     o_indptr=o_indptr)
        device = lists.device_of(self._workspace, qo_indptr, kv_indptr)
        made = {**lists.rows_of(qo_indptr, device, "qo_indptr", "q_begins", "seqlen_q"), **lists.rows_of(kv_indptr, device, "kv_indptr", "kv_begins", "seqlen_kv")}
        if made["q_begins"].shape != made["kv_begins"].shape:
            raise ValueError(f"qo_indptr has {made['q_begins'].shape[0]} numbers and kv_indptr {made['kv_begins'].shape[0]}; accepted are as many")
        begins = lists.on_host(kv_indptr)
        causal = self._masked(made, custom_mask, packed_custom_mask, qo_indptr, begins[1:] - begins[:-1], causal, device)
        self._choose(made, num_qo_heads, num_kv_heads, (head_dim_qk, head_dim_vo or head_dim_qk), None, pos_encoding_mode, not causal, window_left,
                     logits_soft_cap, sm_scale, fixed_split_size or flag("disable_split_kv", disable_split_kv), device, causal, o_data_type)

    def run(self, q, k, v, *args, q_scale=None, k_scale=None, v_scale=None, o_scale=None, out=None, lse=None, return_lse=False, enable_pdl=None):
        """q: [rows, num_qo_heads, head_dim_qk], k: [keys, num_kv_heads, head_dim_qk], v: [keys, num_kv_heads, head_dim_vo] (HND: [num_kv_heads, keys, ..]).
        Returns as BatchPrefillWithPagedKVCacheWrapper.run()."""
        if o_scale not in (None, 1):
            raise ValueError(f"o_scale is {o_scale}; accepted are None and 1.0: out has 16 bits")
        if self._layout == "HND":
            k, v = k.transpose(0, 1), v.transpose(0, 1)
        self._check(q, k, v, args)
        given = self._lists()
        given["seqlen_kv"] = min(given["seqlen_kv"], k.shape[0])
        found = self._attend(q, k, v, given, (q_scale, k_scale, v_scale), out=out, lse=lse, return_lse=return_lse)
        return found if return_lse else found[0]

    begin_forward = plan
