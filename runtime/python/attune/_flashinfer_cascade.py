# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrapper of prefixes that requests share, on cascade(). See flashinfer.py."""
from . import _flashinfer_lists as lists
from ._cascade import cascade, prepare_cascade


def _level(qo_indptr, kv_indptr, kv_indices, last_page_len, page_size, device):
    """What cascade() takes of a level but its cache."""
    made = lists.pages_of(kv_indptr, kv_indices, lists.lengths_of(lists.on_host(kv_indptr), lists.on_host(last_page_len), page_size), device, page_size)
    rows = lists.rows_of(qo_indptr, device, "qo_indptr", "q_begins", "seqlen_q")
    if rows["q_begins"].shape[0] != made["kv_lengths"].shape[0] + 1:
        raise ValueError(f"qo_indptr has {rows['q_begins'].shape[0]} numbers and paged_kv_indptr is of {made['kv_lengths'].shape[0]} groups; accepted are n + 1 of n")
    return {**rows, **made}


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
        self._workspace, self._follows = float_workspace_buffer, bool(use_cuda_graph)

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
        self._levels = levels if self._levels is None else [lists.taken(*pair, self._follows) for pair in zip(self._levels, levels)]
        self._choices = dict(is_causal=bool(causal), scale=sm_scale, softcap=logits_soft_cap or None)

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
