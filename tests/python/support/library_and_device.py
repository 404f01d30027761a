# SPDX-License-Identifier: Apache-2.0
"""The library under test: NumPy, or PyTorch on the device named by the first argument, which is removed from the
arguments. Ends the process aloud (status 77) without NumPy, or without PyTorch and that device."""
import sys

from skips import np, skip  # noqa: F401

DEVICE = sys.argv.pop(1) if len(sys.argv) > 1 and sys.argv[1] in ("cpu", "cuda") else ""
torch = None
if DEVICE:
    try:
        import torch
    except ImportError:
        skip("there is no PyTorch here")
    if DEVICE == "cuda" and not torch.cuda.is_available():
        skip("PyTorch sees no GPU here")
