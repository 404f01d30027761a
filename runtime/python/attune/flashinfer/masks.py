# SPDX-License-Identifier: Apache-2.0
"""Converts the caller's masks in FlashInfer's form (bools or bits of all requests end to end) to the mask_mod that
attention_kvcache() runs. Used by prefill.py and wrapper.py."""
from ..score.programs import mask_mod
from ..ops.kvcache import rounded
from . import arguments


def bits_of(packed, sizes, name):
    """Returns the bools of a mask in bits, where each request begins with a new byte."""
    import torch
    packed = arguments.bytes_of(name, packed, "cpu")
    bytes_of = (sizes + 7) // 8
    if packed.numel() != int(bytes_of.sum()):
        raise ValueError(
            f"{name} has {packed.numel()} bytes; must be {int(bytes_of.sum())}: a bit for each row and key of a "
            f"request, and each request begins with a new byte")
    bits = (packed[:, None] >> torch.arange(8, dtype=torch.uint8, device="cpu")) & 1
    padding = 8 * (bytes_of.cumsum(0) - bytes_of) - (sizes.cumsum(0) - sizes)  # padding bits before each request
    return bits.flatten()[torch.arange(int(sizes.sum()), device="cpu") + padding.repeat_interleave(sizes)].bool()


def bools_of(custom_mask, packed_custom_mask, rows, keys, device="cpu"):
    """Returns the bools of a mask, all requests end to end. rows, keys: per request, on the host.

    A mask of bools is flat. It may be [batch, rows, keys] if all requests are alike, or [rows, keys] for one request.
    Other shapes raise: their elements would be in other places."""
    if custom_mask is not None and packed_custom_mask is not None:
        raise ValueError("custom_mask and packed_custom_mask are given; give one of them")
    sizes = rows * keys
    if packed_custom_mask is not None:
        return bits_of(packed_custom_mask, sizes, "packed_custom_mask").to(device)
    mask, total, shapes = arguments.bools("custom_mask", custom_mask, device), int(sizes.sum()), []
    if rows.numel() and bool((rows == rows[0]).all()) and bool((keys == keys[0]).all()):
        one = (int(rows[0]), int(keys[0]))
        shapes = [(rows.numel(), *one)] + ([one] if rows.numel() == 1 else [])
    if tuple(mask.shape) not in [(total,), *shapes]:
        also = "".join(f", or {shape}" for shape in shapes)
        raise ValueError(
            f"custom_mask has shape {tuple(mask.shape)}; must be ({total},){also}: rows times keys of each request")
    return mask.flatten()


def mask_of(custom_mask, packed_custom_mask, rows, keys, device, room=0):
    """Returns the tensors of a mask. rows, keys: per request, on the host. room: the least number of bools."""
    import torch
    flat, sizes = bools_of(custom_mask, packed_custom_mask, rows, keys), rows * keys
    if flat.numel() >= 1 << 31:
        raise ValueError(
            f"custom_mask has {flat.numel()} elements; must have less than 2^31, the range of programs' indices")
    mask = torch.zeros(max(room, rounded(flat.numel())), dtype=torch.bool, device="cpu")
    mask[:flat.numel()] = flat
    lists = dict(mask=mask, mask_begins=(sizes.cumsum(0) - sizes).int(), mask_keys=keys.int(),
                 mask_first=(keys - rows).int())
    return {name: tensor.to(device) for name, tensor in lists.items()}


def packed_of(lists, sizes):
    """Returns (bytes, begins of requests) for a mask that mask_of() made, on its device."""
    import torch
    from .quantization import segment_packbits
    begins = torch.nn.functional.pad(sizes.cumsum(0), (1, 0)).int()
    return segment_packbits(lists["mask"][:int(sizes.sum())], begins, "little")


def program_of(lists):
    """Returns the mask_mod for the tensors of mask_of()."""
    mask, begins, keys, first = (lists[name] for name in ("mask", "mask_begins", "mask_keys", "mask_first"))
    return mask_mod(lambda b, h, q_idx, kv_idx: mask[begins[b] + (q_idx - first[b]) * keys[b] + kv_idx])
