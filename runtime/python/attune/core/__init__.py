# SPDX-License-Identifier: Apache-2.0
"""The ground floor: the library, tensors of PyTorch and NumPy, the problem's text, checks of arguments.

Imports nothing of attune above it, and PyTorch never. Start with library.py (the C module), then
tensors.py and problem.py."""
