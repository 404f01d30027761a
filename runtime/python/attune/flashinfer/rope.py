# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's rotary embeddings for rows that are not written into a cache, by append_kv()'s kernel. See __init__.py.

q, k: [rows, num_heads, head_dim], bf16, fp16 or fp32. The first rotary_dim columns (None: all) are rotated in pairs (i,
i + rotary_dim / 2), or (2 i, 2 i + 1) with interleave. Functions return both as new tensors; those named inplace write
into q and k, and return None. Arithmetic is fp32, rounded once."""
import functools
import inspect
import math

from ..core.torch_state import refuse_gradients
from ..ops.append import append_kv
from ..adapters.errors import named
from ..adapters.lists import is_recorded, requests_of_rows
from . import arguments


def _turned(name, x, cos, sin, positions, interleave, out=None):
    """Returns x, rotated. append_kv() gets x as q, and rows of k that it does not write. name: the caller's name of x.
    """
    import torch
    if x.shape[0] == 0:
        return x.clone() if out is None else out
    nowhere, none = torch.full_like(positions, -1), x.new_empty(x.shape[0], 1, x.shape[2])
    cache = x.new_empty(1, 1, 1, x.shape[2])
    own = {**dict.fromkeys(("k", "v", "k_cache", "v_cache", "q", "q_out"), name),
           **dict.fromkeys(("cos", "sin"), "cos_sin_cache")}
    return named(own, append_kv, none, none, cache, torch.empty_like(cache), row_slots=nowhere, positions=positions,
                 cos=cos, sin=sin, interleaved=interleave, q=x, q_out=out)


def _both(names, q, k, cos, sin, positions, interleave, inplace):
    positions = positions.contiguous()
    refuse_gradients(zip(names, (q, k)))  # before one of them is written
    return tuple(_turned(name, x, cos, sin, positions, interleave, x if inplace else None)
                 for name, x in zip(names, (q, k)))


def _frequencies(x, *what):
    """Returns _made_frequencies() on x's device. They are cached, except in a graph, whose tensors are its own."""
    return (_made_frequencies if is_recorded(x) else _kept_frequencies)(*what, x.device)


def _made_frequencies(rotary_dim, rope_scale, rope_theta, smooth, device):
    """Returns the frequencies, fp32 [rotary_dim / 2]. smooth: None, or Llama 3.1's (low_freq_factor, high_freq_factor,
    old_context_len); the scaling changes gradually between both factors."""
    import torch
    found = []
    for i in range(rotary_dim // 2):
        frequency, kept = rope_theta ** (-2 * i / rotary_dim), 0.0
        if smooth is not None:
            low, high, context = smooth
            kept = min(max((context * frequency / (2 * math.pi) - low) / (high - low), 0.0), 1.0)
        found.append(kept * frequency + (1 - kept) * frequency / rope_scale)
    return torch.tensor(found, dtype=torch.float32, device=device)


_kept_frequencies = functools.lru_cache(maxsize=64)(_made_frequencies)


def _tables(pos_ids, frequencies):
    """Returns cos and sin per row, in rows that begin at multiples of 16 bytes."""
    import torch
    angles = torch.nn.functional.pad(frequencies, (0, -frequencies.shape[0] % 4))[None] * pos_ids.float()[:, None]
    return tuple(made[:, :frequencies.shape[0]] for made in (angles.cos(), angles.sin()))


def _positions(indptr, offsets, rows):
    """Returns the positions of packed rows; those of request i begin at offsets[i]."""
    import torch
    arguments.check_integers("indptr", indptr, "[batch + 1]")
    arguments.check_integers("offsets", offsets, "[batch]")
    if offsets.shape[0] != max(indptr.shape[0] - 1, 0):
        raise ValueError(
            f"indptr has shape {tuple(indptr.shape)} and offsets {tuple(offsets.shape)}; must be [batch + 1] and "
            f"[batch]")
    of = requests_of_rows(indptr, rows).clamp(0, max(offsets.shape[0] - 1, 0))
    return offsets.long()[of] + torch.arange(rows, device=indptr.device) - indptr.long()[of]


def _check_both(q, k, names=("q", "k")):
    for name, x in zip(names, (q, k)):
        arguments.floats(name, x, "[rows, num_heads, head_dim]")
    if q.shape[2] != k.shape[2] or q.device != k.device:
        raise ValueError(
            f"q has shape {tuple(q.shape)} on {q.device} and k {tuple(k.shape)} on {k.device}; both must have the same "
            f"head_dim and device")


def _apply(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, smooth, inplace):
    """Returns q and k, rotated by the angles of the positions pos_ids."""
    import torch
    rotary_dim = q.shape[2] if rotary_dim is None else arguments.count("rotary_dim", rotary_dim, 0)
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > q.shape[2]:
        raise ValueError(
            f"rotary_dim is {rotary_dim}; must be an even number from 2 to {q.shape[2]}, the columns of q and k")
    for name, shape in (("k", k.shape[:1]), ("pos_ids", pos_ids.shape)):
        if tuple(shape) != (q.shape[0],):
            raise ValueError(f"{name} has rows {tuple(shape)} and q has {q.shape[0]}; must have as many rows as q")
    interleave = arguments.flag("interleave", interleave)
    rope_scale, rope_theta = arguments.number("rope_scale", rope_scale, above=0), arguments.number(
        "rope_theta", rope_theta, above=0)
    cos, sin = _tables(pos_ids, _frequencies(q, rotary_dim, rope_scale, rope_theta, smooth))
    return _both(("q", "k"), q, k, cos, sin, torch.arange(q.shape[0], device=q.device), interleave, inplace)


def _smooth(low_freq_factor, high_freq_factor, old_context_len):
    """Returns the three numbers of Llama 3.1, checked."""
    low, high = arguments.number("low_freq_factor", low_freq_factor, above=0), arguments.number(
        "high_freq_factor", high_freq_factor, above=0)
    if low >= high:
        raise ValueError(f"high_freq_factor is {high}; must be above low_freq_factor, {low}")
    return low, high, arguments.number("old_context_len", old_context_len, above=0)


def apply_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4, *,
                       _inplace=False):
    """Returns (q, k), rotated by angles pos_ids / rope_scale * rope_theta^(-2 i / rotary_dim). pos_ids: int [rows]."""
    _check_both(q, k)
    arguments.check_integers("pos_ids", pos_ids, "[rows]")
    return _apply(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, None, _inplace)


def apply_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4, *,
               _inplace=False):
    """Calls apply_rope_pos_ids() for packed rows. The rows of request i are indptr[i] to indptr[i + 1] (int [batch +
    1]), at positions from offsets[i] on. Returns (q, k)."""
    _check_both(q, k)
    return _apply(q, k, _positions(indptr, offsets, q.shape[0]), rotary_dim, interleave, rope_scale, rope_theta, None,
                  _inplace)


def apply_llama31_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                               low_freq_factor=1, high_freq_factor=4, old_context_len=8192, *, _inplace=False):
    """Calls apply_rope_pos_ids() with Llama 3.1's frequencies. Returns (q, k)."""
    _check_both(q, k)
    arguments.check_integers("pos_ids", pos_ids, "[rows]")
    return _apply(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta,
                  _smooth(low_freq_factor, high_freq_factor, old_context_len), _inplace)


def apply_llama31_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                       low_freq_factor=1, high_freq_factor=4, old_context_len=8192, *, _inplace=False):
    """Calls apply_rope() with Llama 3.1's frequencies. Returns (q, k)."""
    _check_both(q, k)
    return _apply(q, k, _positions(indptr, offsets, q.shape[0]), rotary_dim, interleave, rope_scale, rope_theta,
                  _smooth(low_freq_factor, high_freq_factor, old_context_len), _inplace)


def apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox=True, *, _inplace=False):
    """Returns (query, key), rotated by a table of cosines and sines.

    positions: int [rows]. query, key: [rows, num_heads * head_size]. cos_sin_cache: [positions, rotary_dim], cosines in
    the first half of its columns, sines in the second. is_neox: pairs are (i, i + rotary_dim / 2). Rows at positions
    beyond the cache become 0."""
    arguments.check_integers("positions", positions, "[rows]")
    arguments.floats("cos_sin_cache", cos_sin_cache, "[positions, rotary_dim]")
    head_size, is_neox, rotary_dim = arguments.count("head_size", head_size), arguments.flag(
        "is_neox", is_neox), cos_sin_cache.shape[1]
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > head_size:
        raise ValueError(
            f"cos_sin_cache has {rotary_dim} columns; must be an even number from 2 to head_size, {head_size}")
    for name, x in (("query", query), ("key", key)):
        if arguments.floats(name, x,
                            "[rows, num_heads * head_size]").shape[1] % head_size or x.shape[0] != positions.shape[0]:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}; must have {positions.shape[0]} rows, one per position, and a "
                f"multiple of head_size ({head_size}) columns")
    pairs = rotary_dim // 2
    cos, sin = cos_sin_cache[:, :pairs], cos_sin_cache[:, pairs:]
    if pairs * cos_sin_cache.element_size() % 16:
        import torch
        cos, sin = (torch.nn.functional.pad(table, (0, -pairs % 8))[:, :pairs] for table in (cos, sin))
    rows = [x.view(x.shape[0], -1, head_size) for x in (query, key)]
    refuse_gradients([("cos_sin_cache", cos_sin_cache)])
    found = _both(("query", "key"), *rows, cos, sin, positions, not is_neox, _inplace)
    return tuple(x.view(given.shape) for x, given in zip(found, (query, key)))


def _public(function):
    """Returns two public functions: one that returns new tensors, and one that writes into q and k and returns None.
    Neither takes _inplace."""
    shown = inspect.signature(function)
    shown = shown.replace(parameters=[one for one in shown.parameters.values() if one.name != "_inplace"])

    def call(*args, **choices):
        _refuse_private(function, choices)
        return function(*args, **choices)

    def write(*args, **choices):
        _refuse_private(function, choices)
        function(*args, **choices, _inplace=True)

    for made, name, doc in ((call, function.__name__, function.__doc__),
                            (write, f"{function.__name__}_inplace",
                             f"{function.__name__}() into its two tensors. Returns None.")):
        made.__name__, made.__qualname__, made.__doc__, made.__signature__ = name, name, doc, shown
    return call, write


def _refuse_private(function, choices):
    if "_inplace" in choices:
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument '_inplace'")


apply_rope, apply_rope_inplace = _public(apply_rope)
apply_rope_pos_ids, apply_rope_pos_ids_inplace = _public(apply_rope_pos_ids)
apply_llama31_rope, apply_llama31_rope_inplace = _public(apply_llama31_rope)
apply_llama31_rope_pos_ids, apply_llama31_rope_pos_ids_inplace = _public(apply_llama31_rope_pos_ids)
apply_rope_with_cos_sin_cache, apply_rope_with_cos_sin_cache_inplace = _public(apply_rope_with_cos_sin_cache)
