# SPDX-License-Identifier: Apache-2.0
"""Attention for PyTorch tensors and NumPy arrays: a thin layer over the C interface (attune.h).

    import attune
    o = attune.attention(q, k, v, mask="causal")                  # [batch, seqlen, num_heads, head_dim]
    o = attune.attention(q, k, v, mask_mod=lambda b, h, q_idx, kv_idx: (q_idx - kv_idx) % 2 == 0)  # like flex_attention

    context = attune.Context("cuda:0")
    plan = context.plan("dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right")
    print(plan.explain())
    plan.run(q, k, v, o)                                          # on PyTorch's current stream

    q8, q_scale = attune.quantise(q, scale_block=128)             # 8 bits; k and v likewise
    o = attune.attention(q8, k8, v8, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, scale_block=128)

    attune.prepare(attune.attention, q, k, v, mask="causal")      # before a CUDA graph's capture
    with torch.cuda.graph(graph):
        o = attune.attention(q, k, v, mask="causal")

PyTorch's ops are in attune.torch. attune.sdpa, attune.flash, attune.flash_mla, attune.flashinfer and attune.flex have
the signatures of other libraries (examples/guide/signatures.md).

PyTorch is imported only if a call gets its tensors. Arguments that do not fit raise ValueError or TypeError before
anything runs. If the library refuses a call, attune.Error is raised with a status and a message.
PyTorch's autograd trains through attention(), with gradients of q, k, v, biases, slopes and sinks. attention_backward()
and score_gradient() compute the same gradients explicitly, for NumPy too."""
# Rooms: core <- score <- ops <- torch <- adapters <- tools; tests/check_layers.py holds the order.
from . import block_map
from .core import torch_state as _torch_state
from .core.library import Error, version
from .core.problem import problem_text
from .score.block_maps import BlockMap
from .score.dropout import dropout_mask, dropout_rate
from .score.programs import mask_mod, score_mod
from .score.scores import alibi_slopes
from .score.trees import PrefixTree, prefix_tree, prefix_tree_mask, tree_mask
from .ops.append import append_kv
from .ops.attention import attention
from .ops.backward import attention_backward
from .ops.cascade import cascade
from .ops.choice import index_scores, top_k
from .ops.context import Context, Plan, pin_digest
from .ops.kvcache import attention_kvcache
from .ops.merge import merge
from .ops.prepare import (prepare, prepare_append_kv, prepare_cascade, prepare_kvcache, prepare_merge, prepare_quantise,
                          prepare_quantize)
from .ops.quantise import quantise, quantise as quantize
from .ops.rotary import rotary_table
from .ops.score_gradient import score_gradient

__version__ = version()
__all__ = [
    "BlockMap", "Context", "Error", "Plan", "PrefixTree", "alibi_slopes", "append_kv", "attention",
    "attention_backward", "attention_kvcache", "block_map", "cascade", "dropout_mask", "dropout_rate",
    "index_scores", "mask_mod", "merge", "patch_diffusers", "pin_digest", "prefix_tree", "prefix_tree_mask",
    "prepare", "prepare_append_kv", "prepare_cascade", "prepare_kvcache", "prepare_merge", "prepare_quantise",
    "prepare_quantize", "problem_text", "quantise", "quantize", "register_transformers", "rotary_table",
    "score_gradient", "score_mod", "top_k", "tree_mask", "tune", "tune_on_first_use", "version", "why"]


def _load_graph():
    from .torch import graph
    return graph


def _load_train():
    from .torch import train
    return train


_torch_state.load_graph, _torch_state.load_train = _load_graph, _load_train
_WHEN_USED = {
    "tune": "tools.tune", "TuneReport": "tools.tune", "tune_on_first_use": "tools.tune_on_first_use",
    "why": "tools.why", "Why": "tools.why", "patch_diffusers": "diffusers", "register_transformers": "transformers"}
_MODULES = ("diffusers", "distributed", "flash", "flash_mla", "flashinfer", "flex", "sdpa", "torch", "transformers")


def __dir__():
    """Returns all public names, including the names that are imported on first use."""
    return sorted({*globals(), *_WHEN_USED, *_MODULES})


def __getattr__(name):
    """Imports rarely used names and modules on first use."""
    if name not in _WHEN_USED and name not in _MODULES:
        raise AttributeError(f"module 'attune' has no attribute {name!r}")
    import importlib
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    globals()[name] = value = getattr(importlib.import_module(f".{_WHEN_USED[name]}", __name__), name)
    return value
