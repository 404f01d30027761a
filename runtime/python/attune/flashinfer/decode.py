# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's decoding: one token, or some, of each request over pages, and of one request. See __init__.py."""
from . import _lists as lists
from .._flags import flag
from .._kvcache import attention_kvcache
from ._wrapper import Wrapper, positions_of, window_of


def single_decode_with_kv_cache(q, k, v, kv_layout="NHD", pos_encoding_mode="NONE", use_tensor_cores=False, q_scale=None, k_scale=None, v_scale=None,
                                window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, return_lse=False):
    """One token of one request. q: [num_qo_heads, head_dim], k, v: [keys, num_kv_heads, head_dim], or HND. Returns out, as q; with return_lse (out, lse),
    lse fp32 [num_qo_heads] in base 2."""
    k, v = lists.heads_last(k, v, kv_layout)
    return_lse = flag("return_lse", return_lse)
    keywords, factor = lists.scales_of(q, k, sm_scale, q_scale, k_scale, v_scale)
    o, natural = attention_kvcache(q[None, None], k[None], v[None], window=window_of(window_left), softcap=logits_soft_cap or None, return_lse=True,
                                   **positions_of(pos_encoding_mode, q.shape[0], q.device, False, logits_soft_cap), **keywords)
    o = o[0, 0] if factor == 1 else o[0, 0].mul_(factor)
    return (o, lists.in_base_2(natural)[0, 0]) if return_lse else o


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
        place; block_tables: int [batch, pages], likewise of indices. fixed_split_size and disable_split_kv ask for what batch_invariant gives. Types are
        those of the tensors of run(), o_data_type that of q."""
        device = lists.device_of(self._workspace, indptr, indices)
        made = self._pages(indptr, indices, last_page_len, page_size, seq_lens, device, block_tables)
        self._choose(made, num_qo_heads, num_kv_heads, (head_dim, head_dim), page_size, pos_encoding_mode, False, window_left, logits_soft_cap, sm_scale,
                     fixed_split_size or flag("disable_split_kv", disable_split_kv), device, o_data_type=o_data_type)

    def run(self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False, enable_pdl=None, window_left=None,
            sinks=None, q_len_per_req=1):
        """q: [batch, num_qo_heads, head_dim], or the last q_len_per_req tokens of each request, [batch * q_len_per_req, ..], of which the last sees all keys. paged_kv_cache: [pages, 2, page_size, num_kv_heads, head_dim] (HND: [pages, 2, num_kv_heads, page_size,
        head_dim]), or a pair of K and V without the second axis. Returns out, as q; with return_lse (out, lse), lse fp32 without head_dim in
        base 2."""
        steps = 1 if q_len_per_req is None else q_len_per_req
        if steps < 1 or q.shape[0] % steps:
            raise ValueError(f"q_len_per_req is {steps} and q has {q.shape[0]} rows; accepted are 1 and more, a multiple of which the rows are")
        k, v = lists.caches_of(paged_kv_cache, self._layout)
        self._check(q, k, v, args)
        rows, into = (None if x is None else x.unflatten(0, (-1, steps)) for x in (q, out))
        o, found = self._attend(rows, k, v, self._lists(), (q_scale, k_scale, v_scale), window_left=window_left, sinks=sinks, out=into, lse=lse,
                                return_lse=return_lse, causal=steps > 1)
        o = o.flatten(0, 1) if out is None else out
        return (o, found.flatten(0, 1) if lse is None else lse) if return_lse else o

    begin_forward = plan


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    def __init__(self, workspace_buffer=None, indptr_buffer=None, indices_buffer=None, last_page_len_buffer=None, kv_layout="NHD", use_tensor_cores=False, *,
                 most_pages=None):
        super().__init__(workspace_buffer, kv_layout, True, most_pages=most_pages)
