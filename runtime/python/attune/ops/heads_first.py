# SPDX-License-Identifier: Apache-2.0
"""Converts PyTorch tensors [batch, num_heads, seqlen, head_dim] that attention() does not take as they are: broadcast
axes, and memory in any order. Used for calls that the C module does not know yet. torch.compile traces it."""
from ..core.copies import readable
from ..core.tensors import check_dense


def _expanded(x, batch, heads):
    """Returns x with axes of 1 broadcast. attention() refuses other axes that do not fit."""
    repeats = x.shape[0] == 1 != batch, x.shape[1] == 1 != heads
    return x.expand(batch if repeats[0] else -1, heads if repeats[1] else -1, -1, -1) if any(repeats) else x


def common_extent(extents):
    """Returns the common extent of axes that broadcast where they are 1."""
    return next((extent for extent in extents if extent != 1), 1)


def fitted(q, k, v):
    """Returns q, k and v [batch, num_heads, seqlen, head_dim] that attention() can read. A batch of 1 broadcasts, and
    so does one head of k or v. Tensors that fit are returned unchanged."""
    import torch
    refuse_nested(q, k, v)
    if torch.float64 in (q.dtype, k.dtype, v.dtype):
        raise ValueError(
            "query, key or value is float64, and attune computes in fp32 at most; must be fp32, bf16 or fp16 (for "
            "float64 use torch.nn.functional.scaled_dot_product_attention)")
    if not q.dim() == k.dim() == v.dim() == 4:
        return q, k, v
    q, k, v = readable(q), readable(k), readable(v)
    batch, heads = common_extent((q.shape[0], k.shape[0], v.shape[0])), common_extent((k.shape[1], v.shape[1]))
    return _expanded(q, batch, q.shape[1]), _expanded(k, batch, heads), _expanded(v, batch, heads)


def subclass_of(*given):
    """Returns the class that PyTorch's result has for these operands: the class of the first tensor of a subclass with
    torch.Tensor's own __torch_function__. None means torch.Tensor."""
    import torch
    plain = torch.Tensor.__torch_function__.__func__
    for one in given:
        kind = type(one)
        if isinstance(one, torch.Tensor) and kind is not torch.Tensor and getattr(kind.__torch_function__, "__func__",
                                                                                  None) is plain:
            return kind
    return None


def refuse_nested(*operands):
    """Raises for nested and sparse tensors among query, key and value, unless all are jagged tensors that
    attend_jagged() takes."""
    for name, x in zip(("query", "key", "value"), operands):
        if x.is_nested:
            raise ValueError(
                f"{name} is a nested tensor; query, key and value must then all be of layout torch.jagged, [batch, "
                "num_heads, rows of each, head_dim] without holes (for others give x.values() and x.offsets() to "
                "attune.flash.flash_attn_varlen_func(q, k, v, cu_seqlens_q, ..))")
        check_dense(name, x)
