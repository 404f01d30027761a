# SPDX-License-Identifier: Apache-2.0
"""Runs calls that have no gradients, as in FlashAttention, on tensors that autograd records. The forward runs, and a
backward raises. Used by the functions of flash/."""
from ..core.torch_state import records_gradients


def forward_alone(run, why, *operands):
    """Returns run(), a tensor or a tuple of tensors and None.

    If autograd records `operands` (tensors, numbers and None), results require gradients, and their backward raises
    RuntimeError with `why`: the call that has no gradients, and what to do instead. In a graph the call's ops raise as
    usual."""
    import torch
    if not records_gradients(*operands) or torch.compiler.is_compiling():
        return run()
    recorded = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
    return _function().apply(run, why, *recorded)


def _function():
    import torch
    global _made
    if _made is None:
        class ForwardAlone(torch.autograd.Function):
            @staticmethod
            def forward(ctx, run, why, *recorded):
                ctx.why = why
                return run()

            @staticmethod
            def backward(ctx, *gradients):
                raise RuntimeError(f"gradients are asked of {ctx.why}")
        _made = ForwardAlone
    return _made


_made = None
