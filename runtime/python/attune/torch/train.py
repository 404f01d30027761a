# SPDX-License-Identifier: Apache-2.0
"""attention() of tensors that autograd records, in eager mode. Used by ops/attention.py.

The op and its autograd kernels (graph.py, autograd.py) serve all calls, but cost ten times as much as two calls of
the C module. Plain calls are recorded here instead, as one torch.autograd.Function that calls attention() and
attention_backward() on their fast paths."""
import torch

from ..core.flags import is_deterministic
from ..core.tensors import is_numpy
from ..core.torch_state import autocast_dtype
from ..score.features import LEARNED, NUMBERS, TENSORS
from ..ops import attention as _attention, backward as _backward
from ..ops.attention import DEFAULTS
from ..ops.padding import is_between
from ..ops.score_gradient import score_gradient_checked
from . import graph as _graph
from .eager import in_plain_scope
from .key_lists import attend_lists  # for ops/kvcache.py

_FEATURES = frozenset(feature.keyword for feature in TENSORS)  # tensors or arrays
_TENSORS = _FEATURES | {"seed", "offset"}
# Keywords of attention() that are no tensors, and those for which a call takes the op, with their defaults.
_CHOICES = {
    name: DEFAULTS[name]
    for name in ("mask", "window", "scale", "is_causal", "accuracy", "context", "dropout_p", "seed", "offset",
                 "deterministic", *(feature.keyword for feature in NUMBERS))}
_OTHERS = {
    name: default
    for name, default in DEFAULTS.items() if name not in _CHOICES and name not in _FEATURES and name != "return_lse"}
_FLOATS = (torch.bfloat16, torch.float16, torch.float32)


class AttuneAttention(torch.autograd.Function):
    """attention() as an autograd function. choices: keywords that are not tensors. names: names of the keywords that
    are tensors. heads_first: True if q, k, v and o are [batch, num_heads, seqlen, head_dim]."""

    @staticmethod
    def forward(ctx, choices, names, return_lse, heads_first, q, k, v, *features):
        attend = _attention.attend_heads_first if heads_first else _attention.attention
        o, lse = attend(q, k, v, return_lse=True, **choices, **dict(zip(names, features)))
        ctx.set_materialize_grads(False)
        ctx.choices, ctx.names, ctx.heads_first = choices, names, heads_first
        ctx.save_for_backward(q, k, v, o, lse, *features)
        return (o, lse) if return_lse else o

    @staticmethod
    def backward(ctx, dout, dlse=None):
        needs = ctx.needs_input_grad[4:]
        if dout is None and dlse is None:
            return (None,) * (4 + len(needs))
        q, k, v, o, lse, *features = ctx.saved_tensors
        dout = torch.zeros_like(o) if dout is None else dout
        given = {**ctx.choices, **dict(zip(ctx.names, features))}
        learned = [name for name, needed in zip(ctx.names, needs[3:]) if needed]
        found = _gradients((dout, q, k, v, o), lse, dlse, needs[:3], given, learned, ctx.heads_first)
        return None, None, None, None, *(found.get(name) for name in "qkv"), *(found.get(name) for name in ctx.names)


def _gradients(operands, lse, dlse, needs, given, learned, heads_first):
    """Returns the gradients by name. Uses the ops if the backward itself may be differentiated, or if _is_watched().
    """
    asked = "".join(name for name, needed in zip("qkv", needs) if needed)
    *operands, lse = _backward.readable_saved(*operands, lse)
    by_ops = torch.is_grad_enabled() or _is_watched(*operands)
    rows = tuple(x.transpose(1, 2) for x in operands) if heads_first and (by_ops or learned) else operands
    if not by_ops:  # the ops decide it themselves
        given["deterministic"] = is_deterministic(given.get("deterministic"))
    found = {}
    if asked and by_ops:
        made = [
            x.transpose(1, 2) if heads_first and x is not None else x
            for x in _graph.differentiate(*rows, lse, dlse=dlse, gradients=asked, **given)]
        found = dict(zip("qkv", made))
    elif asked:
        made = (_backward.differentiate_heads_first if heads_first else _backward.differentiate)(*operands, lse, dlse,
                                                                                                 asked, **given)
        found = dict(zip(asked, made if isinstance(made, tuple) else (made,)))
    for name in learned:
        found[name] = (_graph.differentiate_scores if by_ops else score_gradient_checked)(name, *rows, lse, dlse=dlse,
                                                                                          **given)
    return found


def _is_watched(*operands):
    """True if a dispatch mode, a transform or a tensor subclass must see ops."""
    plain = all(type(x) is torch.Tensor or type(x) is torch.nn.Parameter for x in operands)
    return not plain or torch._C._len_torch_dispatch_stack() > 0 or not in_plain_scope()


def _is_plain(q, k, v, given):
    """True if AttuneAttention can make the call, with the same result as the op."""
    if _is_watched(q, k, v) or is_between(q, k, v):
        return False
    if q.dtype not in _FLOATS:
        return False
    for name, value in given.items():
        if name in _OTHERS:
            if value is not _OTHERS[name]:
                return False
        elif value is None:
            continue
        elif isinstance(value, torch.Tensor):
            if value.requires_grad and name not in LEARNED:
                return False
        # arrays, pairs, and values that the op refuses
        elif name in _FEATURES or (name in _TENSORS and is_numpy(value)):
            return False
    return True


def _record(q, k, v, given, return_lse, heads_first):
    tensors, choices = {}, {}
    for name, value in given.items():
        if name in _TENSORS and isinstance(value, torch.Tensor):
            tensors[name] = value
        elif name in _CHOICES:
            if value is not _CHOICES[name]:
                choices[name] = value
        elif value is not _OTHERS.get(name):
            raise RuntimeError(
                f"internal error: attention() is recorded without its {name}, of type {type(value).__name__}")
    if choices.get("dropout_p") and given.get("seed") is None:
        tensors["seed"] = _attention.seed_for(q, choices["dropout_p"], None)
    choices.pop("seed" if "seed" in tensors else "", None)
    return AttuneAttention.apply(choices, tuple(tensors), return_lse, heads_first, q, k, v, *tensors.values())


def train(given):
    """Implements attention() for `given`, all of its arguments."""
    q, k, v = given["q"], given["k"], given["v"]
    beside = {name: value for name, value in given.items() if name not in ("q", "k", "v", "return_lse")}
    if not _is_plain(q, k, v, beside):
        return _graph.train(**given)
    return _record(q, k, v, beside, given["return_lse"], False)


def train_heads_first(q, k, v, mask=None, window=None, scale=None, **choices):
    """Implements attention() for operands [batch, num_heads, seqlen, head_dim], and o likewise."""
    given = {"mask": mask, "window": window, "scale": scale, **choices}
    casts = torch._C._is_any_autocast_enabled() and autocast_dtype(q, k, v) is not None
    if not casts and _is_plain(q, k, v, given):
        return _record(q, k, v, given, given.pop("return_lse", False), True)
    result = _attention.attention(*(x.transpose(1, 2) for x in (q, k, v)), **given)
    return (result[0].transpose(1, 2), result[1]) if isinstance(result, tuple) else result.transpose(1, 2)
