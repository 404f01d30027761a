# SPDX-License-Identifier: Apache-2.0
"""Head dims that kernels do not take: 16-bit and 32-bit tensors are copied into wider ones with added zero columns.
Zeros add nothing to a score, and their columns of o are cut off. Used by attention.py, backward.py and
score_gradient.py."""
import sys
import warnings

from ..core import tensors
from ..core.flags import flag_or_none
from ..core.operands import share_memory, span_of
from ..core.preparing import preparing
from ..core.problem import check_beside, softmax_scale
from ..score.programs import KINDS, BoundMod, bind

_STEP, _LEAST = 8, 16  # kernels take multiples of _STEP from _LEAST on
_told = set()  # keys of warnings that were given


def width_of(head_dim, step=_STEP):
    """Returns the head dim of the wider tensor: a multiple of `step` columns."""
    return max(_LEAST, -(-head_dim // step) * step)


def is_odd(head_dim):
    """True if kernels do not take this head dim."""
    return head_dim % _STEP != 0 or head_dim < _LEAST


def is_between(q, k, v):
    """True if kernels take these head dims only in wider tensors. False for operands that attention() refuses or takes
    unchanged."""
    try:
        head_dim, head_dim_v = q.shape[3], v.shape[3]
        if not (is_odd(head_dim) or is_odd(head_dim_v)) or not len(q.shape) == len(k.shape) == len(v.shape) == 4:
            return False
        return (k.shape[3] == head_dim > 0 and head_dim_v > 0 and
                tensors.dtype_text(q.dtype) in ("fp32", "bf16", "fp16") and q.dtype == k.dtype == v.dtype)
    except (AttributeError, IndexError, TypeError, RuntimeError):  # nested tensors have no shape
        return False


def _tell(head_dim, head_dim_v, pad):
    wide = f"{width_of(head_dim)} (q, k) and {width_of(head_dim_v)} (v)"
    if pad is False:
        raise ValueError(
            f"head dims are {head_dim} (q, k) and {head_dim_v} (v); without copies they must be multiples of {_STEP} "
            f"from {_LEAST} on (pad_head_dim=True computes them in copies of {wide} columns)")
    if pad is None:
        tell_once((head_dim, head_dim_v),
                  f"attune copies q, k and v of head dims {head_dim} and {head_dim_v} into tensors of {wide} columns "
                  f"at each call; keep them in such tensors, or silence this with pad_head_dim=True")


def tell_once(key, sentence):
    """Warns the code that called attune, once per key."""
    if key not in _told:
        _told.add(key)
        warnings.warn(sentence, stacklevel=levels_to_caller())


def levels_to_caller():
    """Returns the stacklevel with which warnings.warn() in the calling function points at the code that called attune.
    """
    frame, levels = sys._getframe(1), 1
    while frame is not None and (frame.f_globals.get("__package__") or "").partition(".")[0] == "attune":
        frame, levels = frame.f_back, levels + 1
    return levels


def _checked(name, tensor, q):
    """Returns the tensor after the checks that its copy would hide. attention() makes the others."""
    tensors.signature(name, tensor)
    check_beside(name, tensor, q)
    tensors.check_plain(name, tensor)
    tensors.address(name, tensor)
    return tensor


def widened(name, tensor, q, width=None):
    """Returns a copy with zero columns added, or the tensor itself if it has this width. width: None for the least that
    kernels take."""
    columns = tensor.shape[-1]
    width = width_of(columns) if width is None else width
    if width == columns:
        return tensor
    wide = tensors.empty(q, (*_checked(name, tensor, q).shape[:-1], width), tensor.dtype)
    wide[..., :columns] = tensor
    wide[..., columns:] = 0
    return wide


def check_written(name, tensor, wanted, q, v):
    """Checks a tensor that a result is cut into: it must have the shape `wanted` and q's dtype."""
    check_beside(name, tensor, q)
    tensors.check_plain(name, tensor)
    wanted, own = tuple(wanted), tensors.dtype_text(q.dtype)
    if tuple(tensor.shape) != wanted or tensors.dtype_text(tensor.dtype) != own:
        raise ValueError(
            f"{name} is {tensors.dtype_text(tensor.dtype)} of shape {tuple(tensor.shape)}, and q, k and v are {own} of "
            f"head dims {q.shape[3]} and {v.shape[3]}; {name} must be {own} of shape {wanted}")
    tensors.address(name, tensor, written=True)


def _place_of(name, tensor):
    """Returns (address, Extent). The address is that of the first byte in memory, also with negative strides."""
    shape, strides = tuple(tensor.shape), tuple(tensors.element_strides(name, tensor))
    behind = sum((extent - 1) * -stride for extent, stride in zip(shape, strides) if stride < 0)
    place = span_of(name, tensor, shape, tuple(abs(stride) for stride in strides))
    return (tensors.address(name, tensor) or 0) - behind * place.item_bytes, place


def refuse_overlap(written, read):
    """Raises if a written tensor shares memory with another. Both arguments are tensors by name, or None. The library
    sees only the wider copies, and cannot check this."""
    places = {name: _place_of(name, tensor) for name, tensor in {**read, **written}.items() if tensor is not None}
    names = [name for name in written if name in places]
    for number, name in enumerate(names):
        for other in (*(each for each in places if each not in written), *names[:number]):
            if share_memory(*places[name], *places[other]):
                raise ValueError(f"{name} and {other} overlap in memory; {name} must have memory of its own")


def _check_out(out, q, k, v):
    check_written("out", out, (*q.shape[:3], v.shape[3]), q, v)
    in_place = _place_of("out", out) == _place_of("q", q)
    refuse_overlap({"out": out}, {"q": None if in_place else q, "k": k, "v": v})


def programs_of(arguments, head_dim):
    """Returns programs whose head_dim is that of the given tensors. Functions have no such name."""
    given = {kind: arguments.get(kind) for kind in KINDS}
    return {
        kind: BoundMod(bind(kind, one).of_head_dim(head_dim))
        for kind, one in given.items() if one is not None and not callable(one)}


def widened_arguments(arguments):
    """Returns a call's arguments with wider q, k and v, with the scale and head_dim of the given ones, and without out.
    """
    q, v, out, pad, scale = (arguments[name] for name in ("q", "v", "out", "pad_head_dim", "scale"))
    pad = flag_or_none("pad_head_dim", pad)
    if out is not None:
        _check_out(out, q, arguments["k"], v)
    wide = {name: widened(name, arguments[name], q) for name in ("q", "k", "v")}
    _tell(q.shape[3], v.shape[3], pad)
    return {
        **arguments, **wide, **programs_of(arguments, q.shape[3]), "out": None,
        "scale": q.shape[3]**-0.5 if scale is None else softmax_scale(scale)}


def cut(result, given_v, out):
    """Returns attention()'s result for the given tensors, from its result for widened_arguments()."""
    o, *rest = result if isinstance(result, tuple) else (result,)
    o = o[..., :given_v.shape[3]]
    if out is not None:
        if not preparing():
            out[...] = o
        o = out
    return (o, *rest) if rest else o
