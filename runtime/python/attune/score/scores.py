# SPDX-License-Identifier: Apache-2.0
"""Score features of attention(): changes of scores other than scale, mask and window. Each keyword becomes a field of
the problem's text. A tensor also becomes a capture of the call. Used by ops/attention.py."""
from collections import namedtuple

from ..core import tensors
from ..core.library import module
from ..core.problem import in_fp32, real, whole
from ..core.torch_state import records_gradients, refuse_gradients
from .block_maps import use_of
from .dropout import Seeds, rate_of
from .programs import KINDS, bind, declared_in, refuse_stop

# axes: the axes of each capture, by the problem's extents. Leading axes may be missing, and any may be 1: both
# broadcast.
# dtypes: the dtypes that a feature takes, with the field's value for each.
Feature = namedtuple("Feature", "keyword captures axes dtypes")
_FLOATS = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16"}
_EACH = ("batch", "num_heads_q", "seqlen_q", "seqlen_kv")
TENSORS = (
    Feature("bias", ("bias", ), (_EACH, ), _FLOATS),
    Feature("relative_bias", ("relative_bias", ), (("num_heads_q", "distances"), ), _FLOATS),
    Feature("alibi_slopes", ("alibi_slopes", ), (("batch", "num_heads_q"), ), {"fp32": "1"}),
    Feature("mask_tensor", ("mask_tensor", ), (_EACH, ), {"bool": "1"}),
    Feature("key_lengths", ("key_lengths", ), (("batch", ), ), {"int32": "1"}),
    Feature("documents", ("documents_q", "documents_kv"), (("batch", "seqlen_q"), ("batch", "seqlen_kv")),
            {"int32": "1"}),
    Feature("sinks", ("sinks", ), (("num_heads_q", ), ), _FLOATS),
    Feature("prefix", ("prefix", ), (("batch", ), ), {"int32": "1"}),
)
_FIELDS = {"alibi_slopes": "alibi"}  # features whose field has another name
_BACKWARD, _OF_V = 4, 4  # values of attune_op and attune_gradient


def problem_extents(p):
    return {"batch": p.batch, "num_heads_q": p.num_heads_q, "seqlen_q": p.seqlen_q, "seqlen_kv": p.seqlen_kv,
            "distances": max(p.seqlen_q + p.seqlen_kv - 1, 0)}


class Scores:
    """The features of one call. text: the part of the problem's text that they add. key: equal for features that can
    share a plan. operands(plan): the struct for the C interface."""

    __slots__ = ("text", "key", "captures", "mods", "block_map", "map_use", "seeds")

    def __init__(self, text, captures, mods, block_map=None, map_use=0, seeds=None):
        self.text, self.captures, self.mods, self.block_map, self.map_use, self.seeds = (
            text, captures, mods, block_map, map_use, seeds)
        self.key = (text, map_use, *((mod.kind, mod.program.text) for mod in mods)) if mods or map_use else text

    def programs(self):
        """Returns fields of the problem that its text does not hold."""
        return [
            *((mod.kind, mod.program.handle) for mod in self.mods), *([("block_map", self.map_use)] if self.map_use else
                                                                      ())]

    def give(self, operands, plan):
        """Puts the features into the struct of a call of the plan. Returns the objects that must live until the call is
        enqueued."""
        operands.scores = self.operands(plan)
        give_map(operands, self.block_map, plan)
        return operands.scores, None if self.seeds is None else self.seeds.give(operands, plan)

    def learned(self):
        """Returns the tensors of programs that autograd records."""
        return [given for mod in self.mods for given in mod.captures.values() if records_gradients(given[1])]

    def operands(self, plan):
        """Returns the struct ScoreOperands. Checks shapes against the plan's problem."""
        refuse_gradients(self.learned())
        p = plan.problem
        if p.op == _BACKWARD and p.gradients != _OF_V and not p.score_gradient and any("score" in mod.stopped
                                                                                       for mod in self.mods):
            refuse_stop("the score", "q and k")
        extents = problem_extents(plan.problem)
        captures = [_of_feature(name, tensor, axes, extents, plan) for name, tensor, axes in self.captures]
        captures += [_of_program(name, *given, plan) for mod in self.mods for name, given in mod.captures.items()]
        scalars = [(name, value) for mod in self.mods for name, (_, value) in mod.scalars.items()]
        return module.score_operands(captures, scalars, 0, 0)


def give_map(operands, block_map, plan):
    if block_map is None:
        return
    found = tensors.target_of(block_map.granules)
    if found != plan.target:
        raise ValueError(f"block_map is on {found}; must be on {plan.target}, like q")
    operands.block_map = block_map.struct


def _address(label, tensor, plan):
    if tensors.target_of(tensor) != plan.target:
        raise ValueError(f"{label} is on {tensors.target_of(tensor)}; must be on {plan.target}, like q")
    return tensors.address(label, tensor)


def _of_feature(name, tensor, axes, extents, plan):
    """Returns a capture for module.score_operands(): a tensor over axes of the problem."""
    return (name, _address(name, tensor, plan), _strides(name, tensor, axes, [extents[axis] for axis in axes]), ())


def _of_program(name, label, tensor, plan):
    """Returns a capture for module.score_operands(): a tensor that a program indexes."""
    return name, _address(label, tensor, plan), tuple(tensors.element_strides(label, tensor)), tuple(tensor.shape)


def refuse_other_extents(name, shape, axes, extents):
    """Raises if a tensor does not broadcast to the extents: axes of 1 and missing leading axes broadcast."""
    missing = len(axes) - len(shape)
    wanted = f"[{', '.join(axes)}]".replace("distances", "seqlen_q + seqlen_kv - 1")
    if missing < 0:
        raise ValueError(f"{name} has shape {shape}; must be {wanted}, or fewer axes, which then broadcast")
    if any(found not in (1, extent) for found, extent in zip(shape, extents[missing:])):
        raise ValueError(
            f"{name} has shape {shape}; must be {wanted} = {tuple(extents)}. Axes of 1 and missing leading axes "
            f"broadcast")


def _strides(name, tensor, axes, extents):
    shape, strides = tuple(tensor.shape), tuple(tensors.element_strides(name, tensor))
    refuse_other_extents(name, shape, axes, extents)
    missing = len(axes) - len(shape)
    result = [0] * missing
    for found, stride, extent in zip(shape, strides, extents[missing:]):
        if found == extent and stride < 0:
            raise ValueError(f"{name} has strides {strides}; strides must be at least 0 (copy the tensor)")
        result.append(stride if found == extent and extent > 1 else 0)
    return tuple(result)


def _wanted(problem):
    """Returns (captures, scalars) of a plan's runs by name: dtype and axes of each tensor, or its rank in programs."""
    captures, scalars = {}, {}
    for feature in TENSORS:
        value = getattr(problem, _FIELDS.get(feature.keyword, feature.keyword))
        if value:
            dtype = list(feature.dtypes)[value - 1]  # attune_score_tensor's value; flags have one dtype
            captures.update({name: (dtype, axes) for name, axes in zip(feature.captures, feature.axes)})
    for kind in KINDS:
        handle = getattr(problem, kind)
        if handle:
            declared = declared_in(module.program_text(handle))
            captures.update(declared.captures)
            scalars.update(declared.scalars)
    return captures, scalars


def _check_wanted(name, tensor, dtype, rank):
    if not (tensors.is_torch(tensor) or tensors.is_numpy(tensor)):
        tensors.refuse_kind(name, tensor)
    tensors.check_plain(name, tensor)
    found = tensors.dtype_text(tensor.dtype)
    if found != dtype or (rank is not None and len(tensor.shape) != rank):
        dimensions = "" if rank is None else f" with {rank} dimensions"
        raise ValueError(
            f"{name} is {found} with {len(tensor.shape)} dimensions; must be {dtype}{dimensions}, as in the plan's "
            f"problem")
    if 0 in tensor.shape and rank is not None:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; extents must be at least 1")


def named_operands(plan, captures, scalars, q_position0, kv_position0):
    """Returns Plan.run()'s ScoreOperands of tensors and numbers by name. The library checks for missing and surplus
    names."""
    captures, scalars = captures or {}, scalars or {}
    refuse_gradients(captures.items())
    p = plan.problem
    extents = problem_extents(p)
    wanted, _ = _wanted(p)
    found = []
    for name, tensor in captures.items():
        dtype, shape = wanted.get(name, (None, 0))
        if dtype is None:
            raise ValueError(f"captures has {name}; must be {', '.join(wanted) or 'none'}, which the plan reads")
        rank = shape if isinstance(shape, int) else None
        _check_wanted(name, tensor, dtype, rank)
        found.append(
            _of_feature(name, tensor, shape, extents, plan) if rank is None else _of_program(name, name, tensor, plan))
    numbers = [(name, real(name, value)) for name, value in scalars.items()]
    positions = [whole(name, value) for name, value in (("q_position0", q_position0), ("kv_position0", kv_position0))]
    for name, value in zip(("q_position0", "kv_position0"), positions):
        if not -2 ** 31 <= value < 2 ** 31:
            raise ValueError(f"{name} is {value}; must be an int of 32 bits")
    return module.score_operands(found, numbers, *positions)


def _tensor(keyword, name, tensor, dtypes):
    if not (tensors.is_torch(tensor) or tensors.is_numpy(tensor)):
        tensors.refuse_kind(name, tensor)
    tensors.check_dense(name, tensor)
    tensors.refuse_meaning(name, tensor)
    tensors.check_plain(name, tensor)
    dtype = tensors.dtype_text(tensor.dtype)
    if dtype not in dtypes:
        hint = "; a float mask is a bias" if keyword == "mask_tensor" else ""
        raise ValueError(f"{name} is {dtype}; must be {' or '.join(dtypes)}{hint}")
    return dtypes[dtype]


def _mods(features, given):
    """Returns the bound score_mod and mask_mod, with names that differ from each other's and from other features'."""
    taken, mods = {name for name, _, _ in features}, []
    for kind in KINDS:
        if given.get(kind) is not None:
            mods.append(bind(kind, given[kind]).apart_from(taken))
            taken |= {*mods[-1].captures, *mods[-1].scalars}
    return mods


_MASKS = ("mask_mod", "mask_tensor", "key_lengths", "documents", "prefix")


def scores_of(softcap=None, chunk=None, block_map=None, dropout_p=0.0, seed=None, offset=None, **given):
    """Returns the features, dropout among them, as Scores; None if no feature is given."""
    text, captures, seeds = "", [], None
    if dropout_p:
        text, seeds = f",dropout={rate_of(dropout_p)!r}", Seeds(seed, offset)
    if softcap is not None:
        number = real("softcap", softcap)
        if not 0 < in_fp32(number) < float("inf"):
            raise ValueError(f"softcap is {number}; must be above 0 and finite in fp32, or None")
        text += f",softcap={number!r}"
    if chunk is not None:
        if whole("chunk", chunk) < 1:
            raise ValueError(f"chunk is {chunk}; must be at least 1, or None")
        text += f",chunk={whole('chunk', chunk)}"
    for feature in TENSORS:
        value = given.get(feature.keyword)
        if value is None:
            continue
        parts = value if isinstance(value, (tuple, list)) else (value,) * len(feature.captures)
        if len(parts) != len(feature.captures) or (parts is value and len(parts) == 1):
            raise ValueError(
                f"{feature.keyword} is a {type(value).__name__} of {len(parts)}; must be a PyTorch tensor or a NumPy "
                f"array"
                + (", or a pair of them (of rows, of keys)" if len(feature.captures) == 2 else ""))
        fields = [_tensor(feature.keyword, name, part, feature.dtypes) for name, part in zip(feature.captures, parts)]
        text += f",{_FIELDS.get(feature.keyword, feature.keyword)}={fields[0]}"
        captures += list(zip(feature.captures, parts, feature.axes))
    mods = () if given.get("score_mod") is None and given.get("mask_mod") is None else _mods(captures, given)
    has_masks = chunk is not None or any(given.get(name) is not None for name in _MASKS)
    map_use = 0 if block_map is None else use_of(block_map, has_masks)
    return Scores(text, captures, mods, block_map, map_use, seeds) if text or mods or map_use else None


_MOST_HEADS = 2 ** 16  # more than any model has; longer lists take long


def alibi_slopes(num_heads):
    """Returns ALiBi's slopes for n = num_heads heads as a list of floats: 2^(-8 i / n) for i from 1 to n, if n is a
    power of two. Otherwise the slopes of the power of two below n come first, then every other slope of the next power.
    Raises ValueError if num_heads is not a whole number from 1 to 65536."""
    heads = whole("num_heads", num_heads)
    if not 1 <= heads <= _MOST_HEADS:
        raise ValueError(f"num_heads is {heads}; must be at least 1 and at most {_MOST_HEADS}")
    below = 1 << (heads.bit_length() - 1)
    of_power = lambda n, i: 2.0 ** (-8.0 * (i + 1) / n)
    return [of_power(below, i) if i < below else of_power(2 * below, 2 * (i - below)) for i in range(heads)]
