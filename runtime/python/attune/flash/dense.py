# SPDX-License-Identifier: Apache-2.0
"""flash_attn_func() and its packed forms, for tensors [batch, seqlen, num_heads, head_dim]."""
from ..core.flags import flag
from ..core.library import Error
from ..core.torch_state import marked_constant, settled
from ..score.dropout import rate_of
from ..ops.attention import attention
from ..adapters.arguments import check_hints, chunk_of, off_or_number, tell_ignored, window_of
from ..adapters.errors import blamed
from .arguments import no_probabilities, refusals
from .forward_alone import forward_alone
from .varlen import flash_attn_varlen_func

_FUNCTION = "flash_attn_func"
_NAMES = {
    "sinks": "learnable_sink", "scale": "softmax_scale", "chunk": "attention_chunk", "q_scale": "q_descale",
    "k_scale": "k_descale", "v_scale": "v_descale"}
_NO_BACKWARD = ("flash_attn_func() of 8-bit tensors, which has none; call it without gradients, or give q, k and v of "
                "bf16, fp16 or fp32")


@marked_constant
def _check(dropout_p, refused):
    if dropout_p is None:
        raise ValueError(
            "dropout_p is None; must be in [0, 1) (FlashAttention 3 and 4 have softmax_scale in this place; give "
            "softmax_scale by name)")
    rate_of(dropout_p)
    for name, instead in refused:
        raise ValueError(f"{name} is given; must be None: {instead}")


def _factors(q, k, q_descale, k_descale, v_descale):
    """Returns the factors by name; a missing one is 1. FlashAttention 3 has one factor per batch entry and head of k,
    for q too."""
    if q.dtype.itemsize > 1:
        name = next(name
                    for name, scale in (("q_descale", q_descale), ("k_descale", k_descale), ("v_descale", v_descale))
                    if scale is not None)
        raise ValueError(f"{name} is given, and q is {q.dtype}; only 8-bit tensors have factors")
    if q_descale is not None and q_descale.dim() == 2 and q_descale.shape[1] != q.shape[2]:
        q_descale = q_descale.repeat_interleave(q.shape[2] // k.shape[2], 1)
    return {
        name: 1.0 if scale is None else scale
        for name, scale in (("q_scale", q_descale), ("k_scale", k_descale), ("v_scale", v_descale))}


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False, *, qv=None, q_descale=None,
                    k_descale=None, v_descale=None, attention_chunk=0, num_splits=0, pack_gqa=None, sm_margin=0,
                    learnable_sink=None, score_mod=None, mask_mod=None, aux_tensors=None, block_sparse_tensors=None,
                    return_lse=False):
    """Returns attention with FlashAttention's signature, for arguments of its versions 2, 3 and 4. Arguments of
    versions 3 and 4 go by name. Gradients: of q, k and v.

    q: [batch, seqlen_q, num_heads_q, head_dim], k: [batch, seqlen_kv, num_heads_kv, head_dim], v: [batch, seqlen_kv,
    num_heads_kv, head_dim_v], of bf16, fp16, fp32 or e4m3. num_heads_kv divides num_heads_q.
    causal: the last query sees all keys (bottom right). window_size: (left, right), keys on each side of that diagonal,
    or a tensor of both; None and -1 are open.
    softcap, attention_chunk: 0 is off. alibi_slopes: fp32 [num_heads_q] or [batch, num_heads_q]; slope * |distance from
    the diagonal| is subtracted from scores. learnable_sink: [num_heads_q].
    dropout_p: at least 0, below 1, to the nearest 1/256; PyTorch's generator draws the seed.
    q_descale, k_descale, v_descale: float32 [batch, num_heads_kv], for 8-bit tensors.
    score_mod, mask_mod: as in attune.attention(): FlexAttention's, not FlashAttention 4's programs of CuTe.
    deterministic: True gives gradients with the same bits in every run; False follows
    torch.use_deterministic_algorithms().
    qv: as in flash_attn_with_kvcache(), [batch, seqlen_q, num_heads_q, head_dim_v]. With qv, and for 8-bit tensors, a
    backward raises.
    num_splits, pack_gqa and sm_margin are ignored with one warning: the tuner chooses them.

    Returns out [batch, seqlen_q, num_heads_q, head_dim_v]. With return_lse returns (out, lse). With return_attn_probs
    returns (out, lse, probabilities), which attune does not keep: an empty tensor, as in FlashAttention 2 without
    dropout; with dropout_p an object that raises when it is used. lse: natural, fp32 [batch, num_heads_q, seqlen_q]. A
    row that sees no key has out = 0 and lse = -inf (FlashAttention 2: +inf).
    Raises ValueError for aux_tensors, block_sparse_tensors, and other tensors that require gradients."""
    if causal is not False:
        causal = flag("causal", causal)
    if deterministic is not False:
        deterministic = flag("deterministic", deterministic)
    if type(dropout_p) is not float or dropout_p or not (qv is None and aux_tensors is None and
                                                         block_sparse_tensors is None):
        _check(settled(dropout_p), refusals(aux_tensors=aux_tensors, block_sparse_tensors=block_sparse_tensors))
    if type(num_splits) is not int or num_splits not in (0, 1) or pack_gqa is not None or type(
            sm_margin) is not int or sm_margin != 0:
        _tell_ignored(num_splits, pack_gqa, sm_margin)
    if qv is not None:
        if mask_mod is not None:
            raise ValueError("mask_mod is given with qv; must be None")
        return flash_attn_varlen_func(q, k, v, None, None, None, None, dropout_p, softmax_scale, causal, window_size,
                                      softcap, alibi_slopes, deterministic, return_attn_probs,
                                      attention_chunk=attention_chunk, learnable_sink=learnable_sink,
                                      score_mod=score_mod, q_descale=q_descale, k_descale=k_descale,
                                      v_descale=v_descale, qv=qv, return_lse=return_lse)
    if type(softcap) is not float or softcap:
        softcap = off_or_number("softcap", softcap)
    if type(attention_chunk) is not int or attention_chunk:
        attention_chunk = chunk_of(attention_chunk)
    choices = {}  # only the given keywords, because each costs time
    for name, value in (("softcap", softcap or None), ("alibi_slopes", alibi_slopes), ("sinks", learnable_sink),
                        ("chunk", attention_chunk or None),
                        ("score_mod", score_mod), ("mask_mod", mask_mod),
                        ("dropout_p", dropout_p or None), ("deterministic", True if deterministic else None)):
        if value is not None:
            choices[name] = value
    try:
        narrow = q.dtype.itemsize == 1
        if narrow or not (q_descale is None and k_descale is None and v_descale is None):
            choices.update(_factors(q, k, q_descale, k_descale, v_descale))
        wants_lse = False
        if return_attn_probs is not False or return_lse is not False:
            return_attn_probs = flag("return_attn_probs", return_attn_probs)
            wants_lse = flag("return_lse", return_lse) or return_attn_probs
        mask = "causal_bottom_right" if causal else None
        given = q, k, v, mask, window_of(window_size), softmax_scale, None, wants_lse
        result = forward_alone(lambda: attention(*given, **choices), _NO_BACKWARD, *given[:3], *
                               choices.values()) if narrow else attention(*given, **choices)
        if return_attn_probs:
            result = (*result, no_probabilities(q, dropout_p))
    except (AttributeError, TypeError, ValueError, Error) as error:
        raise blamed(error, _NAMES, {"q": q, "k": k, "v": v}, q_descale=q_descale, k_descale=k_descale,
                     v_descale=v_descale) from None
    return result


def _tell_ignored(num_splits, pack_gqa, sm_margin):
    check_hints(num_splits=num_splits, pack_gqa=pack_gqa, sm_margin=sm_margin)
    given = (("num_splits", num_splits, (0, 1)), ("pack_gqa", pack_gqa, (None,)), ("sm_margin", sm_margin, (0,)))
    tell_ignored(_FUNCTION, [f"{name}={value}" for name, value, plain in given if value not in plain])


def flash_attn_qkvpacked_func(qkv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                              alibi_slopes=None, deterministic=False, return_attn_probs=False, *, num_heads_q=None,
                              qv=None, q_descale=None, k_descale=None, v_descale=None, attention_chunk=0, num_splits=0,
                              pack_gqa=None, sm_margin=0, learnable_sink=None, score_mod=None, mask_mod=None,
                              aux_tensors=None, block_sparse_tensors=None, return_lse=False):
    """Calls flash_attn_func() for qkv [batch, seqlen, 3, num_heads, head_dim], without copies.

    With num_heads_q, as in version 3, qkv is [batch, seqlen, num_heads_q + 2 * num_heads_kv, head_dim]. Returns what
    flash_attn_func() returns."""
    if num_heads_q is not None and qkv.dim() == 4:
        heads = qkv.shape[2] - num_heads_q
        if num_heads_q < 1 or heads < 2 or heads % 2:
            raise ValueError(
                f"num_heads_q is {num_heads_q} and qkv has {qkv.shape[2]} heads; qkv must have num_heads_q + "
                f"2 * num_heads_kv heads, both at least 1")
        q, k, v = qkv.split((num_heads_q, heads // 2, heads // 2), 2)
    else:
        q, k, v = _unpacked("qkv", qkv, 3)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs, qv=qv, q_descale=q_descale, k_descale=k_descale, v_descale=v_descale,
                           attention_chunk=attention_chunk, num_splits=num_splits, pack_gqa=pack_gqa,
                           sm_margin=sm_margin, learnable_sink=learnable_sink, score_mod=score_mod, mask_mod=mask_mod,
                           aux_tensors=aux_tensors, block_sparse_tensors=block_sparse_tensors, return_lse=return_lse)


def flash_attn_kvpacked_func(q, kv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                             alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """Calls flash_attn_func() for kv [batch, seqlen_kv, 2, num_heads_kv, head_dim], without copies. Returns what
    flash_attn_func() returns."""
    k, v = _unpacked("kv", kv, 2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                           return_attn_probs)


def _unpacked(name, packed, parts):
    if packed.dim() != 5 or packed.shape[2] != parts:
        raise ValueError(
            f"{name} has {packed.dim()} dimensions; must be 5: [batch, seqlen, {parts}, num_heads, head_dim]")
    return packed.unbind(2)
