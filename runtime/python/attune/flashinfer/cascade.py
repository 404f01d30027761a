# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's prefixes that requests share, on cascade(), and states that are merged. See __init__.py."""
from . import _lists as lists
from .._flags import flag
from .._cascade import cascade, prepare_cascade
from .._merge import merge, merge_all


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
    if v.dim() != 4 or v.shape[1] == 0:
        raise ValueError(f"v has shape {tuple(v.shape)}; accepted is [rows, states, num_heads, head_dim], of 1 state and more")
    o, lse = merge_all(v.transpose(0, 1)[:, None], (s.float() * lists.LN_2).permute(1, 2, 0)[:, None].contiguous())
    return o[0].to(v.dtype), lists.in_base_2(lse)[0]


def _level(qo_indptr, kv_indptr, kv_indices, last_page_len, page_size, device):
    """What cascade() takes of a level but its cache."""
    made = lists.pages_of(kv_indptr, kv_indices, lists.lengths_of(lists.on_host(kv_indptr), lists.on_host(last_page_len), page_size), device, page_size)
    return {**lists.rows_of(qo_indptr, device, "qo_indptr", "q_begins", "seqlen_q", (made["kv_lengths"].shape[0], "paged_kv_indptr")), **made}


class MultiLevelCascadeAttentionWrapper:
    """FlashInfer's wrapper of the same name. plan() turns lists of pages into tables on the device, once for all layers of a step; run() may be captured
    into a CUDA graph, which then follows later plans of no more pages and rows (they are copied into the tensors of the first). Lists on the CPU
    are for caches on the CPU: one of them at least is on the GPU else.

    num_levels: 1 and more, from the widest prefix to each request. Workspace and buffers are not used. kv_layout: NHD or HND. use_cuda_graph: a plan that
    does not fit the first one's tensors is refused; without it, it gets tensors of its own."""

    def __init__(self, num_levels, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf_arr=None, paged_kv_indptr_buf_arr=None,
                 paged_kv_indices_buf_arr=None, paged_kv_last_page_len_buf_arr=None):
        lists.check_layout(kv_layout)
        if num_levels < 1:
            raise ValueError(f"num_levels is {num_levels}; accepted are 1 and more")
        self._num_levels, self._layout, self._levels, self._choices = num_levels, kv_layout, None, None
        self._workspace, self._follows = float_workspace_buffer, flag("use_cuda_graph", use_cuda_graph)

    @property
    def is_cuda_graph_enabled(self):
        return self._follows

    def reset_workspace_buffer(self, float_workspace_buffer=None, int_workspace_buffers=None):
        """Nothing: the wrapper uses none."""

    def plan(self, qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
             causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None, rope_scale=None,
             rope_theta=None, q_data_type="float16", kv_data_type=None):
        """Lists of tensors, one a level, as FlashInfer has them: qo_indptr [groups + 1], paged_kv_indptr [groups + 1], paged_kv_indices [pages],
        paged_kv_last_page_len [groups]. causal counts in the last level. Refused: windows, which no level but the last could know, and positions."""
        if pos_encoding_mode != "NONE" or window_left >= 0:
            raise ValueError(f"pos_encoding_mode is {pos_encoding_mode!r} and window_left {window_left}; accepted are 'NONE' and -1 over shared prefixes")
        of_levels = (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len)
        if any(len(one) != self._num_levels for one in of_levels):
            raise ValueError(f"there are {[len(one) for one in of_levels]} lists; accepted are {self._num_levels} of each, one a level")
        device = lists.device_of(self._workspace, *(one for of_level in of_levels for one in of_level))
        levels = [_level(*of_level, page_size, device) for of_level in zip(*of_levels)]
        pairs = list(zip(self._levels or [None] * self._num_levels, levels))
        for pair in pairs:  # a plan is taken as a whole, or refused before one of its lists is written
            lists.goes_into(*pair, self._follows)
        self._levels = [lists.taken(*pair, self._follows) for pair in pairs]
        self._choices = dict(is_causal=flag("causal", causal), scale=sm_scale, softcap=logits_soft_cap or None)

    def _given(self, paged_kv_cache):
        if self._levels is None:
            raise RuntimeError("run() is called before plan(); accepted is plan() first")
        k, v = lists.caches_of(paged_kv_cache, self._layout)
        return [dict(level, k_cache=k, v_cache=v) for level in self._levels]

    def run(self, q, paged_kv_cache):
        """q: [rows, num_qo_heads, head_dim]. paged_kv_cache: [pages, 2, page_size, num_kv_heads, head_dim] (HND: [pages, 2, num_kv_heads, page_size,
        head_dim]), or a pair of K and V without the second axis. Returns [rows, num_qo_heads, head_dim]."""
        return cascade(q, self._given(paged_kv_cache), **self._choices)

    def prepare(self, q, paged_kv_cache):
        """Before run() is captured into a CUDA graph."""
        return prepare_cascade(q, self._given(paged_kv_cache), **self._choices)

    begin_forward = plan
    forward = run


class _SharedPrefix:
    """Keys that all requests share, in tensors of their own, ahead of what each has in pages."""

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD"):
        self._layout, self._workspace, self._levels = lists.check_layout(kv_layout), float_workspace_buffer, None

    def reset_workspace_buffer(self, float_workspace_buffer=None, int_workspace_buffer=None):
        """Nothing: the wrapper uses none."""

    def end_forward(self):
        """Nothing, as of FlashInfer."""

    def _plan(self, qo_indptr, kv_indptr, kv_indices, last_page_len, page_size, heads):
        device = lists.device_of(self._workspace, qo_indptr, kv_indptr, kv_indices)
        unique = _level(qo_indptr, kv_indptr, kv_indices, last_page_len, page_size, device)
        rows = int(lists.on_host(qo_indptr)[-1])
        self._levels, self._heads = (lists.rows_of([0, rows], device, "rows", "q_begins", "seqlen_q"), unique), (*heads, page_size)

    def _run(self, q, k_shared, v_shared, unique_kv_cache, causal, sm_scale):
        if self._levels is None:
            raise RuntimeError("forward() is called before begin_forward(); accepted is begin_forward() first")
        k, v = lists.heads_last(k_shared, v_shared, self._layout)
        k_unique, v_unique = lists.caches_of(unique_kv_cache, self._layout)
        found = (q.shape[1], k_unique.shape[2], q.shape[2], k_unique.shape[1])
        if found != self._heads:
            raise ValueError(f"q has shape {tuple(q.shape)} and unique_kv_cache pages {tuple(k_unique.shape[1:])}; accepted are {self._heads[0]} heads over "
                             f"{self._heads[1]} of {self._heads[2]} columns in pages of {self._heads[3]}, as begin_forward() was told")
        shared, unique = self._levels
        levels = [dict(shared, k_cache=k[None], v_cache=v[None])] if k.shape[0] else []
        return cascade(q, [*levels, dict(unique, k_cache=k_unique, v_cache=v_unique)], is_causal=causal, scale=sm_scale)


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """FlashInfer's wrapper of the same name: one token of each request."""

    def begin_forward(self, unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, data_type="float16"):
        """Lists of pages that are a request's own, as of BatchDecodeWithPagedKVCacheWrapper."""
        each = range(max(len(unique_kv_indptr), 1))
        self._plan(each, unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, page_size, (num_qo_heads, num_kv_heads, head_dim))

    def forward(self, q, k_shared, v_shared, unique_kv_cache, use_fp16_qk_reduction=False, sm_scale=None, rope_scale=None, rope_theta=None):
        """q: [batch, num_qo_heads, head_dim]; k_shared, v_shared: [keys, num_kv_heads, head_dim] (HND: [num_kv_heads, keys, head_dim]). Returns as q."""
        return self._run(q, k_shared, v_shared, unique_kv_cache, False, sm_scale)

    plan, run = begin_forward, forward


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """FlashInfer's wrapper of the same name: rows of requests end to end, all of which see the shared keys."""

    def begin_forward(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size):
        """Lists as of BatchPrefillWithPagedKVCacheWrapper, of pages that are a request's own."""
        self._plan(qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, (num_qo_heads, num_kv_heads, head_dim))

    def forward(self, q, k_shared, v_shared, unique_kv_cache, causal=False, use_fp16_qk_reduction=False, sm_scale=None, rope_scale=None, rope_theta=None):
        """q: [rows, num_qo_heads, head_dim]; the rest as of BatchDecodeWithSharedPrefixPagedKVCacheWrapper. causal counts in a request's own keys."""
        return self._run(q, k_shared, v_shared, unique_kv_cache, flag("causal", causal), sm_scale)

    plan, run = begin_forward, forward
