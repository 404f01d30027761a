# SPDX-License-Identifier: Apache-2.0
"""Autograd of attention_kvcache() over lists of keys. Used by ops/kvcache.py, through train.py.

The keys are those of the batch entry: slots that requests fill. If v is a view of k's memory, as in latent attention,
one gradient of k includes that of v."""
import torch
from torch.autograd.function import once_differentiable

from ..core.torch_state import refuse_gradients
from ..ops import backward as _backward, kvcache as _kvcache
from ..ops.key_lists import v_is_in_k

_TAKEN = frozenset(("q", "k_cache", "v_cache", "key_indices", "key_counts", "scale", "context", "return_lse", "mask",
                    "is_causal", "window", "batch_invariant"))
_FORWARD = "scale", "context", "batch_invariant", "mask", "window", "is_causal"  # the last three hide no key


def _is_in_k(k, v):
    """True if autograd leads the gradient of k to v as well: both need one, and v is a view of k or of k's base."""
    if not (k.requires_grad and v.requires_grad and v_is_in_k(k, v)) or v._base is None:
        return False
    return v._base is k or v._base is k._base


class AttuneListAttention(torch.autograd.Function):
    """attention_kvcache() over lists of keys as an autograd function. choices: keywords that are not tensors."""

    @staticmethod
    def forward(ctx, choices, in_k, return_lse, q, k, v, key_indices, key_counts):
        o, lse = _kvcache.attention_kvcache(q, k, v, key_indices=key_indices, key_counts=key_counts, return_lse=True,
                                            **choices)
        ctx.set_materialize_grads(False)
        ctx.choices, ctx.in_k = choices, in_k
        ctx.save_for_backward(q, k, v, o, lse, key_indices, key_counts)
        return (o, lse) if return_lse else o

    @staticmethod
    @once_differentiable
    def backward(ctx, dout, dlse=None):
        found = (None,) * 3
        if dout is not None or dlse is not None:
            *saved, key_indices, key_counts = ctx.saved_tensors
            dout = torch.zeros_like(saved[3]) if dout is None else dout
            given = dict(zip(("dout", "q", "k", "v", "o", "lse"), _backward.readable_saved(dout, *saved)))
            lists = dict(key_indices=key_indices, key_places=None, key_counts=key_counts)
            found = _backward.backward_over_lists(given, dlse, lists, in_k=ctx.in_k, scale=ctx.choices["scale"],
                                                  context=ctx.choices["context"])
        needs = ctx.needs_input_grad[3:6]
        return None, None, None, *(one if needed else None for one, needed in zip(found, needs)), None, None


def attend_lists(given):
    """Implements attention_kvcache() for `given`, all of its arguments, of which autograd records q, k_cache or
    v_cache."""
    q, k, v = given["q"], given["k_cache"], given["v_cache"]
    others = [name for name, value in given.items() if name not in _TAKEN and value is not None]
    if others:
        raise ValueError(
            f"{others[0]} is given, and autograd records the call; must be None: attention_kvcache() has gradients "
            f"with key_indices over slots that requests fill (or make the call under torch.no_grad())")
    refuse_gradients((name, given[name]) for name in ("key_indices", "key_counts"))
    for name, tensor in (("q", q), ("k_cache", k), ("v_cache", v)):
        if tensor.dim() != 4 or tensor.shape[0] != q.shape[0] or tensor.element_size() == 1:
            raise ValueError(
                f"{name} is {tensor.dtype} of shape {tuple(tensor.shape)}, and autograd records the call; must be "
                f"bf16, fp16 or fp32 with 4 axes, the first of {q.shape[0]}: a slot for each batch entry of q")
    choices = {name: given[name] for name in _FORWARD}
    return AttuneListAttention.apply(choices, _is_in_k(k, v), given["return_lse"], q, k, v, given["key_indices"],
                                     given["key_counts"])
