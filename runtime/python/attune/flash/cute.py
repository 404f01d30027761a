# SPDX-License-Identifier: Apache-2.0
"""FlashAttention 4's functions (flash_attn.cute) on attune, with its signatures, windows and results. All else is as in
attune.flash.

In version 4 an open side of window_size is None, and a side may be below 0: (None, -3) shows keys up to row - 3, (-3,
None) keys from row + 3 on. The last row is at the last key (bottom right). causal ends a window at the row. A window
that would show no key (left + right below 0) is ignored.
Functions always return (out, lse); lse is None without return_lse."""
from ..core.flags import flag
from ..core.torch_state import records_gradients
from ..adapters.arguments import sides_of_version_4
from ..adapters.lists import is_recorded
from . import arguments
from .dense import flash_attn_func as _dense
from .rows import flash_attn_combine as _combine, get_scheduler_metadata  # noqa: F401
from .varlen import flash_attn_varlen_func as _of_sequences

__all__ = ["flash_attn_combine", "flash_attn_func", "flash_attn_varlen_func", "get_scheduler_metadata"]

_INSTEAD = {
    "gather_kv_indices": "attune has no attention over chosen keys; a page_table with pages of one key chooses a "
                         "request's keys",
    "score_mod_bwd": "attune derives the gradients of score_mod itself",
    "aux_tensors": "score_mod and mask_mod read tensors from their closures; see attune.score_mod()",
    "aux_scalars": "score_mod and mask_mod read numbers from their closures; see attune.score_mod()",
    "block_sparse_tensors": "attune.block_map.from_flex() and from_blocks() make maps for attune.attention(block_map=)",
    "block_sparse_tensors_bwd": "attune.block_map.from_flex() and from_blocks() make maps for "
                                "attune.attention(block_map=)",
}


def _refuse(**given):
    arguments.refuse([(name, _INSTEAD[name]) for name, value in given.items() if value is not None])


def _refuse_beside_mask_mod(mask_mod, causal, window):
    if mask_mod is not None and (causal or window is not None):
        raise ValueError(
            "mask_mod is given with causal or window_size, which version 4 then ignores; give mask_mod alone, and let "
            "it hide all keys that must be hidden")


def _lse_of(lse, qv):
    """Returns lse with its heads last if qv is given, as version 4 has it."""
    return lse if lse is None or qv is None else lse.transpose(-1, -2)


def flash_attn_func(q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None, causal=False,
                    window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None,
                    deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None, aux_tensors=None,
                    aux_scalars=None, block_sparse_tensors=None, block_sparse_tensors_bwd=None, return_lse=False):
    """Returns attention with the signature of FlashAttention 4's function. q, k, v and qv: as in
    attune.flash.flash_attn_func().

    window_size: see this module's docstring. score_mod, mask_mod: as in attune.attention(): FlexAttention's, not
    programs of CuTe. mask_mod cannot be combined with causal or window_size. num_splits and pack_gqa are ignored with
    one warning.
    Returns (out, lse); lse is None without return_lse. lse: fp32 [batch, num_heads_q, seqlen_q], or [batch, seqlen_q,
    num_heads_q] with qv.
    Raises ValueError for gather_kv_indices, score_mod_bwd, aux_tensors, aux_scalars, block_sparse_tensors and
    block_sparse_tensors_bwd."""
    _refuse(gather_kv_indices=gather_kv_indices, score_mod_bwd=score_mod_bwd, aux_tensors=aux_tensors,
            aux_scalars=aux_scalars, block_sparse_tensors=block_sparse_tensors,
            block_sparse_tensors_bwd=block_sparse_tensors_bwd)
    causal, return_lse = flag("causal", causal), flag("return_lse", return_lse)
    window = sides_of_version_4(window_size, causal)
    _refuse_beside_mask_mod(mask_mod, causal, window)
    if window is not None:
        if score_mod is None and q.shape[1] != k.shape[1] and is_recorded(q) and not records_gradients(
                q, k, v, learnable_sink):
            return flash_attn_varlen_func(
                q, k, v, qv, softmax_scale=softmax_scale, causal=causal, window_size=window_size,
                learnable_sink=learnable_sink, softcap=softcap,
                return_lse=return_lse)  # its programs hold no lengths, so lengths that change need no new graph
        mask_mod = arguments.program_of(window=window, ahead=k.shape[1] - q.shape[1])
    found = _dense(q, k, v, 0.0, softmax_scale, causal, arguments.seen_by_kernels(window), softcap, None, deterministic,
                   qv=qv, num_splits=num_splits, pack_gqa=pack_gqa, learnable_sink=learnable_sink, score_mod=score_mod,
                   mask_mod=mask_mod, return_lse=return_lse)
    return (found[0], _lse_of(found[1], qv)) if return_lse else (found, None)


def flash_attn_varlen_func(q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
                           min_seqlen_k=None, seqused_q=None, seqused_k=None, gather_kv_indices=None, page_table=None,
                           softmax_scale=None, causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0,
                           num_splits=1, pack_gqa=None, deterministic=False, score_mod=None, score_mod_bwd=None,
                           mask_mod=None, block_sparse_tensors=None, aux_tensors=None, aux_scalars=None,
                           return_lse=False, scheduler_metadata=None, seqlen_k_per_split=None,
                           disable_scheduler_metadata=False):
    """Returns attention of sequences end to end with the signature of FlashAttention 4's function. Arguments: as in
    attune.flash.flash_attn_varlen_func(), with pages if page_table is given. window_size: see this module's docstring.

    min_seqlen_k, num_splits, pack_gqa, scheduler_metadata, seqlen_k_per_split and disable_scheduler_metadata are
    ignored: the tuner makes these choices.
    Returns (out, lse); lse is None without return_lse. lse: fp32 [num_heads_q, rows], or [batch, num_heads_q, seqlen_q]
    if q has a batch axis. With qv it is [rows, num_heads_q] or [batch, seqlen_q, num_heads_q].
    Raises ValueError for mask_mod, and for the arguments that flash_attn_func() refuses."""
    _refuse(gather_kv_indices=gather_kv_indices, score_mod_bwd=score_mod_bwd, aux_tensors=aux_tensors,
            aux_scalars=aux_scalars, block_sparse_tensors=block_sparse_tensors)
    if mask_mod is not None:
        raise ValueError(
            "mask_mod is given for sequences end to end; must be None (attune.attention(documents=, mask_mod=) takes "
            "one)")
    causal, return_lse = flag("causal", causal), flag("return_lse", return_lse)
    found = _of_sequences(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale, causal,
                          sides_of_version_4(window_size,
                                             causal), softcap, None, deterministic, qv=qv, seqused_q=seqused_q,
                          seqused_k=seqused_k, page_table=page_table, learnable_sink=learnable_sink,
                          score_mod=score_mod, return_lse=return_lse, num_splits=num_splits, pack_gqa=pack_gqa)
    return (found[0], _lse_of(found[1], qv)) if return_lse else (found, None)


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None, cu_seqlens=None, seqused=None,
                       virtual_batch_idx=None, return_lse=True):
    """Calls attune.flash.flash_attn_combine(); takes all arguments by position."""
    return _combine(out_partial, lse_partial, out, out_dtype, cu_seqlens=cu_seqlens, seqused=seqused,
                    virtual_batch_idx=virtual_batch_idx, return_lse=return_lse)
