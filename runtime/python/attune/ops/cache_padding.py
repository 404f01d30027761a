# SPDX-License-Identifier: Apache-2.0
"""Serves caches whose head dims kernels do not take: calls run on copies in wider tensors, as padding.py makes for
attention(), and written rows are copied back. Used by kvcache.py and append.py."""
import sys

from ..core import tensors
from ..core.preparing import preparing
from ..core.problem import softmax_scale
from .padding import is_odd, programs_of, refuse_overlap, tell_once, widened, width_of


def _dims(*operands):
    """Returns the head dims, or None if an operand has no shape."""
    try:
        found = [tensor.shape[-1] for tensor in operands]
    except (AttributeError, IndexError, RuntimeError):  # RuntimeError: nested tensors
        return None
    return found if all(type(extent) is int for extent in found) else None


def is_between(q, k_cache, v_cache):
    """True if kernels take these head dims only in wider tensors. False for operands that attention_kvcache() refuses
    or takes unchanged."""
    dims = _dims(q, k_cache, v_cache)
    return dims is not None and dims[0] == dims[1] and min(dims) > 0 and not (_fits(k_cache) and _fits(v_cache))


def _step(cache):
    """Returns the multiple that the head dim of a contiguous cache must be, whose rows begin at aligned addresses."""
    return 16 if getattr(cache, "itemsize", 0) == 1 else 8


def _fits(cache):
    """True if kernels take the cache's head dim. Rows of 8-bit elements may begin between aligned addresses."""
    columns, step = cache.shape[-1], _step(cache)
    if is_odd(columns) or columns % step == 0:
        return not is_odd(columns)
    strides = tensors.element_strides("cache", cache)
    return all(extent < 2 or stride % step == 0 for extent, stride in zip(cache.shape[:-1], strides))


def _widths(k, v):
    """Returns the head dims of the wider caches, those of k and of v."""
    return [x.shape[-1] if _fits(x) else width_of(x.shape[-1], _step(x)) for x in (k, v)]


def _tell(k, v):
    tell_once(("caches", k.shape[-1], v.shape[-1], _step(k)),
              f"attune copies caches of head dims {k.shape[-1]} and {v.shape[-1]} into wider tensors at each call; "
              f"keep them in tensors whose head dims are multiples of {_step(k)} from 16 on, with zero columns")


def wide_arguments(arguments):
    """Returns attention_kvcache()'s arguments with wider copies of q and the caches, and without out. The scale and
    programs keep the given head dim."""
    q, k_cache, v_cache, scale = (arguments[name] for name in ("q", "k_cache", "v_cache", "scale"))
    _tell(k_cache, v_cache)
    of_k, of_v = _widths(k_cache, v_cache)
    wide = {
        name: widened(name, arguments[name], q, width)
        for name, width in (("q", of_k), ("k_cache", of_k), ("v_cache", of_v))}
    return {
        **arguments, **wide, **programs_of(arguments, q.shape[-1]), "out": None,
        "scale": q.shape[-1]**-0.5 if scale is None else softmax_scale(scale)}


def cut(result, arguments):
    """Returns attention_kvcache()'s result for the given tensors, from its result for wide_arguments()."""
    q, v_cache, out = arguments["q"], arguments["v_cache"], arguments["out"]
    o, lse = result if arguments["return_lse"] else (result, None)
    o = o[..., :v_cache.shape[-1]]
    if out is not None:
        _check_written({"out": (out, (*q.shape[:-1], v_cache.shape[-1]), q.dtype)},
                       {"q": q, "k_cache": arguments["k_cache"], "v_cache": v_cache})
        if not preparing():
            out[...] = o
        o = out
    return (o, lse) if arguments["return_lse"] else o


def _check_written(written, read):
    """Checks tensors into which columns of wider tensors are copied. written: (tensor, required shape, required dtype)
    by name."""
    for name, (tensor, shape, dtype) in written.items():
        if tuple(tensor.shape) != tuple(shape) or tensor.dtype != dtype:
            raise ValueError(
                f"{name} is {tensors.dtype_text(tensor.dtype)} of shape {tuple(tensor.shape)}; must be "
                f"{tensors.dtype_text(dtype)} of shape {tuple(shape)}")
        tensors.check_plain(name, tensor)
        tensors.address(name, tensor, written=True)
    refuse_overlap({name: tensor for name, (tensor, *_) in written.items()}, read)


def append_wide(append, arguments):
    """Runs append(**arguments) on wider rows and caches, and copies its results into the given tensors. Returns q_out.
    """
    k, v, k_cache, v_cache, q, q_out = (arguments[name] for name in ("k", "v", "k_cache", "v_cache", "q", "q_out"))
    cos = arguments["cos"]
    if cos is not None and len(cos.shape) == 2 and 2 * cos.shape[1] > k.shape[-1]:
        raise ValueError(
            f"cos has shape {tuple(cos.shape)}; must have 1 to {k.shape[-1] // 2} columns, half of k's rotated columns")
    _tell(k_cache, v_cache)
    into = {"k_cache": (k_cache, k_cache.shape, k_cache.dtype), "v_cache": (v_cache, v_cache.shape, v_cache.dtype)}
    if q_out is not None and q is not None:
        into["q_out"] = (q_out, q.shape, q.dtype)
    _check_written(into, {"k": k, "v": v, "q": None if q_out is q else q})
    of_k, of_v = _widths(k_cache, v_cache)
    wide = {
        name: widened(name, arguments[name], k, of_v if name[0] == "v" else of_k)
        for name in ("k", "v", "k_cache", "v_cache", "q") if arguments[name] is not None}
    turned = append(**{**arguments, **wide, "q_out": None})
    if preparing():
        return q_out if turned is not None and q_out is not None else turned
    for name, cache in (("k_cache", k_cache), ("v_cache", v_cache)):
        if wide[name] is not cache:
            cache[...] = wide[name][..., :cache.shape[-1]]
    if turned is None:
        return None
    if q_out is not None:
        q_out[...] = turned[..., :q.shape[-1]]
        return q_out
    return _whole(turned[..., :q.shape[-1]])


def _whole(x):
    """Returns the tensor without gaps between rows."""
    return x.contiguous() if tensors.is_torch(x) else sys.modules["numpy"].ascontiguousarray(x)


def readable_table(name, table):
    """Returns a table of angles that kernels can read: a copy if its rows do not begin at multiples of 16 bytes."""
    if table is not None:
        tensors.signature(name, table)  # refuses other types
    if table is None or len(table.shape) != 2 or tensors.size_of(table.shape) == 0:
        return table
    item = tensors.item_bytes(table)
    row, column = tensors.element_strides(name, table)
    if row * item % 16 == 0 and (column == 1 or table.shape[1] == 1):
        return table
    tensors.check_plain(name, table)
    tensors.address(name, table)
    step = 16 // item
    made = tensors.empty(table, (table.shape[0], -(-table.shape[1] // step) * step), table.dtype)[:, :table.shape[1]]
    made[...] = table
    return made
