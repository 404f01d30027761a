# SPDX-License-Identifier: Apache-2.0
"""Lists of lengths, begins and slots: which of them the host can read, the requests of rows, and rows that a list
puts into a cache. Used by flash/ and flashinfer/."""
from ..core.preparing import preparing
from ..core.torch_state import needs_op


def is_recorded(tensor):
    """True if the call becomes part of a graph, where tensors have no values yet."""
    import torch
    return torch.compiler.is_compiling() or needs_op(tensor, autocast=False) is not None


def host_sees(numbers):
    """True if the host can read a list without waiting for a device, and nothing records the call."""
    return numbers.device.type == "cpu" and not is_recorded(numbers)


def requests_of_rows(cu_seqlens, rows, first=0):
    """Returns the sequence number of each row from `first` on. Rows before the first sequence get -1, rows after the
    last get batch."""
    import torch
    begins = cu_seqlens.to(torch.int64).contiguous()
    return torch.searchsorted(begins, torch.arange(first, first + rows, device=begins.device), right=True) - 1


def write_codes(cache, new, slots):
    """Writes rows [.., num_heads, head_dim] into the cache at `slots`. Uses only PyTorch operations that do not wait,
    so a CUDA graph can capture them.

    slots: int64 [..], page (or slot) * keys per page + index in the page. A row with -1 is not written."""
    import torch
    cache, new, slots, keys = cache.view(torch.uint8), new.view(torch.uint8).flatten(
        0, -3), slots.flatten(), cache.shape[1]
    if new.shape[0] == 0 or cache.shape[0] == 0 or preparing():
        return
    inside = slots >= 0
    # A row without a place repeats the write of a row that has one; if none has, it writes the value that is there.
    row = torch.where(inside, torch.arange(inside.shape[0], device=inside.device), inside.int().argmax())
    slot = slots[row].clamp(min=0)
    place, key = slot // keys, slot % keys
    cache[place, key] = torch.where(inside.any(), new[row], cache[place, key])
