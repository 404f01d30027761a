# SPDX-License-Identifier: Apache-2.0
"""attune from Python: a thin layer over the C interface (attune.h), for PyTorch tensors and NumPy arrays.

    import attune
    o = attune.attention(q, k, v, mask="causal_bottom_right")     # [batch, seqlen, num_heads, head_dim]

    context = attune.Context("cuda:0")
    plan = context.plan("dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right")
    print(plan.explain())
    plan.run(q, k, v, o)                                          # on torch's current stream

PyTorch is used only when tensors of it are given. Errors raise attune.Error with the status and the library's sentence.
"""
from ._library import Error, version
from ._context import Context, Plan, attention, problem_text

__all__ = ["Context", "Error", "Plan", "attention", "problem_text", "version"]
