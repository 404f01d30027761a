# SPDX-License-Identifier: Apache-2.0
"""Lists of lengths and of begins: which of them the host can read, and the requests of rows. Used by flash/ and
flashinfer/."""
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
