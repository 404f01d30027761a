# SPDX-License-Identifier: Apache-2.0
"""Autograd of torch.ops.attune.attention: kernels of the dispatch key Autograd, which __init__.py registers.
(torch.library's register_autograd does not take ops whose keywords are tensors.)

A recorded forward always computes lse, and saves q, k, v, o and lse. Its backward calls
torch.ops.attune.attention_backward once, for the needed gradients only. It calls score_gradient once for each bias,
slopes, sinks or tensor of a score_mod that requires gradients."""
import torch

from ..core.torch_state import refuse_gradients
from ..score.features import LEARNED
from . import sharding
from .spec import parse_spec

_native = torch._C


def _tensors_of(keywords):
    """Returns pairs (name, tensor) of an op's keywords."""
    found = [(name, value) for name, value in keywords.items() if isinstance(value, torch.Tensor)]
    return found + [(f"captures[{number}]", value) for number, value in enumerate(keywords.get("captures") or ())]


def _below(op, keyset, *arguments, **keywords):
    """Calls the op below autograd, through the rest of the dispatcher."""
    with _native._AutoDispatchBelowAutograd():
        return op.redispatch(keyset & _native._after_autograd_keyset, *arguments, **keywords)


def _captures_of_score_mod(keywords):
    """Returns the names of score_mod's captures, as in _tensors_of(). They precede mask_mod's."""
    program = parse_spec(keywords.get("spec", "")).programs.get("score_mod")
    return [] if program is None else [f"captures[{number}]" for number in range(len(program.captures))]


def _with(keywords, learned):
    """Returns the keywords with the tensors of `learned` put in. learned: tensors by name, as in _tensors_of()."""
    captures = list(keywords.get("captures") or ())
    for name, tensor in learned.items():
        if name.startswith("captures["):
            captures[int(name[9:-1])] = tensor
    named = {name: tensor for name, tensor in learned.items() if not name.startswith("captures[")}
    return {**keywords, **named, **({"captures": captures} if captures else {})}


def _check_recorded(q, k, v, keywords):
    of_mod = _captures_of_score_mod(keywords)
    refuse_gradients([
        (name, tensor) for name, tensor in _tensors_of(keywords) if name not in LEARNED and name not in of_mod],
                     f". attune gives gradients of q, k, v, {', '.join(LEARNED)} and the tensors that score_mod reads")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.element_size() == 1:
            raise ValueError(
                f"{name} is {tensor.dtype} in a call that autograd records; must be bf16, fp16 or fp32 (8-bit operands "
                "have no gradients; run them under torch.no_grad())")


class AttuneAttentionOp(torch.autograd.Function):
    """torch.ops.attune.attention or attention_max_logits as an autograd function."""

    @staticmethod
    def forward(ctx, call, q, k, v, *learned):
        op, keyset, return_lse, keywords, hidden, ctx.learned = call
        keywords = _with(keywords, dict(zip(ctx.learned, learned)))
        with hidden():
            o, lse, *logits = _below(op, keyset, q, k, v, return_lse=True, **keywords)
        ctx.mark_non_differentiable(*logits)
        ctx.set_materialize_grads(False)
        ctx.keywords = {
            name: value
            for name, value in keywords.items() if not isinstance(value, torch.Tensor) and name != "captures"}
        named = {name: value for name, value in keywords.items() if isinstance(value, torch.Tensor)}
        ctx.names = tuple(named)
        ctx.save_for_backward(q, k, v, o, lse, *named.values(), *(keywords.get("captures") or ()))
        return (o, lse, *logits) if return_lse or logits else o

    @staticmethod
    def backward(ctx, dout, dlse=None, _=None):
        asked = "".join(name for name, needed in zip("qkv", ctx.needs_input_grad[1:]) if needed)
        if dout is None and dlse is None:
            return (None,) * (4 + len(ctx.learned))
        q, k, v, o, lse, *rest = ctx.saved_tensors
        given = {**ctx.keywords, **dict(zip(ctx.names, rest))}
        captures = rest[len(ctx.names):]
        if captures:
            given["captures"] = captures
        dout = torch.zeros_like(o) if dout is None else dout
        found = (None,) * 3
        if asked:
            found = torch.ops.attune.attention_backward(dout, q, k, v, o, lse, dlse=dlse, gradients=asked, **given)
        of_scores = [
            torch.ops.attune.score_gradient(dout, q, k, v, o, lse, of=name, dlse=dlse, **given) if needed else None
            for name, needed in zip(ctx.learned, ctx.needs_input_grad[4:])]
        return None, *(gradient if name in asked else None for name, gradient in zip("qkv", found)), *of_scores


class AttuneBackwardOp(torch.autograd.Function):
    """torch.ops.attune.attention_backward as an autograd function. Its own backward raises: there is no second
    derivative."""

    @staticmethod
    def forward(ctx, call, *arguments):
        op, keyset, keywords = call
        return _below(op, keyset, *arguments, **keywords)

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError(
            "gradients of attention are differentiated, and attune has no second derivative; use one backward "
            "(create_graph=False), or PyTorch's own math attention if you need a second derivative")


def attention_kernel(op, hidden):
    """Returns the op's kernel for the key Autograd. hidden: a scope around a kernel whose call must not be repeated
    without autograd."""
    def attention(keyset, q, k, v, *, return_lse=True, **keywords):
        sharding.prepare(keywords.get("captures"))
        inputs = (q, k, v)
        recorded = torch.is_grad_enabled() and any(x.requires_grad
                                                   for x in (*inputs, *(tensor for _, tensor in _tensors_of(keywords))))
        if not recorded:
            return _below(op, keyset, q, k, v, return_lse=return_lse, **keywords)
        _check_recorded(q, k, v, keywords)
        learned = {name: tensor for name, tensor in _tensors_of(keywords) if tensor.requires_grad}
        rest = {name: value for name, value in keywords.items() if name not in learned}
        call = op, keyset, return_lse, rest, hidden, tuple(learned)
        result = AttuneAttentionOp.apply(call, q, k, v, *learned.values())
        if return_lse:
            return result
        o, *rest = result if isinstance(result, tuple) else (result,)
        return (o, o.new_empty((0,), dtype=torch.float32), *rest[1:])

    return attention


def backward_kernel(op):
    """Returns attention_backward's kernel for the key Autograd."""
    def attention_backward(keyset, *arguments, **keywords):
        sharding.prepare(keywords.get("captures"))
        if torch.is_grad_enabled() and any(x.requires_grad
                                           for x in (*arguments, *(tensor for _, tensor in _tensors_of(keywords)))):
            return AttuneBackwardOp.apply((op, keyset, keywords), *arguments)
        return _below(op, keyset, *arguments, **keywords)

    return attention_backward
