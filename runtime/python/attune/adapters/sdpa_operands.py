# SPDX-License-Identifier: Apache-2.0
"""Converts operands that torch.nn.functional.scaled_dot_product_attention takes and attention() does not: other ranks,
jagged tensors, and CausalBias. ops/heads_first.py has broadcast axes and memory in any order. Used by sdpa.py.
torch.compile traces it."""
import math

from ..ops.heads_first import common_extent, refuse_nested


def with_equal_heads(k, v):
    """Returns k and v with equal numbers of heads, for enable_gqa: each number divides q's, but they may differ."""
    heads = math.lcm(k.shape[-3], v.shape[-3])
    return tuple(x if x.shape[-3] == heads else x.repeat_interleave(heads // x.shape[-3], -3) for x in (k, v))


def mask_of(attn_mask, rows, keys):
    """Returns attention()'s mask name for PyTorch's CausalBias, which has no elements; None for other masks."""
    if type(attn_mask).__name__ != "CausalBias" or type(attn_mask).__module__ != "torch.nn.attention.bias":
        return None
    if (attn_mask.seq_len_q, attn_mask.seq_len_kv) != (rows, keys):
        raise ValueError(
            f"attn_mask is a CausalBias of {attn_mask.seq_len_q} rows and {attn_mask.seq_len_kv} keys; must have "
            f"query's {rows} rows and key's {keys} keys")
    return "causal_top_left" if attn_mask.variant.name == "UPPER_LEFT" else "causal_bottom_right"


class Folding:
    """Converts tensors of any rank from 2 on to [batch, num_heads, ..], and results back.

    Leading axes of 1, or missing ones, broadcast; all axes before the heads are the batch. The third axis from the end
    is the heads if there are at least four axes, or three and enable_gqa is set."""

    def __init__(self, query, key, value, enable_gqa):
        import torch
        self.rank = max(query.dim(), key.dim(), value.dim())
        self._of_heads = 1 if self.rank > 3 or enable_gqa and self.rank == 3 else 0
        heads = [x.shape[-3] if self._of_heads and x.dim() > 2 else 1 for x in (query, key, value)]
        self.leading = torch.broadcast_shapes(*(x.shape[:max(x.dim() - 2 - self._of_heads, 0)]
                                                for x in (query, key, value)))
        self.heads = heads[0] if enable_gqa else common_extent(heads)
        self.batch = math.prod(self.leading)
        self._repeats_heads = not enable_gqa
        self._scores = (*self.leading, *(self.heads,) * self._of_heads, query.shape[-2], key.shape[-2])

    def operand(self, x, is_query=False):
        heads = (x.shape[-3] if x.dim() > 2 else 1) if self._of_heads else 1
        x = x.reshape(*(1,) * (self.rank - x.dim()), *x.shape)
        if self._of_heads and is_query and self._repeats_heads and heads == 1:
            heads = self.heads
        return x.expand(*self.leading,
                        *(heads, ) * self._of_heads, *x.shape[-2:]).reshape(self.batch, heads, *x.shape[-2:])

    def mask(self, mask):
        """Returns the mask in the scores' form. Broadcast axes stay axes of 1 if possible."""
        while mask.dim() > self.rank and mask.shape[0] == 1:
            mask = mask[0]
        if mask.dim() > max(self.rank, 2):
            raise ValueError(
                f"attn_mask has shape {tuple(mask.shape)}; must have at most {self.rank} dimensions, which broadcast "
                f"to the scores'")
        for extent, wanted in zip(reversed(mask.shape), reversed(self._scores)):
            if extent != 1 and extent != wanted:
                raise ValueError(f"attn_mask has shape {tuple(mask.shape)}; must broadcast to {tuple(self._scores)}")
        mask = mask.reshape(*(1,) * (max(self.rank, 2) - mask.dim()), *mask.shape)
        leading, rest = mask.shape[:len(self.leading)], mask.shape[len(self.leading):]
        rest = rest if self._of_heads else (1, *rest)
        if all(extent == 1 for extent in leading):
            return mask.reshape(1, *rest)
        return mask.expand(*self.leading, *mask.shape[len(self.leading):]).reshape(self.batch, *rest)

    def result(self, o):
        return o.reshape(*self.leading, *(o.shape[1],) * self._of_heads, *o.shape[2:])


def _longest(query, key, rows, keys):
    """Returns the numbers of rows and keys of the longest sequences. Waits for the device once if the tensors do not
    store them."""
    known = [getattr(x, "_maybe_max_seqlen", None) for x in (query, key)]
    if None not in known:
        return known
    import torch
    return torch.stack([x.diff().max() for x in (rows, keys)]).tolist()


def attend_jagged(query, key, value, is_causal, dropout_p, scale):
    """Returns attention of PyTorch's nested tensors [batch, num_heads, rows of each, head_dim] of layout jagged, with
    gradients."""
    import torch
    from ..flash import flash_attn_varlen_func
    operands = query, key, value
    if not all(x.layout is torch.jagged and x.dim() == 4 and x._ragged_idx == 2 and x._lengths is None
               for x in operands):
        refuse_nested(*operands)
    rows, keys = query.offsets(), key.offsets()
    if value.offsets() is not keys and not torch.equal(value.offsets(), keys):
        raise ValueError("key and value are nested tensors of different lengths; both must have equal offsets()")
    is_same = keys is rows or torch.equal(keys, rows)
    if is_causal and not is_same:
        raise ValueError("is_causal is True for nested tensors whose rows and keys differ; offsets() must be equal")
    begins, longest = rows.int(), _longest(query, key, rows, keys)
    o = flash_attn_varlen_func(*(x.transpose(1, 2).values() for x in operands), begins,
                               begins if is_same else keys.int(), *longest, dropout_p=dropout_p, softmax_scale=scale,
                               causal=is_causal)
    return torch.nested.nested_tensor_from_jagged(o, offsets=rows).transpose(1, 2)
