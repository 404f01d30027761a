# SPDX-License-Identifier: Apache-2.0
"""FlashAttention 2's forward and backward as functions of their own, which autograd does not see. Programs that split a
sequence over devices import them by their private names, and join the parts themselves (ring attention)."""
from types import SimpleNamespace

from ..ops.attention import attention
from ..ops.backward import attention_backward
from ..score.dropout import drawn_seed, rate_of
from ..adapters.arguments import off_or_number, window_of
from ..adapters.errors import named
from . import varlen
from .arguments import no_probabilities

_NAMES = {
    "o": "out", "lse": "softmax_lse", "scale": "softmax_scale", "window": "window_size", "mask": "causal",
    "q_begins": "cu_seqlens_q", "kv_begins": "cu_seqlens_k"}


def _choices(dropout_p, softmax_scale, causal, window, softcap, alibi_slopes):
    """Returns attention()'s keywords."""
    return {
        "scale": softmax_scale, "mask": "causal_bottom_right" if causal else None, "window": window_of(window),
        "softcap": off_or_number("softcap", softcap), "alibi_slopes": alibi_slopes, "dropout_p": rate_of(dropout_p)}


def _state_of(q, dropout_p):
    """Returns rng_state, int64 [2]: the seed and 0."""
    import torch
    state = torch.zeros(2, dtype=torch.int64, device=q.device)
    if dropout_p:
        state[0] = drawn_seed(q)
    return state


def forward(q, k, v, dropout_p, softmax_scale, causal, window_size_left=-1, window_size_right=-1, softcap=0.0,
            alibi_slopes=None, return_softmax=False):
    """Returns (out, lse, probabilities, rng_state) of q [batch, seqlen_q, num_heads_q, head_dim] over k and v.

    lse: fp32 [batch, num_heads_q, seqlen_q]. probabilities: as the third result of flash_attn_func(). rng_state: int64
    [2], which backward() needs with dropout_p."""
    import torch
    with torch.no_grad():
        choices = _choices(dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap,
                           alibi_slopes)
        state = _state_of(q, dropout_p)
        out, lse = named(_NAMES, attention, q, k, v, return_lse=True, seed=state[:1] if dropout_p else None, **choices)
        return out, lse, no_probabilities(q, dropout_p), state


def _written(gradients):
    """Returns the letters of the gradients that are not None."""
    return "".join(letter for letter, x in zip("qkv", gradients) if x is not None)


def backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, window_size_left=-1,
             window_size_right=-1, softcap=0.0, alibi_slopes=None, deterministic=False, rng_state=None):
    """Writes the gradients of q, k and v into dq, dk and dv; None is not computed. out and softmax_lse may be those of
    all keys of the row, while k and v are a part of them.

    Returns None; FlashAttention returns the sums of dout * out."""
    import torch
    if dropout_p and rng_state is None:
        raise ValueError(f"dropout_p is {dropout_p} and rng_state is None; must be forward()'s fourth result")
    with torch.no_grad():
        choices = _choices(dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap,
                           alibi_slopes)
        named(_NAMES, attention_backward, dout, q, k, v, out, softmax_lse, gradients=_written((dq, dk, dv)),
              out=(dq, dk, dv), seed=rng_state[:1] if dropout_p else None, deterministic=deterministic or None,
              **choices)


def _refuse_dropout(dropout_p):
    if dropout_p:
        raise ValueError(
            f"dropout_p is {dropout_p}; must be 0.0 for sequences end to end without autograd "
            f"(flash_attn_varlen_func() takes it)")


def varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
                   window_size_left=-1, window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False,
                   block_table=None, leftpad_k=None, seqused_k=None, zero_tensors=False, num_splits=0):
    """Returns (out, lse, probabilities, rng_state) of rows end to end, as forward() does; lse is [num_heads_q, rows].
    Raises ValueError for dropout_p and leftpad_k. zero_tensors and num_splits are ignored."""
    import torch
    _refuse_dropout(dropout_p)
    if leftpad_k is not None:
        raise ValueError("leftpad_k is given; must be None (flash_attn_with_kvcache() has cache_leftpad)")
    with torch.no_grad():
        out, lse = varlen.flash_attn_varlen_func(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, 0.0, softmax_scale, causal,
            (window_size_left, window_size_right), softcap, alibi_slopes, block_table=block_table, seqused_k=seqused_k,
            return_lse=True)
        return out, lse, no_probabilities(q, 0.0), _state_of(q, 0.0)


def varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                    dropout_p, softmax_scale, causal, window_size_left=-1, window_size_right=-1, softcap=0.0,
                    alibi_slopes=None, deterministic=False, rng_state=None, zero_tensors=False):
    """Writes the gradients of rows end to end, as backward() does. Rows and keys of no sequence get 0 on a CPU, and are
    undefined on a GPU. Two lists of begins are compared, which waits for the device, if there is a mask, window or
    slopes. zero_tensors is ignored."""
    import torch
    _refuse_dropout(dropout_p)
    call = SimpleNamespace(
        q=q, k=k, v=v, cu_q=cu_seqlens_q, cu_k=cu_seqlens_k, used_q=None, used_k=None, causal=causal,
        window=window_of((window_size_left, window_size_right)), chunk=0, slopes=alibi_slopes, sinks=None,
        score_mod=None, dropout_p=0.0, deterministic=deterministic, choices=dict(
            scale=softmax_scale, softcap=off_or_number("softcap", softcap)))

    def differentiate():
        rows, keys, given = varlen.as_documents(call)
        cuts, found = (rows, keys, keys), []
        for x, cut in zip((dq, dk, dv), cuts):
            if x is not None:
                x[:cut.start], x[cut.stop:] = 0, 0
            found.append(None if x is None else x[None, cut])
        attention_backward(dout[None, rows], q[None, rows], k[None, keys], v[None, keys], out[None, rows],
                           softmax_lse[None, :, rows], gradients=_written(found), out=tuple(found), **given)
    with torch.no_grad():
        named(_NAMES, differentiate)


_flash_attn_forward = _wrapped_flash_attn_forward = forward
_flash_attn_backward = _wrapped_flash_attn_backward = backward
_flash_attn_varlen_forward = _wrapped_flash_attn_varlen_forward = varlen_forward
_flash_attn_varlen_backward = _wrapped_flash_attn_varlen_backward = varlen_backward
