# SPDX-License-Identifier: Apache-2.0
"""FlashAttention's helpers around its kernels. They join parts of a result, and pack and unpack padded batches (its
module bert_padding). Plans of kernels exist for compatibility; attune needs none. See flash/."""
from ..core.flags import flag
from ..core.preparing import copied
from ..core.torch_state import refuse_gradients
from ..ops.merge import merge_all
from ..adapters.errors import check_tensors, named
from ..adapters.lists import host_sees
from . import arguments


def _check_order(virtual_batch_idx, out_partial):
    """Checks the order in which version 4's kernels would take batch entries: each must occur once."""
    import torch
    if out_partial.dim() == 4:
        raise ValueError(
            f"virtual_batch_idx is given for rows end to end (out_partial has shape {tuple(out_partial.shape)}); must "
            f"be None for these")
    batch = out_partial.shape[1]
    arguments.check_list("virtual_batch_idx", virtual_batch_idx, (batch,), "[batch]", out_partial)
    if host_sees(virtual_batch_idx) and not torch.equal(virtual_batch_idx.sort().values,
                                                        torch.arange(batch, dtype=torch.int32)):
        raise ValueError(
            f"virtual_batch_idx is {virtual_batch_idx.tolist()[:16]}; must hold each number from 0 to {batch - 1} once")


def _check_types(out_partial, lse_partial, out, out_dtype):
    """Checks the dtypes and devices of a combination, and the tensor that it writes."""
    import torch
    floats = (torch.float32, torch.bfloat16, torch.float16)
    for name, dtype in (("out_partial", out_partial.dtype), ("out_dtype", out_dtype), ("out", getattr(
            out, "dtype", None))):
        if (dtype is not None or name == "out_partial") and dtype not in floats:
            raise ValueError(f"{name} is {dtype!r}; must be torch.float32, torch.bfloat16 or torch.float16")
    if lse_partial.dtype is not torch.float32 or lse_partial.device != out_partial.device:
        raise ValueError(
            f"lse_partial is {lse_partial.dtype} on {lse_partial.device}; must be torch.float32 on "
            f"{out_partial.device}, out_partial's device")
    if out is None:
        return
    if out_dtype not in (None, out.dtype):
        raise ValueError(f"out is {out.dtype} and out_dtype {out_dtype}; must be equal")
    if out.layout is not torch.strided:
        raise ValueError(f"out has layout {out.layout}; must be torch.strided")
    if out.shape != out_partial.shape[1:] or out.device != out_partial.device:
        raise ValueError(
            f"out has shape {tuple(out.shape)} on {out.device}; must have shape {tuple(out_partial.shape[1:])} on "
            f"{out_partial.device}, without out_partial's splits")
    if any(step == 0 and extent > 1 for step, extent in zip(out.stride(), out.shape)):
        raise ValueError(f"out has strides {tuple(out.stride())}; each element must have its own place in memory")
    refuse_gradients([("out", out)])


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None, *, cu_seqlens=None, seqused=None,
                       virtual_batch_idx=None, return_lse=True):
    """Joins attention results of several calls that saw different keys.

    out_partial: [splits, batch, seqlen, num_heads, head_dim], or [splits, rows, num_heads, head_dim]. lse_partial:
    fp32, the same without head_dim, natural logarithms; -inf: saw no key. Sums are fp32, rounded once to out_dtype
    (None: out_partial's).
    cu_seqlens, seqused: accepted; all rows are joined, whether or not a sequence holds them. virtual_batch_idx: int32
    [batch], an order of batch entries, which changes no result.
    Returns (out, lse); lse is fp32 [batch, seqlen, num_heads], or [rows, num_heads]; None without return_lse."""
    import torch
    return_lse = flag("return_lse", return_lse)
    check_tensors({"out_partial": out_partial, "lse_partial": lse_partial}, out=out)
    if out_partial.dim() not in (4, 5) or tuple(lse_partial.shape) != tuple(
            out_partial.shape[:-1]) or out_partial.shape[0] == 0:
        raise ValueError(
            f"out_partial has shape {tuple(out_partial.shape)} and lse_partial {tuple(lse_partial.shape)}; must be "
            "[splits, batch, seqlen, num_heads, head_dim] or [splits, rows, num_heads, head_dim], with at least 1 "
            "split, and the same without head_dim")
    if virtual_batch_idx is not None:
        _check_order(virtual_batch_idx, out_partial)
    _check_types(out_partial, lse_partial, out, out_dtype)
    packed = out_partial.dim() == 4
    states = (out_partial[:, None], lse_partial[:, None]) if packed else (out_partial, lse_partial)
    with torch.no_grad():
        names = {"o": "out_partial", "other_o": "out_partial", "lse": "lse_partial", "other_lse": "lse_partial"}
        found, lse = named(names, merge_all, states[0], states[1].transpose(2, 3))
    found, lse = (x[0] if packed else x for x in (found, lse.transpose(1, 2)))
    if out is None:
        found = found.to(out_partial.dtype if out_dtype is None else out_dtype)
    else:
        found = copied(out, found)
    return found, lse if return_lse else None


def get_scheduler_metadata(*sizes, cache_seqlens=None, **choices):
    """Does nothing; exists because FlashAttention 3 plans a step with it. attune ignores scheduler_metadata. Returns an
    empty int32 tensor on the device of the first tensor given."""
    import torch
    given = [x for x in (cache_seqlens, *sizes, *choices.values()) if torch.is_tensor(x)]
    return torch.empty(0, dtype=torch.int32, device=given[0].device if given else "cpu")


def index_first_axis(x, indices):
    """Returns x[indices] for rows x [rows, ..]. Gradients: of x."""
    return x.index_select(0, indices)


def index_put_first_axis(values, indices, first_axis_dim):
    """Returns zeros [first_axis_dim, ..] with values [n, ..] at the rows indices [n]: the inverse of
    index_first_axis()."""
    return values.new_zeros((first_axis_dim, *values.shape[1:])).index_copy(0, indices.long(), values)


def _counted(name, mask, hidden_states):
    """Returns a mask of rows as bools. Raises for floats: a mask of 0 and -inf, which is meant to be added to scores,
    would have the opposite meaning."""
    if mask.is_floating_point() or mask.is_complex() or tuple(mask.shape) != tuple(hidden_states.shape[:2]):
        raise ValueError(
            f"{name} is {mask.dtype} of shape {tuple(mask.shape)}; must be bool or int [batch, seqlen] = "
            f"{tuple(hidden_states.shape[:2])}, 1 for a row that counts")
    return mask.bool()


def unpad_input(hidden_states, attention_mask, unused_mask=None):
    """Returns the rows of a batch [batch, seqlen, ..] without padding. Waits for the device.

    attention_mask: bool or int [batch, seqlen], 1 for a row that counts. unused_mask: likewise, rows that are kept but
    do not count.
    Returns (rows [total, ..], their indices in [batch * seqlen], cu_seqlens int32 [batch + 1], the length of the
    longest sequence, the counting rows of each sequence as int32 [batch])."""
    import torch
    used = _counted("attention_mask", attention_mask, hidden_states)
    kept = used if unused_mask is None else used | _counted("unused_mask", unused_mask, hidden_states)
    counts = kept.sum(-1, dtype=torch.int32)
    indices = kept.flatten().nonzero().flatten()
    cu_seqlens = torch.nn.functional.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    rows = index_first_axis(hidden_states.flatten(0, 1), indices)
    return rows, indices, cu_seqlens, int(counts.max()) if counts.numel() else 0, used.sum(-1, dtype=torch.int32)


def pad_input(hidden_states, indices, batch, seqlen):
    """Returns [batch, seqlen, ..] with rows [total, ..] at their indices in [batch * seqlen], and zeros for padding:
    the inverse of unpad_input()."""
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))
