# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers with plan() and run(), on attention_kvcache(). See flashinfer.py."""
import functools

from . import _flashinfer_lists as lists
from ._kvcache import attention_kvcache
from ._scores import alibi_slopes


def positions_of(pos_encoding_mode, num_heads, device, looks_ahead, logits_soft_cap):
    """Slopes, where the mode is ALIBI; `looks_ahead`: rows see keys behind their own place, for which FlashInfer's distance has a sign. They count from a
    row's own place, in lse too."""
    if pos_encoding_mode == "NONE":
        return {}
    if pos_encoding_mode == "ALIBI" and logits_soft_cap:
        raise ValueError(f"logits_soft_cap is {logits_soft_cap} and pos_encoding_mode 'ALIBI'; accepted is one of them: attune caps scores before slopes, and "
                         "FlashInfer behind them")
    if pos_encoding_mode != "ALIBI" or looks_ahead:
        raise ValueError(f"pos_encoding_mode is {pos_encoding_mode!r}; accepted are 'NONE', and 'ALIBI' under a causal mask: append_kv(cos=, sin=, q=) turns k "
                         "and q by rotary angles when k is written")
    import torch
    return {"alibi_slopes": torch.tensor(alibi_slopes(num_heads), dtype=torch.float32, device=device)}


def window_of(window_left):
    return None if window_left is None or window_left < 0 else (int(window_left), None)


def refuse_items(**given):
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is given; accepted is None")


class Wrapper:
    """What wrappers share. Results are those of attention_kvcache(), in FlashInfer's shapes and its base of lse. Workspaces and buffers that a caller
    reserves are not used: attune has its own, of which the wrapper holds lists alone."""

    def __init__(self, workspace, use_cuda_graph, jit_args, most_pages=None):
        if jit_args is not None:
            raise ValueError("jit_args is given; accepted is None: attune.attention_kvcache() takes score_mod and mask_mod")
        self._workspace, self._follows, self._most_pages = workspace, bool(use_cuda_graph), most_pages or 0
        self._held, self._mask, self._choices, self._expected = None, None, None, None

    @property
    def is_cuda_graph_enabled(self):
        return self._follows

    def reset_workspace_buffer(self, float_workspace_buffer=None, int_workspace_buffer=None):
        """Nothing: the wrapper uses none."""

    def end_forward(self):
        """Nothing, as of FlashInfer."""

    def _pages(self, indptr, indices, last_page_len, page_size, seq_lens, device):
        """Of keys that seq_lens counts, where it is given."""
        if seq_lens is None:
            seq_lens = lists.lengths_of(lists.on_host(indptr), lists.on_host(last_page_len), page_size)
        most = self._most_pages
        if self._follows and not most and self._held is not None:
            most = self._held["page_table"].shape[1]
        return lists.pages_of(indptr, indices, seq_lens, device, page_size, most_pages=most)

    def _lists(self):
        """Those that attention_kvcache() takes by name."""
        return {name: value for name, value in self._held.items() if not name.startswith("mask")}

    def _hold(self, made):
        before = self._held
        self._held = lists.taken(before, made, self._follows)
        if "mask" not in self._held:
            self._mask = None
        elif self._held is not before:
            self._mask = lists.program_of(self._held)

    def _choose(self, made, num_qo_heads, num_kv_heads, head_dims, page_size, pos_encoding_mode, looks_ahead, window_left, logits_soft_cap, sm_scale,
                invariant, device, causal=False):
        """Takes a plan as a whole, or refuses it and keeps the one before. `made`: its lists."""
        positions = positions_of(pos_encoding_mode, num_qo_heads, device, looks_ahead, logits_soft_cap)
        self._hold(made)
        self._expected = (num_qo_heads, num_kv_heads, *head_dims, page_size)
        self._choices = dict(is_causal=causal, softcap=logits_soft_cap or None, batch_invariant=bool(invariant), **positions)
        self._window, self._sm_scale = window_left, sm_scale

    def _check(self, q, k, v, of_jit):
        if self._choices is None:
            raise RuntimeError("run() is called before plan(); accepted is plan() first")
        if of_jit:
            raise ValueError(f"run() is given {len(of_jit)} arguments more than tensors; accepted are none, which programs of jit_args would take")
        found = (q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], k.shape[1] if k.dim() == 4 else None)
        if found != self._expected:
            names = ("num_qo_heads", "num_kv_heads", "head_dim", "head_dim of v", "page_size")
            raise ValueError(", ".join(f"{name} is {a} and plan() was told {b}" for name, a, b in zip(names, found, self._expected) if a != b) +
                             "; accepted are tensors as planned")

    def _attend(self, q, k, v, given, scales, window_left, sinks, out, lse, return_lse):
        """q, out as attention_kvcache() has them. Returns out and lse in base 2."""
        keywords, factor = lists.scales_of(q, k, self._sm_scale, *scales)
        more = {} if self._mask is None else {"mask_mod": self._mask}
        found = attention_kvcache(q, k, v, window=window_of(self._window if window_left is None else window_left), sinks=sinks, out=out,
                                  return_lse=bool(return_lse), **given, **self._choices, **keywords, **more)
        o, natural = found if return_lse else (found, None)
        if factor != 1:
            o.mul_(factor)
        if natural is None:
            return o, None
        made = lists.in_base_2(natural)
        return o, made if lse is None else lse.copy_(made.reshape(lse.shape))


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    """One token of each request over pages. use_tensor_cores and backend are not looked at: the tuner chooses kernels. With use_cuda_graph run() may be
    captured, and the graph follows later plans of as many requests and of no more pages each than the first has, or most_pages."""

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, use_tensor_cores=False, paged_kv_indptr_buffer=None,
                 paged_kv_indices_buffer=None, paged_kv_last_page_len_buffer=None, backend="auto", jit_args=None, *, most_pages=None):
        self._layout = lists.check_layout(kv_layout)
        super().__init__(float_workspace_buffer, use_cuda_graph, jit_args, most_pages)

    @property
    def use_tensor_cores(self):
        return True

    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode="NONE", window_left=-1,
             logits_soft_cap=None, q_data_type="float16", kv_data_type=None, o_data_type=None, data_type=None, sm_scale=None, rope_scale=None, rope_theta=None,
             non_blocking=True, block_tables=None, seq_lens=None, fixed_split_size=None, disable_split_kv=False):
        """indptr: int32 [batch + 1], indices: int32, pages of all requests end to end, last_page_len: int32 [batch]; seq_lens, where given, in its
        place. fixed_split_size and disable_split_kv ask for what batch_invariant gives. Types are those of the tensors of run()."""
        device = lists.device_of(self._workspace, indptr, indices)
        self._choose(self._pages(indptr, indices, last_page_len, page_size, seq_lens, device), num_qo_heads, num_kv_heads, (head_dim, head_dim), page_size, pos_encoding_mode, False, window_left, logits_soft_cap, sm_scale,
                     fixed_split_size or disable_split_kv, device)

    def run(self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False, enable_pdl=None, window_left=None,
            sinks=None, q_len_per_req=1):
        """q: [batch, num_qo_heads, head_dim]. paged_kv_cache: [pages, 2, page_size, num_kv_heads, head_dim] (HND: [pages, 2, num_kv_heads, page_size,
        head_dim]), or a pair of K and V without the second axis. Returns out, as q; with return_lse (out, lse), lse fp32 [batch, num_qo_heads] in
        base 2."""
        if q_len_per_req not in (None, 1):
            raise ValueError(f"q_len_per_req is {q_len_per_req}; accepted is 1: of several tokens BatchPrefillWithPagedKVCacheWrapper is asked")
        k, v = lists.caches_of(paged_kv_cache, self._layout)
        self._check(q, k, v, args)
        o, found = self._attend(q[:, None], k, v, self._lists(), (q_scale, k_scale, v_scale), window_left, sinks, None if out is None else out[:, None], lse,
                                return_lse)
        o = o[:, 0] if out is None else out
        return (o, found[:, 0] if lse is None else lse) if return_lse else o

    begin_forward = plan
    run_return_lse = functools.partialmethod(run, return_lse=True)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    def __init__(self, workspace_buffer=None, indptr_buffer=None, indices_buffer=None, last_page_len_buffer=None, kv_layout="NHD", use_tensor_cores=False, *,
                 most_pages=None):
        super().__init__(workspace_buffer, kv_layout, True, most_pages=most_pages)


class _Prefill(Wrapper):
    """Rows of requests end to end."""

    def _masked(self, made, custom_mask, packed_custom_mask, qo_indptr, key_counts, causal, device):
        """Whether rows are causal. A mask of the caller's is in the place of that."""
        if custom_mask is None and packed_custom_mask is None:
            return bool(causal)
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
        made = self._pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, seq_lens, device)
        made.update(lists.rows_of(qo_indptr, device, "qo_indptr", "q_begins", "seqlen_q"))
        causal = self._masked(made, custom_mask, packed_custom_mask, qo_indptr, made["kv_lengths"], causal, device)
        self._choose(made, num_qo_heads, num_kv_heads, (head_dim_qk, head_dim_vo or head_dim_qk), page_size, pos_encoding_mode, not causal, window_left,
                     logits_soft_cap, sm_scale, fixed_split_size or disable_split_kv, device, causal)

    def run(self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False, enable_pdl=None, window_left=None,
            sinks=None):
        """q: [rows, num_qo_heads, head_dim_qk]; paged_kv_cache as of BatchDecodeWithPagedKVCacheWrapper. Returns out [rows, num_qo_heads, head_dim_vo];
        with return_lse (out, lse), lse fp32 [rows, num_qo_heads] in base 2."""
        k, v = lists.caches_of(paged_kv_cache, self._layout)
        self._check(q, k, v, args)
        found = self._attend(q, k, v, self._lists(), (q_scale, k_scale, v_scale), window_left, sinks, out, lse, return_lse)
        return found if return_lse else found[0]

    begin_forward = plan
    run_return_lse = functools.partialmethod(run, return_lse=True)


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
                     logits_soft_cap, sm_scale, fixed_split_size or disable_split_kv, device, causal)

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
        found = self._attend(q, k, v, given, (q_scale, k_scale, v_scale), None, None, out, lse, return_lse)
        return found if return_lse else found[0]

    begin_forward = plan
    run_return_lse = functools.partialmethod(run, return_lse=True)
