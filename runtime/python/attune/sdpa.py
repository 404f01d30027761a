# SPDX-License-Identifier: Apache-2.0
"""torch.nn.functional.scaled_dot_product_attention's signature and meaning, on attune: a drop-in for it, in training too."""
from ._attention import attend_heads_first
from ._dropout import rate_of
from ._known import check_heads, marked_constant, settled


@marked_constant
def _check(ranks, mask_rank, dropout_p, is_causal):
    if ranks[0] not in (3, 4) or len(set(ranks)) > 1:
        raise ValueError(f"query, key and value have {ranks[0]}, {ranks[1]} and {ranks[2]} dimensions; accepted are [batch, num_heads, seqlen, head_dim] and "
                         "[batch, seqlen, head_dim] (flatten other leading axes into batch)")
    rate_of(dropout_p)
    if mask_rank is not None:
        if is_causal:
            raise ValueError("attn_mask is given and is_causal is True; accepted is one of the two")
        if not 1 <= mask_rank <= ranks[0]:
            raise ValueError(f"attn_mask has {mask_rank} dimensions; accepted are 1 to {ranks[0]}, which broadcast to the scores'")


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """softmax(scale * query key^T + attn_mask) value, of PyTorch's arguments. Gradients of query, key, value and a
    float attn_mask.

    query: [batch, num_heads, seqlen_q, head_dim] or [batch, seqlen_q, head_dim], key: [.., num_heads_kv, seqlen_kv, head_dim], value: [..,
    num_heads_kv, seqlen_kv, head_dim_v], of fp32, bf16 or fp16. Any strides that attention() takes, without copies; the
    result's memory is [batch, seqlen_q, num_heads, head_dim_v], as of PyTorch's flash attention.
    attn_mask: bool, True: the key takes part; or floats (fp32, bf16, fp16) that are added, at or below -1e30 a hidden key; of a shape that
    broadcasts to [batch, num_heads, seqlen_q, seqlen_kv]. A row without visible keys gives zeros, also where each of its floats is
    finite but below -1e30, of which PyTorch makes a mean.
    is_causal: query i sees keys 0 to i (top left), whatever the lengths. enable_gqa: num_heads_kv may divide num_heads.
    dropout_p: from 0 on, below 1, to the nearest 1/256; PyTorch's generator draws the seed, though other weights are dropped than by PyTorch.

    Refused with a sentence: attn_mask beside is_causal, other ranks, a scale of 0 or below."""
    rank = query.dim()
    flat = rank == 3
    if attn_mask is not None and not hasattr(attn_mask, "is_floating_point"):
        raise TypeError(f"attn_mask is of type {type(attn_mask).__name__}; accepted are PyTorch tensors and None")
    if attn_mask is not None or dropout_p or rank != 4 or key.dim() != 4 or value.dim() != 4:
        _check((rank, key.dim(), value.dim()), None if attn_mask is None else attn_mask.dim(), settled(dropout_p), is_causal)
    if flat:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if attn_mask is not None and attn_mask.dim() == 3:
            attn_mask = attn_mask.unsqueeze(1)
    check_heads(query, key, enable_gqa)
    if attn_mask is None and not dropout_p and not flat:
        return attend_heads_first(query, key, value, "causal_top_left" if is_causal else None, scale)
    features = {}
    if attn_mask is not None:
        features = {"mask_tensor" if not attn_mask.is_floating_point() else "bias": attn_mask}
    if dropout_p:
        features["dropout_p"] = dropout_p
    o = attend_heads_first(query, key, value, "causal_top_left" if is_causal else None, scale, **features)
    return o.squeeze(1) if flat else o
