# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers for batches that mix prompts and single tokens, and for attention with sinks. See __init__.py.
"""
from . import arguments
from . import lists
from .prefill import BatchPrefillWithPagedKVCacheWrapper
from .wrapper import CAP, Wrapper


class BatchAttention(Wrapper):
    """Attention of packed requests over pages, prompts and single tokens in one call. device: None is a GPU if PyTorch
    sees one, otherwise the CPU."""
    _name_of_cache = "kv_cache"

    def __init__(self, kv_layout="NHD", device=None):
        self._layout, self._place = lists.check_layout(kv_layout), arguments.device(device)
        super().__init__(None, False, None)

    def plan(self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo,
             page_size, causal=False, sm_scale=None, logits_soft_cap=None, q_data_type=None, kv_data_type=None,
             use_profiler=False):
        """Sets the lists and choices of later runs.

        qo_indptr, kv_indptr: int32 [batch + 1]. kv_indices: int32, the pages of all requests end to end. kv_len_arr:
        int32 [batch], the keys of each request."""
        arguments.no_profile(use_profiler)
        made, pages = self._pages(kv_indptr, kv_indices, None, page_size,
                                  arguments.integers("kv_len_arr", kv_len_arr, "[batch]"), self._place,
                                  names=("kv_indptr", "kv_indices", None, "kv_len_arr"))
        begins = arguments.integers("qo_indptr", qo_indptr)
        made.update(
            lists.rows_of(begins, self._place, "qo_indptr", "q_begins", "seqlen_q",
                          (made["kv_lengths"].shape[0], "kv_indptr")))
        causal = arguments.flag("causal", causal)
        self._choose(made, num_qo_heads, num_kv_heads, (head_dim_qk, head_dim_vo), page_size, looks_ahead=not causal,
                     logits_soft_cap=logits_soft_cap, sm_scale=sm_scale, device=self._place, causal=causal,
                     types=(q_data_type, kv_data_type, None), least=(int(begins[-1]), pages))

    def run(self, q, kv_cache, out=None, lse=None, k_scale=None, v_scale=None, logits_soft_cap=0.0,
            profiler_buffer=None, kv_cache_sf=None):
        """Returns (out, lse); lse is fp32 [rows, num_qo_heads] in base 2.

        q: [rows, num_qo_heads, head_dim_qk]. kv_cache: as in BatchDecodeWithPagedKVCacheWrapper. logits_soft_cap: 0, or
        plan()'s."""
        arguments.nothing(profiler_buffer=profiler_buffer, kv_cache_sf=kv_cache_sf)
        k, v = lists.caches_of(kv_cache, self._layout, "kv_cache")
        self._check(q, k, v, (), out, lse, "kv_cache")
        if arguments.soft_cap(logits_soft_cap) not in (None, self._choices[CAP]):
            raise ValueError(
                f"logits_soft_cap is {logits_soft_cap} and plan() was told {self._choices[CAP]}; must be 0 or plan()'s")
        return self._attend(q, k, v, self._lists(), (None, k_scale, v_scale), out=out, lse=lse, return_lse=True)


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """BatchPrefillWithPagedKVCacheWrapper whose run() takes sinks and the scale by position. FlashInfer compiles
    programs for some arguments here (types, head dims, window); each must be None, or equal plan()'s argument."""
    def __init__(self, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None,
                 paged_kv_indptr_buf=None, paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None,
                 custom_mask_buf=None, mask_indptr_buf=None, backend="auto", pos_encoding_mode="NONE",
                 use_fp16_qk_reduction=False, q_data_type=None, kv_data_type=None, o_data_type=None, head_dim_qk=None,
                 head_dim_vo=None, window_left=None, *, most_pages=None):
        arguments.hints(flags=(("use_fp16_qk_reduction", use_fp16_qk_reduction),))
        types = (("q_data_type", q_data_type), ("kv_data_type", kv_data_type), ("o_data_type", o_data_type))
        numbers = (("head_dim_qk", head_dim_qk, 1), ("head_dim_vo", head_dim_vo, 1), ("window_left", window_left, -1))
        self._made_types = [arguments.dtype_of(name, given) for name, given in types]
        self._made_for = {
            name: arguments.count(name, given, least)
            for name, given, least in numbers if given is not None}
        self._made_for["pos_encoding_mode"] = pos_encoding_mode
        if pos_encoding_mode not in ("NONE", "ALIBI"):
            raise ValueError(f"pos_encoding_mode is {pos_encoding_mode!r}; must be 'NONE' or 'ALIBI'")
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, paged_kv_indptr_buf,
                         paged_kv_indices_buf, paged_kv_last_page_len_buf, custom_mask_buf, mask_indptr_buf, backend,
                         most_pages=most_pages)

    def _choose(self, made, num_qo_heads, num_kv_heads, head_dims, page_size, *, pos_encoding_mode, window_left, types,
                **given):
        said = dict(head_dim_qk=head_dims[0], head_dim_vo=head_dims[1], window_left=window_left,
                    pos_encoding_mode=pos_encoding_mode)
        for name, wanted in self._made_for.items():
            if said[name] != wanted and not (name == "window_left" and
                                             min(wanted, said[name]) >= 0):  # FlashInfer compiles for any window
                raise ValueError(
                    f"{name} of plan() is {said[name]!r} and the wrapper was made for {wanted!r}; must be the same")
        types = [made_for if told is None else told for told, made_for in zip(types, self._made_types)]
        super()._choose(made, num_qo_heads, num_kv_heads, head_dims, page_size, pos_encoding_mode=pos_encoding_mode,
                        window_left=window_left, types=types, **given)

    def run(self, q, paged_kv_cache, sinks, sm_scale=None, *, q_scale=None, k_scale=None, v_scale=None, out=None,
            lse=None, return_lse=False, enable_pdl=None, window_left=None):
        """Returns what BatchPrefillWithPagedKVCacheWrapper.run() returns. sinks: fp32 [num_qo_heads]. sm_scale replaces
        plan()'s."""
        arguments.hints(flags=(("enable_pdl", enable_pdl),))
        return self._over_pages(q, paged_kv_cache, (), (q_scale, k_scale, v_scale), window_left=window_left,
                                sinks=sinks, sm_scale=sm_scale, out=out, lse=lse, return_lse=return_lse)
