# SPDX-License-Identifier: Apache-2.0
"""Rows of a cache's own 8 bits, written as they stand: append_kv() rounds what is wider. Used by _flash_serving.py and flashinfer/page.py."""


def write_codes(cache, new, slots):
    """Writes rows [.., num_heads, head_dim] at `slots` (int64 [..]: the place of a page, or of a request's slot, times their keys and the key there; -1:
    nowhere) by PyTorch's operations, which wait for nothing: a graph can capture them."""
    import torch
    cache, new, slots, keys = cache.view(torch.uint8), new.view(torch.uint8).flatten(
        0, -3), slots.flatten(), cache.shape[1]
    if new.shape[0] == 0 or cache.shape[0] == 0:
        return
    inside = slots >= 0
    # A row without a place does what a row with one does; if none has, it writes what stands there.
    row = torch.where(inside, torch.arange(inside.shape[0], device=inside.device), inside.int().argmax())
    slot = slots[row].clamp(min=0)
    place, key = slot // keys, slot % keys
    cache[place, key] = torch.where(inside.any(), new[row], cache[place, key])
