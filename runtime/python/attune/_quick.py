# SPDX-License-Identifier: Apache-2.0
"""What the C module (runtime/python/module/) needs of Python: which types of arguments there are, the functions that check a call, and
recipes, by which calls like one that was checked are run without any of this. Used by _context.py and _attention.py."""
import ctypes
import inspect
import sys

from . import _tensors as tensors
from ._library import Capture, Operands, Scale, ScoreOperands, Tensor, module

CALLS_KEPT = 512  # of contexts that are no argument, by what they depend on
_UNKNOWN, _IDENTITY, _ARRAY, _CONTEXT = range(4)             # TypeKind of tensors.h
_ALIGNED, _WRITTEN, _GUARDED, _IN_PLACE = 1, 2, 4, 8         # flags of entry.h
_TENSOR_BYTES, _CAPTURE_BYTES = ctypes.sizeof(Tensor), ctypes.sizeof(Capture)
_RUN_OPERANDS = ("q", "k", "v", "o", "lse", "q_scale", "k_scale", "v_scale")
_FEATURES = ("bias", "relative_bias", "alibi_slopes", "mask_tensor", "key_lengths", "documents", "prefix", "sinks")


def _probe(of):
    """What arguments of this very type are; subclasses of tensors have ways of their own, and take Python's."""
    from ._context import Context
    if of is Context:
        return _CONTEXT
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and of is numpy.ndarray:
        return _ARRAY
    if issubclass(of, type) or (numpy is not None and issubclass(of, numpy.dtype)) or (torch is not None and of is torch.dtype):
        return _IDENTITY
    if torch is not None and of in (torch.Tensor, getattr(getattr(torch, "nn", None), "Parameter", None)):
        capsule = getattr(of, "__dlpack_c_exchange_api__", None)
        return None if capsule is None else (capsule, torch.is_grad_enabled)
    return None


def table(capacity):
    return None if module is None else module.Table(capacity)


_calls = table(CALLS_KEPT)
if module is not None:
    module.set_probe(_probe)


def forget():
    """Calls without a Context among their arguments look for their plans again."""
    if _calls is not None:
        _calls.clear()


def _signature(function, skip=0):
    """Text that inspect reads from a C function's doc, then its names, defaults, and how many are required and positional."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[skip:]
    required = [p.name for p in parameters if p.default is p.empty]
    positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
    text = f"{function.__name__}({'$self, ' if skip else ''}{str(signature.replace(parameters=parameters))[1:]}\n--\n\n{inspect.getdoc(function)}"
    return text, tuple(p.name for p in parameters), tuple(p.default for p in parameters[len(required):]), len(required), positional


def function(entry, checked):
    """The quick way of `entry`, which hands over all its arguments in their order. checked(*arguments) gives (result, recipe)."""
    text, names, defaults, required, _ = _signature(entry)
    return module.function(entry.__name__, text, names, defaults, required, len(names), names.index("context"), checked, _calls)


def plan_method(entry, checked):
    text, names, defaults, required, positional = _signature(entry, skip=1)
    return module.plan_method(entry.__name__, text, names, defaults, required, positional, checked)


def _is_operand(value):
    return tensors.is_torch(value) or tensors.is_numpy(value)


def _indices(arguments):
    """Numbers of the tensors among the arguments, by name, as key.c counts them."""
    found, count = {}, 0
    for name, value in arguments.items():
        for part in value if type(value) is tuple else (value,):
            if _is_operand(part):
                found.setdefault(name, []).append(count)
                count += 1
    return found


def _span(name, tensor):
    """Bytes from the first element to behind the last."""
    if tensors.size_of(tensor.shape) == 0:
        return 0
    strides = tensors.element_strides(name, tensor)
    return (sum((extent - 1) * abs(stride) for extent, stride in zip(tensor.shape, strides)) + 1) * tensors.item_bytes(tensor)


def _at(field, inner=Tensor.data):
    """Where a field of attune_operands has its address."""
    return getattr(Operands, field).offset + inner.offset


def _main_places(indices, layout, arguments, out_name):
    in_place = _IN_PLACE if layout.q == layout.o else 0
    yield indices["q"][0], (_at("q"),), layout.q.span, _ALIGNED | _GUARDED | in_place
    yield indices["k"][0], (_at("k"),), layout.k.span, _ALIGNED | _GUARDED
    yield indices["v"][0], (_at("v"),), layout.v.span, _ALIGNED | _GUARDED
    if out_name in indices:
        yield indices[out_name][0], (_at("o"),), layout.o.span, _ALIGNED | _WRITTEN | in_place
    if "lse" in indices:
        yield indices["lse"][0], (Operands.lse.offset,), layout.lse.span, _WRITTEN
    for name in ("q_scale", "k_scale", "v_scale"):
        if name in indices:
            yield indices[name][0], (_at(name, Scale.data),), _span(name, arguments[name]), _GUARDED


def _capture_places(indices, scores, first):
    """Captures behind the struct, in the order of Scores.captures; one tensor may be two of them."""
    places = {}
    names = [name for name, _, _ in scores.captures]
    for feature in _FEATURES:
        captures = [i for i, name in enumerate(names) if name == feature or name in (f"{feature}_q", f"{feature}_kv")]
        for capture, index in zip(captures, indices.get(feature, []) * len(captures)):
            places.setdefault(index, []).append(first + capture * _CAPTURE_BYTES + Capture.data.offset)
    return [(index, tuple(at), 0, 0) for index, at in places.items()]


def _numbers(scales):
    """Whether a factor is a number that became a tensor of that one call."""
    return any(scale is not None and not _is_operand(scale) and scale != 1 for scale in scales)


def _recipe(plan, keep, stream, blob, pointers, places, fresh, results, indices):
    if sorted(index for index, *_ in places) != sorted(sum(indices.values(), [])):
        return None  # a tensor stands where its value counts, as a scale
    return (keep, plan.handle.value, plan.ordinal, plan.workspace_bytes, plan.zeroed_bytes, stream, blob, tuple(pointers), tuple(places),
            tuple(fresh), tuple(results))


def recipe_of_run(plan, layout, operands, q, k, v, o, lse, scales, stream):
    """What entry.h describes, for calls of Plan.run() like this one; None where there is none. The plan itself owns it."""
    if _numbers(scales) or not (stream is None or type(stream) is int):
        return None
    arguments = dict(zip(_RUN_OPERANDS, (q, k, v, o, lse, *scales)))
    indices = _indices(arguments)
    places = list(_main_places(indices, layout, arguments, "o"))
    pointers, blob, kept = _with_scores(operands)
    return _recipe(plan, kept, -1 if stream is None else stream, blob, pointers, places, (), (), indices)


def _with_scores(operands):
    """Pairs of a pointer's place and its aim, the bytes of a struct and of the scores that it points to, and what these point to."""
    blob = bytes(operands)
    if not operands.scores:
        return [], blob, None
    scores = operands.scores.contents
    at = len(blob)
    captures = bytes((Capture * scores.num_captures).from_address(ctypes.addressof(scores.captures.contents))) if scores.num_captures else b""
    blob += bytes(scores) + captures
    pointers = [(Operands.scores.offset, at), (at + ScoreOperands.captures.offset, at + ctypes.sizeof(ScoreOperands))]
    return pointers, blob, scores


def _new(like, shape, dtype, field, inner=None):
    """One that each call allocates: function, arguments, place."""
    at = (field if inner is None else _at(field, inner),)
    if tensors.is_torch(like):
        return sys.modules["torch"].empty, (shape,), {"dtype": dtype, "device": like.device}, at, len(shape)
    return sys.modules["numpy"].empty, (shape, dtype), {}, at, len(shape)


def recipe_of_attention(call, operands, arguments, scores, kept):
    """What entry.h describes, for calls of attention() like this one; None where there is none."""
    if _numbers(arguments[name] for name in ("q_scale", "k_scale", "v_scale")):
        return None
    indices = _indices({name: value for name, value in arguments.items() if name != "context"})
    pointers, blob, _ = _with_scores(operands)
    places = list(_main_places(indices, call.layout, arguments, "out"))
    if scores is not None:
        places += _capture_places(indices, scores, ctypes.sizeof(Operands) + ctypes.sizeof(ScoreOperands))
    q, fresh, results = arguments["q"], [], []
    if arguments["out"] is None:
        fresh.append(_new(q, call.out_shape, call.out_dtype, "o", Tensor.data))
    results.append(-1 if arguments["out"] is None else indices["out"][0])
    if arguments["return_lse"]:
        fresh.append(_new(q, call.lse_shape, call.lse_dtype, Operands.lse.offset))
        results.append(-len(fresh))
    return _recipe(call.plan, (call.plan, kept), -1, blob, pointers, places, fresh, results, indices)
