# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's packed masks of bits, by PyTorch's operations. See __init__.py."""

from . import arguments


def _weights(bitorder, device):
    import torch
    if not isinstance(bitorder, str) or bitorder not in ("big", "little"):
        raise ValueError(f"bitorder is {bitorder!r}; must be 'big' or 'little'")
    steps = torch.arange(8, dtype=torch.uint8, device=device)
    return torch.ones((), dtype=torch.uint8, device=device) << (steps if bitorder == "little" else 7 - steps)


def packbits(x, bitorder="big"):
    """Returns x packed into bits as by numpy.packbits(), uint8 [ceil(n / 8)]. x: bools, or integers 0 and 1, flattened.
    The values of integers are checked, which waits for the device."""
    import torch
    weights = _weights(bitorder, _device_of(x))
    bits = arguments.bools("x", x).flatten()
    bits = torch.nn.functional.pad(bits, (0, -bits.numel() % 8)).view(-1, 8)
    return (bits.to(torch.uint8) * weights).sum(-1, dtype=torch.uint8)


def _device_of(x):
    if not hasattr(x, "device"):
        raise TypeError(f"x is of type {type(x).__name__}; must be a PyTorch tensor of bools")
    return x.device


def segment_packbits(x, indptr, bitorder="big"):
    """Packs each part x[indptr[i]:indptr[i + 1]] by packbits(), each beginning with a new byte. Waits for the device.

    Returns (the bytes of all parts end to end, uint8; the begin of each part and the end of the last, [parts + 1] of
    indptr's dtype)."""
    import torch
    arguments.check_integers("indptr", indptr, "[parts + 1]")
    device, x = _device_of(x), arguments.bools("x", x).flatten()
    begins = indptr.to(device).long()
    counts = begins[1:] - begins[:-1]
    first, end = (int(begins[0]), int(begins[-1])) if begins.numel() else (0, 0)
    if counts.numel() and (first < 0 or end > x.numel() or int(counts.min()) < 0):
        raise ValueError(
            f"indptr goes from {first} to {end}; must start at 0 or above, never decrease, and end at {x.numel()} or "
            f"below (the elements of x)")
    found = torch.nn.functional.pad(((counts + 7) // 8).cumsum(0), (1, 0))
    part = torch.arange(counts.numel(), device=device).repeat_interleave(counts)
    bits = torch.zeros(8 * int(found[-1]), dtype=torch.bool, device=device)
    bits[torch.arange(first, end, device=device) - begins[:-1][part] + 8 * found[part]] = x[first:end]
    return packbits(bits, bitorder), found.to(indptr.dtype)
