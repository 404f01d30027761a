# SPDX-License-Identifier: Apache-2.0
"""Head dims between those that kernels take: tensors of 16 and 32 bits are copied into wider ones, whose new columns hold zeros. Zeros
add nothing to a score, and their columns of o are cut off. Used by attention() and prepare() in _attention.py."""
import sys
import warnings

from . import _tensors as tensors
from ._flags import flag_or_none
from ._operands import share_memory, span_of
from ._problem import check_beside, softmax_scale
from ._programs import KINDS, BoundMod, bind

_STEP, _LEAST = 8, 16  # of what kernels take
_told = set()          # keys of what a warning told


def _width(head_dim):
    return max(_LEAST, -(-head_dim // _STEP) * _STEP)


def is_odd(head_dim):
    """True if kernels do not take a head dim as it stands."""
    return head_dim % _STEP != 0 or head_dim < _LEAST


def is_between(q, k, v):
    """Whether kernels take these head dims only in wider tensors. False for what attention() refuses, or takes as it stands."""
    try:
        head_dim, head_dim_v = q.shape[3], v.shape[3]
        if not (is_odd(head_dim) or is_odd(head_dim_v)):
            return False
        return (k.shape[3] == head_dim > 0 and head_dim_v > 0 and
                tensors.dtype_text(q.dtype) in ("fp32", "bf16", "fp16") and q.dtype == k.dtype == v.dtype)
    except (AttributeError, IndexError, TypeError, RuntimeError):  # nested tensors have no shape
        return False


def _tell(head_dim, head_dim_v, pad):
    wide = f"{_width(head_dim)} (q, k) and {_width(head_dim_v)} (v)"
    if pad is False:
        raise ValueError(
            f"head dims are {head_dim} (q, k) and {head_dim_v} (v); accepted without copies are multiples of {_STEP} "
            f"from "
            f"{_LEAST} on, and with pad_head_dim=True these in copies of {wide} columns")
    if pad is None:
        tell_once((
            head_dim, head_dim_v
        ), f"attune copies q, k and v of head dims {head_dim} and {head_dim_v} into tensors of {wide} columns at each call; keep "
                  "them in such tensors, or say that you know by pad_head_dim=True")


def tell_once(key, sentence):
    """Warns the code that called attune, of each key once."""
    if key not in _told:
        _told.add(key)
        warnings.warn(sentence, stacklevel=_levels_to_caller())


def _levels_to_caller():
    """Of warnings.warn() in the function that asks, to the code that called attune."""
    frame, levels = sys._getframe(1), 1
    while frame is not None and (frame.f_globals.get("__package__") or "").partition(".")[0] == __package__:
        frame, levels = frame.f_back, levels + 1
    return levels


def _checked(name, tensor, q):
    """What hides from a copy: attention() itself sees the others."""
    tensors.signature(name, tensor)
    check_beside(name, tensor, q)
    tensors.check_plain(name, tensor)
    tensors.address(name, tensor)
    return tensor


def widened(name, tensor, q):
    """A copy with columns of zeros behind its own; the tensor itself, where kernels take it."""
    columns = tensor.shape[-1]
    width = _width(columns)
    if width == columns:
        return tensor
    wide = tensors.empty(q, (*_checked(name, tensor, q).shape[:-1], width), tensor.dtype)
    wide[..., :columns] = tensor
    wide[..., columns:] = 0
    return wide


def check_written(name, tensor, wanted, q, v):
    """Of a tensor of the given head dims, into which a result is cut: its shape is `wanted`."""
    check_beside(name, tensor, q)
    tensors.check_plain(name, tensor)
    wanted, own = tuple(wanted), tensors.dtype_text(q.dtype)
    if tuple(tensor.shape) != wanted or tensors.dtype_text(tensor.dtype) != own:
        raise ValueError(
            f"{name} is {tensors.dtype_text(tensor.dtype)} of shape {tuple(tensor.shape)}, and q, k and v are {own} of "
            f"head dims {q.shape[3]} "
            f"and {v.shape[3]}; must be {name} of {own} and shape {wanted}")
    tensors.address(name, tensor, written=True)


def _place_of(name, tensor):
    """(address, Extent), from the first byte on whatever the strides' signs."""
    shape, strides = tuple(tensor.shape), tuple(tensors.element_strides(name, tensor))
    behind = sum((extent - 1) * -stride for extent, stride in zip(shape, strides) if stride < 0)
    place = span_of(name, tensor, shape, tuple(abs(stride) for stride in strides))
    return (tensors.address(name, tensor) or 0) - behind * place.item_bytes, place


def refuse_overlap(written, read):
    """Both: tensors by name, None where there is none. Wider copies hide from the library what it refuses."""
    places = {name: _place_of(name, tensor) for name, tensor in {**read, **written}.items() if tensor is not None}
    names = [name for name in written if name in places]
    for number, name in enumerate(names):
        for other in (*(each for each in places if each not in written), *names[:number]):
            if share_memory(*places[name], *places[other]):
                raise ValueError(f"{name} and {other} overlap in memory; must be {name} with memory of its own")


def _check_out(out, q, k, v):
    check_written("out", out, (*q.shape[:3], v.shape[3]), q, v)
    in_place = _place_of("out", out) == _place_of("q", q)
    refuse_overlap({"out": out}, {"q": None if in_place else q, "k": k, "v": v})


def programs_of(arguments, head_dim):
    """Those that may name head_dim, which is to be that of the given tensors. Functions have no such name."""
    given = {kind: arguments.get(kind) for kind in KINDS}
    return {
        kind: BoundMod(bind(kind, one).of_head_dim(head_dim))
        for kind, one in given.items() if one is not None and not callable(one)}


def widened_arguments(arguments):
    """The arguments of a call with wider q, k and v, the scale and head_dim of the given ones, and without out."""
    q, v, out, pad, scale = (arguments[name] for name in ("q", "v", "out", "pad_head_dim", "scale"))
    pad = flag_or_none("pad_head_dim", pad)
    if out is not None:
        _check_out(out, q, arguments["k"], v)
    wide = {name: widened(name, arguments[name], q) for name in ("q", "k", "v")}
    _tell(q.shape[3], v.shape[3], pad)
    return {
        **arguments, **wide, **programs_of(arguments, q.shape[3]), "out": None,
        "scale": q.shape[3]**-0.5 if scale is None else softmax_scale(scale)}


def cut(result, given_v, out, return_lse):
    """What attention() returns, of what it returned for widened_arguments()."""
    o, lse = result if return_lse else (result, None)
    o = o[..., :given_v.shape[3]]
    if out is not None:
        out[...] = o
        o = out
    return (o, lse) if return_lse else o
