# SPDX-License-Identifier: Apache-2.0
"""Writes rows of an 8-bit cache's own dtype unchanged; append_kv() rounds wider ones. Used by flash/serving.py and
flashinfer/page.py."""
from ..core.preparing import preparing


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
