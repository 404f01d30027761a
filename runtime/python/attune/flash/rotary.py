# SPDX-License-Identifier: Apache-2.0
"""FlashAttention's rotary embeddings (its modules layers.rotary and ops.triton.rotary), in PyTorch's own operations,
with gradients. Engines import them beside attention. attune.append_kv() rotates and writes a cache in one launch."""
from ..core.problem import whole
from ..adapters.lists import host_sees, requests_of_rows


def _positions(x, seqlen_offsets, cu_seqlens):
    """Returns the position of each row, [batch or 1, seqlen], or [rows] with cu_seqlens."""
    import torch
    rows = torch.arange(x.shape[-3], device=x.device)
    is_tensor = torch.is_tensor(seqlen_offsets)
    if cu_seqlens is None:
        return rows[None] + (seqlen_offsets[:, None] if is_tensor else whole("seqlen_offsets", seqlen_offsets))
    last = cu_seqlens.shape[0] - 2
    requests = requests_of_rows(cu_seqlens, x.shape[0]).clamp(0, max(last, 0))
    steps = rows - cu_seqlens.long()[requests]
    return steps + (seqlen_offsets[requests] if is_tensor else whole("seqlen_offsets", seqlen_offsets))


def _check(x, cos, sin, seqlen_offsets, cu_seqlens):
    import torch
    if x.dim() != (4 if cu_seqlens is None else 3):
        raise ValueError(
            f"x has shape {tuple(x.shape)}; must be "
            f"{'[batch, seqlen' if cu_seqlens is None else '[rows'}, num_heads, head_dim]")
    if cos.shape != sin.shape or cos.dim() != 2 or 2 * cos.shape[1] > x.shape[-1]:
        raise ValueError(
            f"cos has shape {tuple(cos.shape)} and sin {tuple(sin.shape)}; both must be [positions, rotary_dim / 2], "
            f"with rotary_dim at most {x.shape[-1]}, x's head_dim")
    batch = x.shape[0] if cu_seqlens is None else cu_seqlens.shape[0] - 1
    if torch.is_tensor(seqlen_offsets) and tuple(seqlen_offsets.shape) != (batch,):
        raise ValueError(
            f"seqlen_offsets has shape {tuple(seqlen_offsets.shape)}; must be a number or a tensor [batch] = "
            f"({batch},)")


def _angles(table, at, other):
    """Returns the table's rows at positions `at`, with an axis for heads, in fp32; `other` where it has no row. The
    kernels of FlashAttention leave such rows unturned."""
    known = (at >= 0) & (at < table.shape[0])
    return table.float()[at.clamp(0, max(table.shape[0] - 1, 0))].where(known[..., None], other).unsqueeze(-2)


def apply_rotary(x, cos, sin, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None, interleaved=False, inplace=False,
                 conjugate=False):
    """Returns x with the first rotary_dim columns of each row rotated by the angles of its position.

    x: [batch, seqlen, num_heads, head_dim], or [rows, num_heads, head_dim] with cu_seqlens, int32 [batch + 1]. cos,
    sin: [positions, rotary_dim / 2]. seqlen_offsets: a number or int [batch], the position of each first row.
    interleaved: pairs are neighbours; otherwise columns i and i + rotary_dim / 2. inplace: x itself is written.
    conjugate: rotates back. max_seqlen is ignored.

    Angles and sums are fp32, rounded once. Raises ValueError if shapes do not fit, or if the table has too few
    positions and the host sees them; other rows without a position stay as they are."""
    import torch
    _check(x, cos, sin, seqlen_offsets, cu_seqlens)
    at = _positions(x, seqlen_offsets, cu_seqlens)
    if host_sees(at) and at.numel() and not (0 <= int(at.min()) and int(at.max()) < cos.shape[0]):
        raise ValueError(
            f"cos has {cos.shape[0]} positions, and rows have positions {int(at.min())} to {int(at.max())}; must hold "
            f"all of them")
    c, s = _angles(cos, at, 1.0), _angles(sin, at, 0.0)
    if conjugate:
        s = -s
    turned = 2 * cos.shape[1]
    part = x[..., :turned].float()
    first, second = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
    one, other = first * c - second * s, first * s + second * c
    made = torch.stack((one, other), -1).flatten(-2) if interleaved else torch.cat((one, other), -1)
    if inplace:
        x[..., :turned].copy_(made)
        return x
    return torch.cat((made.to(x.dtype), x[..., turned:]), -1)


def apply_rotary_emb(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0, cu_seqlens=None, max_seqlen=None):
    """Returns apply_rotary() of the same arguments. Gradients: of x, cos and sin."""
    return apply_rotary(x, cos, sin, seqlen_offsets, cu_seqlens, max_seqlen, interleaved, inplace)


apply_rotary_emb_func = apply_rotary_emb
