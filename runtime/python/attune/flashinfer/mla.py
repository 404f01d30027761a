# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrapper of absorbed latent attention (DeepSeek's MLA), on attend_latent(). See __init__.py."""
import warnings

from ..core.preparing import copied, preparing
from ..core.torch_state import refuse_gradients
from ..ops.kvcache import attention_kvcache
from ..ops.latent import attend_latent
from ..adapters.errors import named
from . import arguments
from . import lists
from .wrapper import Wrapper


class BatchMLAPagedAttentionWrapper(Wrapper):
    """Latent attention over pages of one head: the compressed vectors are both keys and values.

    ckv_cache and kpe_cache should be columns of one tensor [pages, page_size, head_dim_ckv + head_dim_kpe], as engines
    keep them: x[..., :512] and x[..., 512:]. For separate tensors each run copies the pages of all requests into one,
    with a warning. 8-bit caches are copied likewise, into q's dtype. CUDA graphs: as in
    BatchPrefillWithPagedKVCacheWrapper."""
    def __init__(self, float_workspace_buffer=None, use_cuda_graph=False, qo_indptr=None, kv_indptr=None,
                 kv_indices=None, kv_len_arr=None, backend="auto", *, most_pages=None):
        buffers = dict(qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices, kv_len_arr=kv_len_arr)
        super().__init__(float_workspace_buffer, use_cuda_graph, None, most_pages, buffers, backend)

    def plan(self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_heads, head_dim_ckv, head_dim_kpe, page_size,
             causal, sm_scale, q_data_type=None, kv_data_type=None, use_profiler=False):
        """Sets the lists and choices of later runs.

        qo_indptr, kv_indptr: int32 [batch + 1]. kv_indices: int32, the pages of all requests end to end. kv_len_arr:
        int32 [batch], the keys of each request. sm_scale: the scale of the heads before absorption, 1 / sqrt(192) for
        DeepSeek. q_data_type, kv_data_type: None, or the dtypes of run()'s tensors."""
        arguments.no_profile(use_profiler)
        device = lists.device_of(self._workspace, qo_indptr, kv_indptr, kv_indices)
        made, pages = self._pages(kv_indptr, kv_indices, None, page_size,
                                  arguments.integers("kv_len_arr", kv_len_arr, "[batch]"), device,
                                  names=("kv_indptr", "kv_indices", None, "kv_len_arr"))
        begins = arguments.integers("qo_indptr", qo_indptr)
        made.update(
            lists.rows_of(begins, device, "qo_indptr", "q_begins", "seqlen_q",
                          (made["kv_lengths"].shape[0], "kv_indptr")))
        choices = dict(is_causal=arguments.flag("causal", causal), scale=arguments.number(
            "sm_scale", sm_scale, above=0))
        expected = (arguments.count("num_heads", num_heads), arguments.count(
            "head_dim_ckv", head_dim_ckv), arguments.count("head_dim_kpe", head_dim_kpe, 0), page_size)
        types = [
            arguments.dtype_of(name, given)
            for name, given in (("q_data_type", q_data_type), ("kv_data_type", kv_data_type))]
        buffers = self._room_in_buffers(qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices,
                                        kv_len_arr=kv_len_arr)
        self._hold(made)
        self._choices, self._expected, self._types, self._least = choices, expected, (*types, None), (int(
            begins[-1]), pages)
        lists.write_buffers(buffers)

    def run(self, q_nope, q_pe, ckv_cache, kpe_cache, out=None, lse=None, return_lse=False, profiler_buffer=None,
            kv_len=None, page_table=None, return_lse_base_on_e=False, o_scale=None, *, ckv_scale=None,
            ckv_scale_arr=None, kpe_scale=None):
        """Returns out, like q_nope; with return_lse (out, lse), lse fp32 [rows, num_heads] in base 2, or natural with
        return_lse_base_on_e.

        q_nope: [rows, num_heads, head_dim_ckv], q_pe: [rows, num_heads, head_dim_kpe], ckv_cache: [pages, page_size,
        head_dim_ckv], kpe_cache: [pages, page_size, head_dim_kpe]. head_dim_kpe may be 0. ckv_scale, kpe_scale: factors
        of 8-bit caches, numbers above 0; give both. out, lse: tensors to write; lse is written without return_lse too.
        """
        arguments.nothing(profiler_buffer=profiler_buffer, kv_len=kv_len, page_table=page_table, o_scale=o_scale,
                          ckv_scale_arr=ckv_scale_arr)
        self._refuse_unplanned()
        self._check_latent(q_nope, q_pe, ckv_cache, kpe_cache, out, lse)
        return_lse, natural_lse = arguments.flag("return_lse", return_lse), arguments.flag(
            "return_lse_base_on_e", return_lse_base_on_e)
        given, choices, factors = self._lists(), self._choices, self._factors(ckv_cache, ckv_scale, kpe_scale)
        if factors is not None:  # applied through the scale of scores, q_pe and out
            ckv_cache, kpe_cache, given["page_table"] = _widened(ckv_cache, kpe_cache, given["page_table"],
                                                                 q_nope.dtype)
            choices, q_pe = dict(choices, scale=choices["scale"] * factors[0]), q_pe * (factors[1] / factors[0])
        own = {"q": "q_nope", "k_cache": "ckv_cache", "v_cache": "ckv_cache", "scale": "sm_scale"}
        refuse_gradients((("q_nope", q_nope), ("q_pe", q_pe), ("ckv_cache", ckv_cache), ("kpe_cache", kpe_cache)))
        if q_pe.shape[2]:
            o, natural = named(own, attend_latent, q_nope, q_pe, ckv_cache, kpe_cache, out, **given, **choices)
        else:
            cache = ckv_cache.unsqueeze(2)
            o, natural = named(own, attention_kvcache, q_nope, cache, cache, out=out, return_lse=True, **given,
                               **choices)
        if factors is not None and not preparing():
            o.mul_(factors[0])
        if not return_lse and lse is None:
            return o
        made = natural.t().contiguous() if natural_lse else lists.in_base_2(natural)
        made = made if lse is None else copied(lse, made)
        return (o, made) if return_lse else o

    def _check_latent(self, q_nope, q_pe, ckv_cache, kpe_cache, out, lse):
        for name, x in (("q_nope", q_nope), ("q_pe", q_pe)):
            arguments.floats(name, x, "[rows, num_heads, columns]")
            arguments.check_dtype(name, x, "q_data_type", self._types[0])
            if x.dtype.itemsize == 1:
                raise ValueError(f"{name} is {x.dtype}; must be bf16, fp16 or fp32, even if the caches have 8 bits")
        for name, x in (("ckv_cache", ckv_cache), ("kpe_cache", kpe_cache)):
            arguments.floats_or_codes(name, x, "[pages, page_size, columns]")
            arguments.check_dtype(name, x, "kv_data_type", self._types[1])
        found = (q_nope.shape[1], q_nope.shape[2], q_pe.shape[2], ckv_cache.shape[1])
        if found != self._expected or ckv_cache.shape[2:] != q_nope.shape[2:] or kpe_cache.shape[2:] != q_pe.shape[2:]:
            raise ValueError(
                f"q_nope has shape {tuple(q_nope.shape)}, q_pe {tuple(q_pe.shape)}, ckv_cache {tuple(ckv_cache.shape)} "
                f"and kpe_cache {tuple(kpe_cache.shape)}; plan() was told {self._expected[0]} heads of "
                f"{self._expected[1]} and {self._expected[2]} columns, in pages of {self._expected[3]}")
        arguments.refuse_short(self, q_nope, ckv_cache[:, :, None], "ckv_cache")
        arguments.buffer("out", out, q_nope.shape, q_nope.dtype, q_nope.device)
        arguments.buffer("lse", lse, q_nope.shape[:2], arguments.fp32(), q_nope.device)

    def _factors(self, ckv_cache, ckv_scale, kpe_scale):
        """Returns the factors of 8-bit caches, or None for other caches."""
        given = dict(ckv_scale=ckv_scale, kpe_scale=kpe_scale)
        for name, scale in given.items():
            if scale is not None and ckv_cache.dtype.itemsize != 1:
                raise ValueError(
                    f"{name} is given and ckv_cache is {ckv_cache.dtype}; must be None: only 8-bit caches have factors")
            if scale is None and ckv_cache.dtype.itemsize == 1:
                raise ValueError(f"{name} is None and ckv_cache is {ckv_cache.dtype}; must be a number")
        return None if ckv_scale is None else [arguments.number(name, scale, above=0) for name, scale in given.items()]


def _widened(ckv_cache, kpe_cache, page_table, dtype):
    """Returns the pages that a table names as columns of one tensor of q's dtype, which represents the codes exactly,
    and the table of their places there."""
    import torch
    warnings.warn(
        f"latent attention copies the pages of all requests at each run, because ckv_cache is {ckv_cache.dtype} and "
        f"its kernels read {dtype}",
        stacklevel=4)
    pages = page_table.flatten().long().clamp(0, max(ckv_cache.shape[0] - 1, 0))
    both = torch.cat([cache.view(torch.uint8)[pages].view(cache.dtype).to(dtype) for cache in (ckv_cache, kpe_cache)],
                     -1)
    places = torch.arange(pages.numel(), dtype=torch.int32, device=pages.device).view(page_table.shape)
    return both[..., :ckv_cache.shape[2]], both[..., ckv_cache.shape[2]:], places
