# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrapper of absorbed latent attention (DeepSeek's MLA), on attend_latent(). See __init__.py."""
from . import _lists as lists
from ._wrapper import Wrapper
from .._flags import flag
from .._latent import attend_latent


class BatchMLAPagedAttentionWrapper(Wrapper):
    """Latent attention over pages of one head: the compressed vectors are keys and values. ckv_cache and kpe_cache are best columns of one tensor,
    [pages, page_size, head_dim_ckv + head_dim_kpe], as engines keep them: x[..., :512] and x[..., 512:]. Of tensors apart each run copies the pages of all
    requests into one, of which a warning tells. Graphs as of BatchPrefillWithPagedKVCacheWrapper."""

    def __init__(self, float_workspace_buffer=None, use_cuda_graph=False, qo_indptr=None, kv_indptr=None, kv_indices=None, kv_len_arr=None, backend="auto", *,
                 most_pages=None):
        super().__init__(float_workspace_buffer, use_cuda_graph, None, most_pages)

    def plan(self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_heads, head_dim_ckv, head_dim_kpe, page_size, causal, sm_scale, q_data_type=None,
             kv_data_type=None, use_profiler=False):
        """qo_indptr, kv_indptr: int32 [batch + 1]; kv_indices: int32, pages of all requests end to end; kv_len_arr: int32 [batch], keys of each. sm_scale
        is that of the heads before absorption, 1 / sqrt(192) of DeepSeek's."""
        device = lists.device_of(self._workspace, qo_indptr, kv_indptr, kv_indices)
        made = self._pages(kv_indptr, kv_indices, None, page_size, kv_len_arr, device)
        self._add_rows(made, qo_indptr, device, "kv_indptr")
        choices = dict(is_causal=flag("causal", causal), scale=float(sm_scale))
        self._hold(made)
        self._choices = choices
        self._expected = (num_heads, head_dim_ckv, head_dim_kpe, page_size)

    def run(self, q_nope, q_pe, ckv_cache, kpe_cache, out=None, lse=None, return_lse=False, profiler_buffer=None, kv_len=None, page_table=None,
            return_lse_base_on_e=False):
        """q_nope: [rows, num_heads, head_dim_ckv], q_pe: [rows, num_heads, head_dim_kpe], ckv_cache: [pages, page_size, head_dim_ckv], kpe_cache: [pages,
        page_size, head_dim_kpe]. Returns out, as q_nope; with return_lse (out, lse), lse fp32 [rows, num_heads] in base 2, or natural with
        return_lse_base_on_e."""
        if self._choices is None:
            raise RuntimeError("run() is called before plan(); accepted is plan() first")
        found = (q_nope.shape[1], q_nope.shape[2], q_pe.shape[2], ckv_cache.shape[1])
        if found != self._expected or ckv_cache.shape[2:] != q_nope.shape[2:] or kpe_cache.shape[2:] != q_pe.shape[2:]:
            raise ValueError(f"q_nope has shape {tuple(q_nope.shape)}, q_pe {tuple(q_pe.shape)}, ckv_cache {tuple(ckv_cache.shape)} and kpe_cache "
                             f"{tuple(kpe_cache.shape)}; plan() was told {self._expected[0]} heads of {self._expected[1]} and {self._expected[2]} columns, in pages "
                             f"of {self._expected[3]}")
        return_lse, return_lse_base_on_e = flag("return_lse", return_lse), flag("return_lse_base_on_e", return_lse_base_on_e)
        o, natural = attend_latent(q_nope, q_pe, ckv_cache, kpe_cache, out, **self._lists(), **self._choices)
        if not return_lse:
            return o
        made = natural.t().contiguous() if return_lse_base_on_e else lists.in_base_2(natural)
        return o, made if lse is None else lse.copy_(made)
