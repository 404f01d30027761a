# SPDX-License-Identifier: Apache-2.0
"""torch.nn.functional.scaled_dot_product_attention on attune, with the same signature and meaning, in training too.

adapters/sdpa_operands.py converts operands that attention() does not take."""
from .core.flags import flag
from .core.library import Error
from .core.tensors import check_dense
from .core.torch_state import marked_constant, settled
from .score.dropout import rate_of
from .ops.attention import attend_heads_first
from .ops.heads_first import refuse_nested
from .adapters.arguments import check_heads, off_or_number
from .adapters.errors import blamed_heads_first
from .adapters.sdpa_operands import Folding, attend_jagged, mask_of, with_equal_heads

_NAMES = {
    "q": "query", "k": "key", "v": "value", "mask_tensor": "attn_mask", "bias": "attn_mask"}  # attention()'s names


@marked_constant
def _check(ranks, has_mask, dropout_p, is_causal):
    if min(ranks) < 2:
        raise ValueError(
            f"query, key and value have {ranks[0]}, {ranks[1]} and {ranks[2]} dimensions; must be at least 2: [.., "
            f"num_heads, seqlen, head_dim]")
    if dropout_p != 1:
        rate_of(dropout_p)
    if has_mask and is_causal:
        raise ValueError("attn_mask is given and is_causal is True; give one of the two")


def _word_of(is_causal):
    return "causal_top_left" if flag("is_causal", is_causal) else None


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """Returns softmax(scale * query key^T + attn_mask) value, for PyTorch's arguments. Gradients: of query, key, value
    and a float attn_mask.

    query: [batch, num_heads, seqlen_q, head_dim], key: [.., num_heads_kv, seqlen_kv, head_dim], value: [..,
    num_heads_kv, seqlen_kv, head_dim_v], of fp32, bf16 or fp16. Any rank from 2 on; leading axes that are 1 or missing
    broadcast.
    Strides that attention() takes need no copies. Others are copied: overlapping windows, a head_dim that is not
    contiguous, addresses that are not multiples of 16 bytes.
    Nested tensors of layout jagged, without attn_mask, are computed as by flash_attn_varlen_func().
    attn_mask: bool, True: the key takes part; or floats (fp32, bf16, fp16) that are added; -1e30 or below hides the
    key. Its shape broadcasts to [batch, num_heads, seqlen_q, seqlen_kv]. Or a result of torch.nn.attention.bias
    (CausalBias).
    is_causal: query i sees keys 0 to i (top left), whatever the lengths. enable_gqa: num_heads_kv may divide num_heads;
    key and value may differ in it.
    dropout_p: 0 to 1, to the nearest 1/256. PyTorch's generator draws the seed; the dropped weights are not those that
    PyTorch drops.

    Returns o [batch, num_heads, seqlen_q, head_dim_v]. Its axes have the same order in memory as query's, head_dim
    last, as with PyTorch. A row without visible keys gives zeros, also if all its floats are finite but below -1e30,
    where PyTorch gives a mean.
    Raises ValueError for attn_mask with is_causal, float64 (attune computes in fp32 at most), and a scale of 0 or
    below."""
    try:
        is_plain = attn_mask is None and type(dropout_p) is float and not dropout_p
        if is_plain and query.dim() == 4 and key.dim() == 4 and value.dim() == 4 and not (
                query.is_nested or key.is_nested or value.is_nested):
            if value.size(1) == key.size(1) and (enable_gqa is True or
                                                 enable_gqa is False and query.size(1) == key.size(1)):
                word = None if is_causal is False else "causal_top_left" if is_causal is True else _word_of(is_causal)
                return attend_heads_first(query, key, value, word, scale)
        is_causal, enable_gqa = flag("is_causal", is_causal), flag("enable_gqa", enable_gqa)
        if dropout_p is not None:
            dropout_p = off_or_number("dropout_p", dropout_p) or 0.0
        if query.is_nested or key.is_nested or value.is_nested:
            return _attend_nested(query, key, value, attn_mask, dropout_p, is_causal, scale)
        return attend_checked(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except (AttributeError, TypeError, ValueError, Error) as error:
        raise blamed_heads_first(error, _NAMES, query, key, value) from None


def attend_checked(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, **features):
    """Implements scaled_dot_product_attention() for dense tensors. features: more keywords of attention(), for
    adapters. With return_lse returns (o, lse)."""
    if attn_mask is not None and not hasattr(attn_mask, "is_floating_point"):
        raise TypeError(f"attn_mask is of type {type(attn_mask).__name__}; must be a PyTorch tensor or None")
    refuse_nested(query, key, value)
    check_dense("attn_mask", attn_mask)
    if attn_mask is not None and not attn_mask.is_floating_point() and str(attn_mask.dtype) != "torch.bool":
        raise ValueError(f"attn_mask is {attn_mask.dtype}; must be bool or floating point")
    _check((query.dim(), key.dim(), value.dim()), attn_mask is not None, settled(dropout_p), is_causal)
    mask = "causal_top_left" if is_causal else None
    if attn_mask is not None:
        word = mask_of(attn_mask, query.shape[-2], key.shape[-2])
        mask, attn_mask = (mask, attn_mask) if word is None else (word, None)
    return _attend_any(query, key, value, attn_mask, mask, dropout_p, scale, enable_gqa, features)


def _attend_any(query, key, value, attn_mask, mask, dropout_p, scale, enable_gqa, features):
    """Computes attention for tensors of any rank. With a dropout rate of 1 the result is zeros, with an autograd
    history."""
    if enable_gqa and key.dim() > 2 and value.dim() > 2 and key.shape[-3] != value.shape[-3]:
        key, value = with_equal_heads(key, value)
    folding = Folding(query, key, value, enable_gqa)
    q, k, v = folding.operand(query, is_query=True), folding.operand(key), folding.operand(value)
    if not enable_gqa and k.shape[1] != 1:
        check_heads(q, k, False)
    if attn_mask is not None:
        attn_mask = folding.mask(attn_mask.resolve_neg())
        features["mask_tensor" if not attn_mask.is_floating_point() else "bias"] = attn_mask
    if dropout_p and dropout_p != 1:
        features["dropout_p"] = dropout_p
    found = attend_heads_first(q, k, v, mask, scale, **features)
    o, lse = found if isinstance(found, tuple) else (found, None)
    o = folding.result(o) * 0 if dropout_p == 1 else folding.result(o)
    return o if lse is None else (o, lse)


def _attend_nested(query, key, value, attn_mask, dropout_p, is_causal, scale):
    if attn_mask is not None:
        raise ValueError("attn_mask is given with nested tensors; must be None (is_causal is served)")
    return attend_jagged(query, key, value, is_causal, dropout_p, scale)
