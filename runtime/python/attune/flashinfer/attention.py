# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers of batches that mix prompts and tokens, and of attention with sinks. See __init__.py."""
from . import _lists as lists
from ._wrapper import Wrapper
from .._flags import flag
from .prefill import BatchPrefillWithPagedKVCacheWrapper


class BatchAttention(Wrapper):
    """Rows of requests end to end over pages: prompts and single tokens in one call, which all wrappers here take."""

    def __init__(self, kv_layout="NHD", device="cuda"):
        self._layout, self._device = lists.check_layout(kv_layout), device
        super().__init__(None, False, None)

    def plan(self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, page_size, causal=False, sm_scale=None,
             logits_soft_cap=None, q_data_type=None, kv_data_type=None, use_profiler=False):
        """qo_indptr, kv_indptr: int32 [batch + 1]; kv_indices: int32, pages of all requests end to end; kv_len_arr: int32 [batch], keys of each."""
        made = self._pages(kv_indptr, kv_indices, None, page_size, kv_len_arr, self._device)
        self._add_rows(made, qo_indptr, self._device, "kv_indptr")
        self._choose(made, num_qo_heads, num_kv_heads, (head_dim_qk, head_dim_vo), page_size, "NONE", not causal, -1, logits_soft_cap, sm_scale, False, self._device,
                     flag("causal", causal))

    def run(self, q, kv_cache, out=None, lse=None, k_scale=None, v_scale=None, logits_soft_cap=0.0, profiler_buffer=None):
        """q: [rows, num_qo_heads, head_dim_qk]; kv_cache as of BatchDecodeWithPagedKVCacheWrapper. logits_soft_cap: 0, or that of plan(). Returns (out, lse),
        lse fp32 [rows, num_qo_heads] in base 2."""
        k, v = lists.caches_of(kv_cache, self._layout)
        self._check(q, k, v, ())
        if logits_soft_cap and logits_soft_cap != self._choices["softcap"]:
            raise ValueError(f"logits_soft_cap is {logits_soft_cap} and plan() was told {self._choices['softcap']}; accepted are 0 and that of plan()")
        return self._attend(q, k, v, self._lists(), (None, k_scale, v_scale), out=out, lse=lse, return_lse=True)


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """BatchPrefillWithPagedKVCacheWrapper whose run() takes sinks and the scale by place. What its programs would be made for is not looked at: types and head
    dims are those of plan() and run()."""

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None, paged_kv_indptr_buf=None,
                 paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None, custom_mask_buf=None, mask_indptr_buf=None, backend="auto", pos_encoding_mode="NONE",
                 use_fp16_qk_reduction=False, q_data_type=None, kv_data_type=None, o_data_type=None, head_dim_qk=128, head_dim_vo=128, window_left=-1, *,
                 most_pages=None):
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, most_pages=most_pages)

    def run(self, q, paged_kv_cache, sinks, sm_scale=None, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False, enable_pdl=None,
            window_left=None):
        """sinks: fp32 [num_qo_heads]; sm_scale: in the place of plan()'s. The rest as of BatchPrefillWithPagedKVCacheWrapper."""
        return self._over_pages(q, paged_kv_cache, (), (q_scale, k_scale, v_scale), window_left=window_left, sinks=sinks, sm_scale=sm_scale, out=out, lse=lse,
                                return_lse=return_lse)

