# SPDX-License-Identifier: Apache-2.0
"""FlashAttention 3's functions (its module flash_attn_interface) on attune, with the order of its arguments and its
results. All else is as in attune.flash.

Version 3 has softmax_scale where version 2 has dropout_p, so calls by position need these functions. It has no dropout
and no slopes. With return_attn_probs its functions return (out, lse)."""
from . import dense, serving, varlen
from .rows import flash_attn_combine as _combine, get_scheduler_metadata  # noqa: F401

__all__ = [
    "flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
    "flash_attn_with_kvcache", "get_scheduler_metadata"]


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
                    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None,
                    deterministic=False, sm_margin=0, return_attn_probs=False):
    """Returns out, or (out, lse) with return_attn_probs. Arguments: as in attune.flash.flash_attn_func()."""
    return dense.flash_attn_func(q, k, v, 0.0, softmax_scale, causal, window_size, softcap, None, deterministic, qv=qv,
                                 q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
                                 attention_chunk=attention_chunk, num_splits=num_splits, pack_gqa=pack_gqa,
                                 sm_margin=sm_margin, return_lse=return_attn_probs)


def flash_attn_qkvpacked_func(qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None, v_descale=None,
                              window_size=(-1, -1), attention_chunk=0, softcap=0.0, deterministic=False,
                              num_heads_q=None, sm_margin=0, return_attn_probs=False):
    """Returns out, or (out, lse) with return_attn_probs. Arguments: as in attune.flash.flash_attn_qkvpacked_func()."""
    return dense.flash_attn_qkvpacked_func(qkv, 0.0, softmax_scale, causal, window_size, softcap, None, deterministic,
                                           num_heads_q=num_heads_q, q_descale=q_descale, k_descale=k_descale,
                                           v_descale=v_descale, attention_chunk=attention_chunk, sm_margin=sm_margin,
                                           return_lse=return_attn_probs)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None,
                           seqused_k=None, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None,
                           v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1,
                           pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False):
    """Returns out, or (out, lse) with return_attn_probs. Arguments: as in attune.flash.flash_attn_varlen_func()."""
    return varlen.flash_attn_varlen_func(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale, causal, window_size,
        softcap, None, deterministic, seqused_q=seqused_q, seqused_k=seqused_k, qv=qv, q_descale=q_descale,
        k_descale=k_descale, v_descale=v_descale, attention_chunk=attention_chunk, num_splits=num_splits,
        pack_gqa=pack_gqa, sm_margin=sm_margin, return_lse=return_attn_probs)


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, page_table=None,
                            cu_seqlens_q=None, cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None,
                            q_descale=None, k_descale=None, v_descale=None, softmax_scale=None, causal=False,
                            window_size=(-1, -1), attention_chunk=0, softcap=0.0, rotary_interleaved=True,
                            scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0,
                            return_softmax_lse=False):
    """Returns out, or (out, lse) with return_softmax_lse. Arguments: as in attune.flash.flash_attn_with_kvcache()."""
    return serving.flash_attn_with_kvcache(
        q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx, cache_leftpad, None,
        softmax_scale, causal, window_size, softcap, rotary_interleaved, None, num_splits, return_softmax_lse,
        page_table=page_table, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k_new=cu_seqlens_k_new, max_seqlen_q=max_seqlen_q,
        rotary_seqlens=rotary_seqlens, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
        attention_chunk=attention_chunk, qv=qv, scheduler_metadata=scheduler_metadata, pack_gqa=pack_gqa,
        sm_margin=sm_margin)


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    """Calls attune.flash.flash_attn_combine()."""
    return _combine(out_partial, lse_partial, out, out_dtype)
