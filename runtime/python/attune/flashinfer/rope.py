# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's rotary embeddings of rows that go into no cache, by the kernel of append_kv(). See __init__.py.

q, k: [rows, num_heads, head_dim], bf16, fp16 or fp32, whose first rotary_dim columns (None: all) are turned, pairs being (i, i + rotary_dim / 2), or with
interleave (2 i, 2 i + 1). Functions return both, new; those named inplace write into q and k and return None. Arithmetic is fp32, rounded once."""
import functools
import math

from .._append import append_kv
from .._flags import flag
from .._flash_arguments import is_recorded, requests_of_rows


def _turned(x, cos, sin, positions, interleave, out=None):
    """Nothing is written but q_out: every row of k is one without a place."""
    import torch
    if x.shape[0] == 0:
        return x.clone() if out is None else out
    nowhere, none = torch.full_like(positions, -1), x.new_empty(x.shape[0], 1, x.shape[2])
    cache = x.new_empty(1, 1, 1, x.shape[2])
    return append_kv(none, none, cache, torch.empty_like(cache), row_slots=nowhere, positions=positions, cos=cos, sin=sin, interleaved=flag("interleave", interleave), q=x, q_out=out)


def _both(q, k, cos, sin, positions, interleave, inplace):
    positions = positions.contiguous()
    return tuple(_turned(x, cos, sin, positions, interleave, x if inplace else None) for x in (q, k))


def _frequencies(x, *what):
    """Those of _made_frequencies() on x's device; kept, but where a graph records, whose tensors are its own."""
    return (_made_frequencies if is_recorded(x) else _kept_frequencies)(*what, x.device)


def _made_frequencies(rotary_dim, rope_scale, rope_theta, smooth, device):
    """fp32 [rotary_dim / 2]. smooth: None, or Llama 3.1's low_freq_factor, high_freq_factor and old_context_len, between which scaling begins."""
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
    """cos and sin of each row, in rows at multiples of 16 bytes."""
    import torch
    angles = torch.nn.functional.pad(frequencies, (0, -frequencies.shape[0] % 4))[None] * pos_ids.float()[:, None]
    return tuple(made[:, :frequencies.shape[0]] for made in (angles.cos(), angles.sin()))


def _positions(indptr, offsets, rows):
    """Of rows of requests end to end, those of request i from offsets[i] on."""
    import torch
    of = requests_of_rows(indptr, rows).clamp(0, max(offsets.shape[0] - 1, 0))
    return offsets.long()[of] + torch.arange(rows, device=indptr.device) - indptr.long()[of]


def _apply(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, smooth, inplace):
    import torch
    rotary_dim = q.shape[2] if rotary_dim is None else rotary_dim
    if rotary_dim < 2 or rotary_dim % 2 or rotary_dim > q.shape[2]:
        raise ValueError(f"rotary_dim is {rotary_dim}; accepted are even numbers from 2 to {q.shape[2]}, the columns of q and k")
    if tuple(pos_ids.shape) != (q.shape[0],) or k.shape[0] != q.shape[0]:
        raise ValueError(f"q has {q.shape[0]} rows, k {k.shape[0]} and there are positions of shape {tuple(pos_ids.shape)}; accepted are as many of each")
    cos, sin = _tables(pos_ids, _frequencies(q, rotary_dim, float(rope_scale), float(rope_theta), smooth))
    return _both(q, k, cos, sin, torch.arange(q.shape[0], device=q.device), interleave, inplace)


def apply_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4, *, _inplace=False):
    """By angles pos_ids / rope_scale * rope_theta^(-2 i / rotary_dim). pos_ids: int [rows]."""
    return _apply(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, None, _inplace)


def apply_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4, *, _inplace=False):
    """apply_rope_pos_ids() of rows of requests end to end: those of request i are indptr[i] to indptr[i + 1] (int [batch + 1]), at positions from offsets[i] on."""
    return _apply(q, k, _positions(indptr, offsets, q.shape[0]), rotary_dim, interleave, rope_scale, rope_theta, None, _inplace)


def apply_llama31_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5, low_freq_factor=1, high_freq_factor=4,
                               old_context_len=8192, *, _inplace=False):
    """apply_rope_pos_ids() with Llama 3.1's frequencies."""
    return _apply(q, k, pos_ids, rotary_dim, interleave, rope_scale, rope_theta, (low_freq_factor, high_freq_factor, old_context_len), _inplace)


def apply_llama31_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5, low_freq_factor=1, high_freq_factor=4,
                       old_context_len=8192, *, _inplace=False):
    """apply_rope() with Llama 3.1's frequencies."""
    return _apply(q, k, _positions(indptr, offsets, q.shape[0]), rotary_dim, interleave, rope_scale, rope_theta,
                  (low_freq_factor, high_freq_factor, old_context_len), _inplace)


def apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox=True, *, _inplace=False):
    """positions: int [rows]; query, key: [rows, num_heads * head_size]; cos_sin_cache: [positions, rotary_dim], cosines in the first half of its columns and
    sines in the second. is_neox: pairs are (i, i + rotary_dim / 2). Rows at positions beyond the cache become 0."""
    pairs = cos_sin_cache.shape[1] // 2
    cos, sin = cos_sin_cache[:, :pairs], cos_sin_cache[:, pairs:]
    if pairs * cos_sin_cache.element_size() % 16:
        import torch
        cos, sin = (torch.nn.functional.pad(table, (0, -pairs % 8))[:, :pairs] for table in (cos, sin))
    rows = [x.view(x.shape[0], -1, head_size) for x in (query, key)]
    found = _both(*rows, cos, sin, positions, not flag("is_neox", is_neox), _inplace)
    return tuple(x.view(given.shape) for x, given in zip(found, (query, key)))


def _in_place(function):
    """The function of the same arguments that writes into q and k."""
    def write(*args, **choices):
        function(*args, **choices, _inplace=True)
    write.__name__, write.__doc__ = f"{function.__name__}_inplace", f"{function.__name__}() into its two tensors. Returns None."
    return write


apply_rope_inplace = _in_place(apply_rope)
apply_rope_pos_ids_inplace = _in_place(apply_rope_pos_ids)
apply_llama31_rope_inplace = _in_place(apply_llama31_rope)
apply_llama31_rope_pos_ids_inplace = _in_place(apply_llama31_rope_pos_ids)
apply_rope_with_cos_sin_cache_inplace = _in_place(apply_rope_with_cos_sin_cache)
