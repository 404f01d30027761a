# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's decoding: one or a few tokens per request over pages, and one request. See __init__.py."""
from ..ops.kvcache import attention_kvcache
from ..adapters.errors import named
from . import arguments
from . import lists
from .wrapper import Wrapper, features_of, window_of

_NAMES = ("indptr", "indices", "last_page_len", "seq_lens")


def single_decode_with_kv_cache(q, k, v, kv_layout="NHD", pos_encoding_mode="NONE", use_tensor_cores=False,
                                q_scale=None, k_scale=None, v_scale=None, window_left=-1, logits_soft_cap=None,
                                sm_scale=None, rope_scale=None, rope_theta=None, return_lse=False):
    """Returns attention of one token of one request. q: [num_qo_heads, head_dim], k, v: [keys, num_kv_heads, head_dim],
    or HND.

    Returns out, like q; with return_lse (out, lse), lse fp32 [num_qo_heads] in base 2."""
    arguments.hints(flags=(("use_tensor_cores", use_tensor_cores),))
    arguments.rotary(rope_scale, rope_theta)
    arguments.floats_or_codes("q", q, "[num_qo_heads, head_dim]")
    k, v = lists.heads_last(k, v, kv_layout)
    keywords, factor = lists.scales_of(q, k, sm_scale, q_scale, k_scale, v_scale)
    o, natural = named({"k_cache": "k", "v_cache": "v"}, attention_kvcache, q[None, None], k[None], v[None],
                       window=window_of(window_left), return_lse=True, **keywords,
                       **features_of(pos_encoding_mode, q.shape[0], q.device, False, logits_soft_cap))
    o = o[0, 0] if factor == 1 else o[0, 0].mul_(factor)
    return (o, lists.in_base_2(natural)[0, 0]) if arguments.flag("return_lse", return_lse) else o


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    """One token per request over pages. use_tensor_cores and backend change nothing: the tuner chooses kernels.

    With use_cuda_graph run() may be captured. The graph follows later plans with as many requests, and with no more
    pages per request than the first plan has, or most_pages."""
    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, use_tensor_cores=False,
                 paged_kv_indptr_buffer=None, paged_kv_indices_buffer=None, paged_kv_last_page_len_buffer=None,
                 backend="auto", jit_args=None, *, most_pages=None):
        self._layout, self._steps, self._tensor_cores = lists.check_layout(kv_layout), None, arguments.flag(
            "use_tensor_cores", use_tensor_cores)
        buffers = dict(paged_kv_indptr_buffer=paged_kv_indptr_buffer, paged_kv_indices_buffer=paged_kv_indices_buffer,
                       paged_kv_last_page_len_buffer=paged_kv_last_page_len_buffer)
        super().__init__(float_workspace_buffer, use_cuda_graph, jit_args, most_pages, buffers, backend)

    @property
    def use_tensor_cores(self):
        """The flag that the wrapper was given."""
        return self._tensor_cores

    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
             pos_encoding_mode="NONE", window_left=-1, logits_soft_cap=None, q_data_type=None, kv_data_type=None,
             o_data_type=None, data_type=None, sm_scale=None, rope_scale=None, rope_theta=None, non_blocking=True,
             block_tables=None, seq_lens=None, fixed_split_size=None, disable_split_kv=False, q_len_per_req=None, *,
             window_right=0):
        """Sets the lists and choices of later runs.

        indptr: int32 [batch + 1]. indices: int32, the pages of all requests end to end. last_page_len: int32 [batch].
        seq_lens: the keys of each request, in addition to last_page_len or instead of it. block_tables: int [batch,
        pages], instead of indices. fixed_split_size above 0 and disable_split_kv turn on batch_invariant.
        q_data_type, kv_data_type, o_data_type: None, or the dtypes of run()'s tensors. q_len_per_req: tokens per
        request, of which the last sees all keys; None: run()'s argument is used."""
        arguments.hints(flags=(("non_blocking", non_blocking),))
        arguments.rotary(rope_scale, rope_theta)
        if arguments.whole("window_right", window_right) != 0:
            raise ValueError(f"window_right is {window_right}; must be 0: a token sees no key after its own")
        steps = None if q_len_per_req is None else arguments.count("q_len_per_req", q_len_per_req)
        both = arguments.dtype_of("data_type", data_type)
        device = lists.device_of(self._workspace, indptr, indices)
        made, pages = self._pages(indptr, indices, last_page_len, page_size, seq_lens, device, block_tables, _NAMES)
        buffers = self._room_in_buffers(paged_kv_indptr_buffer=indptr, paged_kv_indices_buffer=indices,
                                        paged_kv_last_page_len_buffer=last_page_len)
        self._choose(made, num_qo_heads, num_kv_heads, (head_dim, ), page_size, pos_encoding_mode=pos_encoding_mode,
                     window_left=window_left, logits_soft_cap=logits_soft_cap, sm_scale=sm_scale,
                     invariant=arguments.splits(fixed_split_size, disable_split_kv), device=device,
                     types=(both if q_data_type is None else q_data_type,
                            both if kv_data_type is None else kv_data_type, o_data_type), least=(0, pages),
                     buffers=buffers)
        self._steps = steps

    def run(self, q, paged_kv_cache, *args, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None,
            return_lse=False, enable_pdl=None, window_left=None, sinks=None, q_len_per_req=None,
            skip_softmax_threshold_scale_factor=None, kv_cache_sf=None):
        """Returns out, like q; with return_lse (out, lse), lse fp32 like q without head_dim, in base 2.

        q: [batch, num_qo_heads, head_dim], or the last q_len_per_req tokens of each request, [batch * q_len_per_req,
        ..], of which the last sees all keys.
        paged_kv_cache: [pages, 2, page_size, num_kv_heads, head_dim] (HND: [pages, 2, num_kv_heads, page_size,
        head_dim]), or a pair of K and V without the second axis. Pages of one key may lack the axis of page_size.
        kv_cache_sf: for NVFP4 caches (uint8, head_dim / 2), the factors of each 16 columns, e4m3, in paged_kv_cache's
        form with head_dim / 16. k_scale and v_scale multiply them.
        out, lse: tensors to write; lse is written without return_lse too."""
        if enable_pdl is not None or skip_softmax_threshold_scale_factor is not None:
            arguments.hints(flags=(("enable_pdl", enable_pdl),))
            arguments.nothing(skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor)
        k, v = lists.caches_of(paged_kv_cache, self._layout)
        groups = lists.groups_of(kv_cache_sf, self._layout)
        self._check(q, k, v, args, out, lse, groups=groups)
        steps = self._steps_of(q, q_len_per_req)
        rows, into = (None if x is None else x.unflatten(0, (-1, steps)) for x in (q, out))
        o, found = self._attend(rows, k, v, self._lists(), (q_scale, k_scale, v_scale), window_left=window_left,
                                sinks=sinks, out=into, lse=lse, return_lse=return_lse, causal=steps > 1,
                                groups=groups)
        o = o.flatten(0, 1) if out is None else out
        return (o, found.flatten(0, 1) if lse is None else lse) if return_lse else o

    def _steps_of(self, q, q_len_per_req):
        """Returns the number of tokens per request, from plan() or run()."""
        steps = self._steps if q_len_per_req is None else arguments.count("q_len_per_req", q_len_per_req)
        if self._steps is not None and steps != self._steps:
            raise ValueError(f"q_len_per_req is {steps} and plan() was told {self._steps}; must be the same")
        steps = 1 if steps is None else steps
        requests = self._held["kv_lengths"].shape[0]
        if q.shape[0] != steps * requests:
            raise ValueError(
                f"q_len_per_req is {steps} and q has {q.shape[0]} rows; must be {steps * requests} rows for {requests} "
                f"requests")
        return steps

    def forward(self, q, paged_kv_cache, pos_encoding_mode="NONE", q_scale=None, k_scale=None, v_scale=None,
                window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, *,
                _return_lse=False):
        """Calls run() with other choices, which stay for later runs of the plan."""
        self._rechoose(None, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=_return_lse)

    def forward_return_lse(self, q, paged_kv_cache, pos_encoding_mode="NONE", q_scale=None, k_scale=None, v_scale=None,
                           window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None):
        """Calls forward(). Returns (out, lse)."""
        return self.forward(q, paged_kv_cache, pos_encoding_mode, q_scale, k_scale, v_scale, window_left,
                            logits_soft_cap, sm_scale, rope_scale, rope_theta, _return_lse=True)

    begin_forward = plan


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    def __init__(self, workspace_buffer=None, indptr_buffer=None, indices_buffer=None, last_page_len_buffer=None,
                 kv_layout="NHD", use_tensor_cores=False, *, most_pages=None):
        super().__init__(workspace_buffer, kv_layout, True, use_tensor_cores, indptr_buffer, indices_buffer,
                         last_page_len_buffer, most_pages=most_pages)


def fast_decode_plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
                     pos_encoding_mode="NONE", window_left=-1, logits_soft_cap=None, q_data_type=None,
                     kv_data_type=None, data_type=None, sm_scale=None, rope_scale=None, rope_theta=None,
                     non_blocking=True, fixed_split_size=None, disable_split_kv=False, q_len_per_req=None,
                     global_override_indptr_cpu=None):
    """Calls BatchDecodeWithPagedKVCacheWrapper.plan() of the wrapper `self`; engines replace that method with this
    function. global_override_indptr_cpu: indptr on the host, instead of the one on the device, so that nothing waits
    for the device."""
    if not isinstance(self, BatchDecodeWithPagedKVCacheWrapper):
        raise TypeError(f"self is of type {type(self).__name__}; must be a BatchDecodeWithPagedKVCacheWrapper")
    if global_override_indptr_cpu is not None:
        arguments.check_integers("indptr", indptr, "[batch + 1]")
        indptr = arguments.integers("global_override_indptr_cpu", global_override_indptr_cpu)
    plan = type(self).plan  # not self.plan, which engines replace with this function
    plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode,
         window_left, logits_soft_cap, q_data_type, kv_data_type, None, data_type, sm_scale, rope_scale, rope_theta,
         non_blocking, None, None, fixed_split_size, disable_split_kv, q_len_per_req)
