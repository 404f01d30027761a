# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's functions for prompts: packed rows over pages, packed rows over keys that are not in a cache yet, and
one request. See __init__.py."""
import functools

from ..ops.attention import attention
from . import arguments
from . import lists
from . import masks
from .wrapper import Wrapper, features_of, window_of


def _mask_of_one(custom_mask, packed_custom_mask, rows, keys, device):
    """Returns a mask as bool [rows, keys]."""
    made = masks.bools_of(custom_mask, packed_custom_mask, *(lists.on_host([n]) for n in (rows, keys)), device=device)
    return made.reshape(rows, keys)


def _factors_of_codes(q, scale_q, scale_k, scale_v, o_dtype):
    """Returns keywords of attention() for 8-bit tensors. Raises if such arguments are given for other tensors."""
    scales = (("scale_q", scale_q), ("scale_k", scale_k), ("scale_v", scale_v))
    for name, scale in scales:
        if scale is not None and q.dtype.itemsize != 1:
            raise ValueError(f"{name} is given and q is {q.dtype}; must be None: only 8-bit tensors have factors")
        if scale is not None and (not hasattr(scale, "dim") or scale.dim() > 1):
            raise ValueError(
                f"{name} is {tuple(scale.shape) if hasattr(scale, 'shape') else scale!r}; must be a float32 tensor "
                f"[num_heads]")
    wanted = arguments.dtype_of("o_dtype", o_dtype)
    if q.dtype.itemsize == 1:
        factors = {
            f"{name[-1]}_scale": 1.0 if scale is None else scale if scale.dim() == 0 else scale[None]
            for name, scale in scales}
        return dict(factors, out_dtype=wanted)
    if wanted not in (None, q.dtype):
        raise ValueError(f"o_dtype is {wanted} and q is {q.dtype}; must be None or q's dtype")
    return {}


def single_prefill_with_kv_cache(q, k, v, scale_q=None, scale_k=None, scale_v=None, o_dtype=None, custom_mask=None,
                                 packed_custom_mask=None, causal=False, kv_layout="NHD", pos_encoding_mode="NONE",
                                 use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
                                 rope_scale=None, rope_theta=None, backend="auto", return_lse=False, kv_cache_sf=None,
                                 k_scale=None, v_scale=None):
    """Returns attention of the rows of one request, the last at its last key. Gradients: of q, k and v.

    q: [rows, num_qo_heads, head_dim], k, v: [keys, num_kv_heads, head_dim], or HND. custom_mask: bool [rows, keys], or
    flat, True: seen. packed_custom_mask: uint8, the same in bits, lowest first. Either mask replaces causal.
    scale_q, scale_k, scale_v: float32 [num_heads], for 8-bit tensors, whose out is of o_dtype. k_scale, v_scale:
    numbers that k and v are multiplied by.
    Returns out [rows, num_qo_heads, head_dim]; with return_lse (out, lse), lse fp32 [rows, num_qo_heads] in base 2."""
    arguments.nothing(kv_cache_sf=kv_cache_sf)
    arguments.hints(flags=(("use_fp16_qk_reduction", use_fp16_qk_reduction),), words=(("backend", backend),))
    arguments.rotary(rope_scale, rope_theta)
    arguments.floats_or_codes("q", q, "[rows, num_qo_heads, head_dim]")
    k, v = lists.heads_last(k, v, kv_layout)
    masked = custom_mask is not None or packed_custom_mask is not None
    causal, return_lse = arguments.flag("causal", causal) and not masked, arguments.flag("return_lse", return_lse)
    more = features_of(pos_encoding_mode, q.shape[1], q.device, not causal, logits_soft_cap)
    if masked:
        more["mask_tensor"] = _mask_of_one(custom_mask, packed_custom_mask, q.shape[0], k.shape[0], q.device)
    more.update(_factors_of_codes(q, scale_q, scale_k, scale_v, o_dtype))
    scale = arguments.scale_of("sm_scale", sm_scale)
    if k_scale is not None:
        scale = (q.shape[-1] ** -0.5 if scale is None else scale) * arguments.number("k_scale", k_scale, above=0)
    factor = 1 if v_scale is None else arguments.number("v_scale", v_scale)
    found = attention(q[None], k[None], v[None], "causal_bottom_right" if causal else None, window_of(window_left),
                      scale, None, return_lse, **more)
    o, lse = found if return_lse else (found, None)
    o = o[0] if factor == 1 else o[0] * factor
    return (o, lists.in_base_2(lse)[0]) if return_lse else o


single_prefill_with_kv_cache_return_lse = functools.partial(single_prefill_with_kv_cache, return_lse=True)


class _Prefill(Wrapper):
    """The base of wrappers for packed rows."""

    def _masked(self, made, custom_mask, packed_custom_mask, row_counts, key_counts, causal, device):
        """Adds the caller's mask to `made`. Returns (causal, (bytes, begins) of the mask for the caller's buffers). A
        mask replaces causal."""
        causal = arguments.flag("causal", causal)
        if custom_mask is None and packed_custom_mask is None:
            return causal, (None, None)
        held = None if self._held is None else self._held.get("mask")
        room = held.shape[0] if self._follows and held is not None else 0
        made.update(masks.mask_of(custom_mask, packed_custom_mask, row_counts, key_counts, device, room))
        wanted = any(name in self._buffers for name in ("custom_mask_buf", "mask_indptr_buf"))
        return False, masks.packed_of(made, row_counts * key_counts) if wanted else (None, None)

    def _of_forward(self, causal, pos_encoding_mode, use_fp16_qk_reduction, window_left, logits_soft_cap, sm_scale,
                    rope_scale, rope_theta):
        """Sets the choices of forward() for the plan. The plan's mask still replaces causal."""
        arguments.hints(flags=(("use_fp16_qk_reduction", use_fp16_qk_reduction),))
        causal = arguments.flag("causal", causal) and self._mask is None
        self._rechoose(causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta,
                       not causal)


class BatchPrefillWithPagedKVCacheWrapper(_Prefill):
    """Several tokens per request over pages, the last at the request's last key.

    With use_cuda_graph run() may be captured. The graph follows later plans with as many requests, and with no more
    rows, pages and mask elements than the first plan has (with most_pages: no more pages per request)."""
    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None,
                 paged_kv_indptr_buf=None, paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None,
                 custom_mask_buf=None, mask_indptr_buf=None, backend="auto", jit_args=None, jit_kwargs=None, *,
                 most_pages=None):
        self._layout = lists.check_layout(kv_layout)
        arguments.nothing(jit_kwargs=jit_kwargs)
        buffers = dict(qo_indptr_buf=qo_indptr_buf, paged_kv_indptr_buf=paged_kv_indptr_buf,
                       paged_kv_indices_buf=paged_kv_indices_buf, paged_kv_last_page_len_buf=paged_kv_last_page_len_buf,
                       custom_mask_buf=custom_mask_buf, mask_indptr_buf=mask_indptr_buf)
        super().__init__(float_workspace_buffer, use_cuda_graph, jit_args, most_pages, buffers, backend)

    def plan(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
             head_dim_qk, page_size, head_dim_vo=None, custom_mask=None, packed_custom_mask=None, causal=False,
             pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
             rope_scale=None, rope_theta=None, q_data_type=None, kv_data_type=None, o_data_type=None, non_blocking=True,
             prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0, max_item_len_ptr=None,
             seq_lens=None, seq_lens_q=None, block_tables=None, max_token_per_sequence=None, max_sequence_kv=None,
             fixed_split_size=None, disable_split_kv=False):
        """Sets the lists and choices of later runs.

        qo_indptr: int32 [batch + 1], the first row of each request and the end of the last. The lists of pages and the
        dtypes are as in BatchDecodeWithPagedKVCacheWrapper.
        custom_mask: bool, flat: [rows, keys] of each request, end to end; True shows the key. packed_custom_mask:
        uint8, the same as bits, lowest bit first; each request begins with a new byte. Either mask replaces causal.
        seq_lens_q: the rows of each request. max_token_per_sequence, max_sequence_kv: bounds of rows and keys per
        request. All three are only checked against the lists."""
        arguments.no_items(token_pos_in_items_len, prefix_len_ptr=prefix_len_ptr,
                           token_pos_in_items_ptr=token_pos_in_items_ptr, max_item_len_ptr=max_item_len_ptr)
        arguments.hints(flags=(("use_fp16_qk_reduction", use_fp16_qk_reduction), ("non_blocking", non_blocking)))
        arguments.rotary(rope_scale, rope_theta)
        device = lists.device_of(self._workspace, qo_indptr, paged_kv_indptr, paged_kv_indices)
        made, pages = self._pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, seq_lens,
                                  device, block_tables)
        begins, key_counts = arguments.integers("qo_indptr", qo_indptr), lists.on_host(made["kv_lengths"]).long()
        made.update(
            lists.rows_of(begins, device, "qo_indptr", "q_begins", "seqlen_q", (key_counts.numel(), "paged_kv_indptr")))
        row_counts = begins.diff()
        lists.check_counts("seq_lens_q", seq_lens_q, row_counts, "qo_indptr")
        lists.check_bounds(max_token_per_sequence, max_sequence_kv, row_counts, key_counts)
        causal, (mask_bytes, mask_begins) = self._masked(made, custom_mask, packed_custom_mask, row_counts, key_counts,
                                                         causal, device)
        buffers = self._room_in_buffers(
            qo_indptr_buf=qo_indptr, paged_kv_indptr_buf=paged_kv_indptr, paged_kv_indices_buf=paged_kv_indices,
            paged_kv_last_page_len_buf=paged_kv_last_page_len, custom_mask_buf=mask_bytes, mask_indptr_buf=mask_begins)
        self._choose(made, num_qo_heads, num_kv_heads,
                     (head_dim_qk, head_dim_qk if head_dim_vo is None else head_dim_vo), page_size,
                     pos_encoding_mode=pos_encoding_mode, looks_ahead=not causal, window_left=window_left,
                     logits_soft_cap=logits_soft_cap, sm_scale=sm_scale, invariant=arguments.splits(
                         fixed_split_size, disable_split_kv), device=device, causal=causal,
                     types=(q_data_type, kv_data_type, o_data_type), least=(int(begins[-1]), pages), buffers=buffers)

    def run(self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None,
            return_lse=False, enable_pdl=None, window_left=None, sinks=None, kv_cache_sf=None,
            skip_softmax_threshold_scale_factor=None, use_fp16_softmax=None, uses_spcompress=None):
        """Returns out [rows, num_qo_heads, head_dim_vo]; with return_lse (out, lse), lse fp32 [rows, num_qo_heads] in
        base 2.

        q: [rows, num_qo_heads, head_dim_qk]. paged_kv_cache, kv_cache_sf: as in BatchDecodeWithPagedKVCacheWrapper.
        out, lse: tensors to write; lse is written without return_lse too."""
        arguments.hints(flags=(("enable_pdl", enable_pdl), ("use_fp16_softmax", use_fp16_softmax), ("uses_spcompress",
                                                                                                    uses_spcompress)))
        arguments.nothing(skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        return self._over_pages(q, paged_kv_cache, args, (q_scale, k_scale, v_scale), window_left=window_left,
                                sinks=sinks, out=out, lse=lse, return_lse=return_lse,
                                groups=lists.groups_of(kv_cache_sf, self._layout))

    def _over_pages(self, q, paged_kv_cache, of_jit, scales, *, out, lse, return_lse, **given):
        k, v = lists.caches_of(paged_kv_cache, self._layout)
        self._check(q, k, v, of_jit, out, lse, groups=given.get("groups"))
        found = self._attend(q, k, v, self._lists(), scales, out=out, lse=lse, return_lse=return_lse, **given)
        return found if return_lse else found[0]

    def forward(self, q, paged_kv_cache, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
                k_scale=None, v_scale=None, window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None,
                rope_theta=None, *, _return_lse=False):
        """Calls run() with other choices, which stay for later runs of the plan."""
        self._of_forward(causal, pos_encoding_mode, use_fp16_qk_reduction, window_left, logits_soft_cap, sm_scale,
                         rope_scale, rope_theta)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=_return_lse)

    def forward_return_lse(self, q, paged_kv_cache, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
                           k_scale=None, v_scale=None, window_left=-1, logits_soft_cap=None, sm_scale=None,
                           rope_scale=None, rope_theta=None):
        """Calls forward(). Returns (out, lse)."""
        return self.forward(q, paged_kv_cache, causal, pos_encoding_mode, use_fp16_qk_reduction, k_scale, v_scale,
                            window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta, _return_lse=True)

    begin_forward = plan


class BatchPrefillWithRaggedKVCacheWrapper(_Prefill):
    """Packed rows with packed keys that are not in a cache yet."""

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None,
                 kv_indptr_buf=None, custom_mask_buf=None, mask_indptr_buf=None, backend="auto", jit_args=None,
                 jit_kwargs=None):
        self._layout = lists.check_layout(kv_layout)
        arguments.nothing(jit_kwargs=jit_kwargs)
        buffers = dict(qo_indptr_buf=qo_indptr_buf, kv_indptr_buf=kv_indptr_buf, custom_mask_buf=custom_mask_buf,
                       mask_indptr_buf=mask_indptr_buf)
        super().__init__(float_workspace_buffer, use_cuda_graph, jit_args, None, buffers, backend)

    def plan(self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None, custom_mask=None,
             packed_custom_mask=None, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
             window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, q_data_type=None,
             kv_data_type=None, o_data_type=None, non_blocking=True, prefix_len_ptr=None, token_pos_in_items_ptr=None,
             token_pos_in_items_len=0, max_item_len_ptr=None, fixed_split_size=None, disable_split_kv=False,
             seq_lens=None, seq_lens_q=None, max_token_per_sequence=None, max_sequence_kv=None, v_indptr=None,
             o_indptr=None):
        """Sets the lists and choices of later runs.

        qo_indptr, kv_indptr: int32 [batch + 1], the first row and the first key of each request, and the ends of the
        last. Masks, dtypes and bounds: as in BatchPrefillWithPagedKVCacheWrapper. seq_lens: keys of each request, which
        must agree with kv_indptr."""
        arguments.no_items(token_pos_in_items_len, prefix_len_ptr=prefix_len_ptr,
                           token_pos_in_items_ptr=token_pos_in_items_ptr, max_item_len_ptr=max_item_len_ptr)
        arguments.nothing(v_indptr=v_indptr, o_indptr=o_indptr)
        arguments.hints(flags=(("use_fp16_qk_reduction", use_fp16_qk_reduction), ("non_blocking", non_blocking)))
        arguments.rotary(rope_scale, rope_theta)
        device = lists.device_of(self._workspace, qo_indptr, kv_indptr)
        begins, key_begins = arguments.integers("qo_indptr", qo_indptr), arguments.integers("kv_indptr", kv_indptr)
        made = {
            **lists.rows_of(begins, device, "qo_indptr", "q_begins", "seqlen_q"), **lists.rows_of(
                key_begins, device, "kv_indptr", "kv_begins", "seqlen_kv")}
        if begins.shape != key_begins.shape:
            raise ValueError(
                f"qo_indptr has {begins.numel()} numbers and kv_indptr {key_begins.numel()}; must be equal")
        row_counts, key_counts = begins.diff(), key_begins.diff()
        lists.check_counts("seq_lens_q", seq_lens_q, row_counts, "qo_indptr")
        lists.check_counts("seq_lens", seq_lens, key_counts, "kv_indptr")
        lists.check_bounds(max_token_per_sequence, max_sequence_kv, row_counts, key_counts)
        causal, (mask_bytes, mask_begins) = self._masked(made, custom_mask, packed_custom_mask, row_counts, key_counts,
                                                         causal, device)
        buffers = self._room_in_buffers(qo_indptr_buf=qo_indptr, kv_indptr_buf=kv_indptr, custom_mask_buf=mask_bytes,
                                        mask_indptr_buf=mask_begins)
        self._choose(made, num_qo_heads, num_kv_heads,
                     (head_dim_qk, head_dim_qk if head_dim_vo is None else head_dim_vo), None,
                     pos_encoding_mode=pos_encoding_mode, looks_ahead=not causal, window_left=window_left,
                     logits_soft_cap=logits_soft_cap, sm_scale=sm_scale, invariant=arguments.splits(
                         fixed_split_size, disable_split_kv), device=device, causal=causal,
                     types=(q_data_type, kv_data_type, o_data_type), least=(int(begins[-1]), int(
                         key_begins[-1])), buffers=buffers)

    def run(self, q, k, v, *args, q_scale=None, k_scale=None, v_scale=None, o_scale=None, out=None, lse=None,
            return_lse=False, enable_pdl=None, kv_cache_sf=None):
        """Returns what BatchPrefillWithPagedKVCacheWrapper.run() returns.

        q: [rows, num_qo_heads, head_dim_qk], k: [keys, num_kv_heads, head_dim_qk], v: [keys, num_kv_heads, head_dim_vo]
        (HND: [num_kv_heads, keys, ..])."""
        arguments.hints(flags=(("enable_pdl", enable_pdl),))
        arguments.nothing(kv_cache_sf=kv_cache_sf)
        if o_scale is not None and arguments.number("o_scale", o_scale) != 1:
            raise ValueError(f"o_scale is {o_scale}; must be None or 1.0: out has 16 bits")
        k, v = lists.heads_last(k, v, self._layout)
        self._check(q, k, v, args, out, lse, "k")
        given = self._lists()
        given["seqlen_kv"] = min(given["seqlen_kv"], k.shape[0])
        found = self._attend(q, k, v, given, (q_scale, k_scale, v_scale), out=out, lse=lse, return_lse=return_lse)
        return found if return_lse else found[0]

    def forward(self, q, k, v, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, window_left=-1,
                logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, *, _return_lse=False):
        """Calls run() with other choices, which stay for later runs of the plan."""
        self._of_forward(causal, pos_encoding_mode, use_fp16_qk_reduction, window_left, logits_soft_cap, sm_scale,
                         rope_scale, rope_theta)
        return self.run(q, k, v, return_lse=_return_lse)

    def forward_return_lse(self, q, k, v, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
                           window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None):
        """Calls forward(). Returns (out, lse)."""
        return self.forward(q, k, v, causal, pos_encoding_mode, use_fp16_qk_reduction, window_left, logits_soft_cap,
                            sm_scale, rope_scale, rope_theta, _return_lse=True)

    begin_forward = plan
