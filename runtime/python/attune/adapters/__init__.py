# SPDX-License-Identifier: Apache-2.0
"""Parts that the interfaces of other libraries share: names, windows, errors, operands in their forms.

The interfaces are ../flash, ../flashinfer, ../transformers, ../flex.py, ../sdpa.py and ../diffusers.py. All of these
may import torch, ops, score and core. Start with ../sdpa.py."""
