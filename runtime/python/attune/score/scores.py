# SPDX-License-Identifier: Apache-2.0
"""Score features of attention(): changes of scores other than scale, mask and window. Each keyword becomes a field of
the problem's text. A tensor also becomes a capture of the call. The table is in features.py. Used by ops/."""

from ..core import tensors
from ..core.library import module
from ..core.problem import real, whole
from ..core.torch_state import records_gradients, refuse_gradients
from .block_maps import use_of
from .dropout import Seeds, rate_of
from .features import FEATURES, TENSORS, extents_of, parts_of
from .programs import KINDS, bind, declared_in, refuse_stop

_BACKWARD, _OF_V = 4, 4  # values of attune_op and attune_gradient


def _extents(problem):
    return extents_of(problem.batch, problem.num_heads_q, problem.seqlen_q, problem.seqlen_kv)


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

    def may_be_repeated(self):
        """True if the C module's key covers the features."""
        return not self.mods and self.block_map is None

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
        extents = _extents(p)
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
        value = getattr(problem, feature.field)
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
    extents = _extents(p)
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


_BY_KEYWORD = tuple((feature.keyword, feature) for feature in FEATURES)


def scores_of(given):
    """Returns the features among a call's keywords, dropout among them, as Scores; None if there is none."""
    text, captures, seeds = "", [], None
    if given.get("dropout_p"):
        text, seeds = f",dropout={rate_of(given['dropout_p'])!r}", Seeds(given.get("seed"), given.get("offset"))
    found = [(feature, given[keyword]) for keyword, feature in _BY_KEYWORD if given.get(keyword) is not None]
    for feature, value in found:
        if feature.read:
            text += f",{feature.field}={feature.read(value)!r}"
        elif feature.captures:
            parts = parts_of(feature, value)
            fields = [
                _tensor(feature.keyword, name, part, feature.dtypes) for name, part in zip(feature.captures, parts)]
            text += f",{feature.field}={fields[0]}"
            captures += list(zip(feature.captures, parts, feature.axes))
    mods = _mods(captures, given) if any(feature.is_program for feature, _ in found) else ()
    block_map = given.get("block_map")
    map_use = 0 if block_map is None else use_of(block_map, any(feature.is_mask for feature, _ in found))
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
