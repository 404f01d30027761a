# SPDX-License-Identifier: Apache-2.0
"""Sharding rules of torch.ops.attune for DTensor: batch entries and heads are computed where they are, with no gather.

attention, attention_backward and score_gradient have rules. Tensors are sharded on batch, or on heads if the mesh
divides the heads of k. Sinks, slopes, biases and masks are sharded like the heads or batch entries that they belong to;
axes of 1 are repeated. What counts heads or batch entries of the whole (dropout, programs, block maps, scales of 8-bit
operands) is computed on whole tensors: DTensor then gathers. So it does with sequences, which attune.distributed
spreads.

DTensor's module is large. So the rules are registered by the first call that finds it loaded."""
import sys

from ..score.features import TENSORS
from .spec import parse_spec

_AXES = {name: axes for feature in TENSORS for name, axes in zip(feature.captures, feature.axes)}
_ROWS, _OF_LSE = ("batch", "seqlen_q", "num_heads_q", "head_dim"), ("batch", "num_heads_q", "seqlen_q")
_AXES |= {name: _ROWS for name in ("q", "k", "v", "o", "dout")} | {"lse": _OF_LSE, "dlse": _OF_LSE}
_is_registered = False


def prepare(captures):
    """Registers the rules if DTensor is loaded and they are not. captures: the tensors that the call's programs read.
    Raises ValueError if one is a DTensor, for which DTensor's own message would name no argument."""
    if not _is_registered and "torch.distributed.tensor" in sys.modules:
        _register()
    if captures and _is_registered:
        from torch.distributed.tensor import DTensor
        if any(isinstance(x, DTensor) for x in captures):
            raise ValueError("a tensor that score_mod or mask_mod reads is a DTensor; must be a plain tensor, and so "
                             "must q, k and v then: give x.to_local()")


def _dim_of(name, shape, axis):
    """Returns the dim of a tensor's axis, or None if it has none, or one of length 1."""
    axes = _AXES.get(name, ())[-len(shape):] if shape else ()
    if axis not in axes or shape[axes.index(axis)] == 1:
        return None
    return axes.index(axis)


def _counts_whole(spec, given):
    """True if results depend on the numbers of heads or batch entries in the whole."""
    parsed = parse_spec(spec)
    return bool(parsed.programs or parsed.keywords.get("dropout_p")) or any(name not in _AXES
                                                                            for name, _ in _named(given))


def _divides(specs):
    """True if the mesh dims that shard heads divide the heads of each of q, k and v."""
    for spec in specs:
        parts = 1
        for size, placement in zip(spec.mesh.shape, spec.placements):
            parts *= size if placement.is_shard(2) else 1
        if spec.shape[2] % parts:
            return False
    return True


def _rules(spec, tensors, outputs, given):
    """Returns what register_sharding takes. tensors: pairs of a name and its DTensorSpec, in the order of the op's
    arguments. outputs: the name of the tensor that an output is like, or None for an empty one."""
    from torch.distributed.tensor import Partial, Replicate, Shard
    of = dict(tensors)
    rules = [([Replicate()] * len(outputs), [Replicate()] * len(tensors))]
    axes = () if _counts_whole(spec, given) else ("batch", "num_heads_q")
    for axis in axes:
        if axis == "num_heads_q" and not _divides((of["q"], of["k"], of["v"])):
            continue
        dims = {name: _dim_of(name, x.shape, axis) for name, x in tensors}
        placed = lambda name, else_: else_ if dims[name] is None else Shard(dims[name])
        # a gradient of a tensor that all share is a sum
        rules.append(([Replicate() if name is None else placed(name, Partial()) for name in outputs],
                      [placed(name, Replicate()) for name, _ in tensors]))
    return rules


def _named(given):
    """Returns pairs of a name and a DTensorSpec: the tensors of keywords, in their order."""
    return [(name, x) for name, value in given.items()
            for x in (value if isinstance(value, (list, tuple)) else (value,)) if hasattr(x, "placements")]


def _attention(q, k, v, *, spec="", return_lse=True, **given):
    tensors = [("q", q), ("k", k), ("v", v), *_named(given)]
    rules = _rules(spec, tensors, ("q", "q"), given)
    return [([o[0], _lse_like(o[0], return_lse)], inputs) for o, inputs in rules]


def _lse_like(o, returned):
    from torch.distributed.tensor import Replicate, Shard
    return Shard(1) if returned and o.is_shard(2) else o if returned else Replicate()


def _attention_backward(dout, q, k, v, o, lse, *, spec="", gradients="qkv", **given):
    tensors = [("dout", dout), ("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), *_named(given)]
    return _rules(spec, tensors, [name if name in gradients else None for name in "qkv"], given)


def _score_gradient(dout, q, k, v, o, lse, *, of, spec="", **given):
    tensors = [("dout", dout), ("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), *_named(given)]
    return _rules(spec, tensors, (of,), given)


def _register():
    global _is_registered
    import torch
    from torch.distributed.tensor import DTensor
    try:
        from torch.distributed.tensor.experimental import register_sharding
        cached = DTensor._op_dispatcher.sharding_propagator.op_to_schema_info
    except (ImportError, AttributeError):  # another PyTorch: DTensor refuses the ops
        return
    _is_registered = True
    ops = torch.ops.attune
    for op, rule in ((ops.attention, _attention), (ops.attention_backward, _attention_backward),
                     (ops.score_gradient, _score_gradient)):
        register_sharding(op.default)(rule)
        # DTensor keeps what a rule returned, for calls with equal numbers. Texts and tensors count too.
        cached[op.default].static_kwargkey = [
            one.name for one in op.default._schema.arguments
            if one.kwarg_only and one.name not in ("captures", "scalars")]
