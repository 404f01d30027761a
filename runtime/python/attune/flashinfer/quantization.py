# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's masks in bits, by PyTorch's operations. See __init__.py."""


def _weights(bitorder, device):
    import torch
    if bitorder not in ("big", "little"):
        raise ValueError(f"bitorder is {bitorder!r}; accepted are 'big' and 'little'")
    steps = torch.arange(8, dtype=torch.uint8, device=device)
    return torch.ones((), dtype=torch.uint8, device=device) << (steps if bitorder == "little" else 7 - steps)


def packbits(x, bitorder="big"):
    """uint8 [ceil(n / 8)] of bool x, flattened, as numpy.packbits() makes it."""
    import torch
    bits = x.flatten().bool()
    bits = torch.nn.functional.pad(bits, (0, -bits.numel() % 8)).view(-1, 8)
    return (bits.to(torch.uint8) * _weights(bitorder, x.device)).sum(-1, dtype=torch.uint8)


def segment_packbits(x, input_indptr, bitorder="big"):
    """packbits() of each part x[input_indptr[i]:input_indptr[i + 1]], end to end, each from a byte on; waits for the device. Returns (uint8, int32 [parts + 1],
    where each begins)."""
    import torch
    begins = input_indptr.to(x.device).long()
    counts = begins[1:] - begins[:-1]
    found = torch.nn.functional.pad(((counts + 7) // 8).cumsum(0), (1, 0))
    first, end = (int(begins[0]), int(begins[-1])) if begins.numel() else (0, 0)
    part = torch.arange(counts.numel(), device=x.device).repeat_interleave(counts)
    bits = torch.zeros(8 * int(found[-1]), dtype=torch.bool, device=x.device)
    bits[torch.arange(first, end, device=x.device) - begins[:-1][part] + 8 * found[part]] = x.flatten()[first:end].bool()
    return packbits(bits, bitorder), found.to(input_indptr.dtype)
