# SPDX-License-Identifier: Apache-2.0
"""Helpers that the signatures of other libraries share: sdpa.py, flash/ and flex.py. torch.compile traces those files;
functions with @marked_constant run during tracing."""
import warnings
from collections import namedtuple

from ..core.problem import real, whole
from ..core.torch_state import marked_constant, settled

_WIDEST = 2 ** 31 - 1 - 2 ** 16  # of a window, and of a sequence
_told = set()


@marked_constant
def _chunk_of(attention_chunk):
    chunk = whole("attention_chunk", attention_chunk)
    if not 0 <= chunk < 2 ** 31:
        raise ValueError(f"attention_chunk is {chunk}; must be at least 0 and below 2^31 (0 is off)")
    return chunk


def chunk_of(attention_chunk):
    """Returns attention_chunk as a whole number; 0 for None, which is off."""
    return 0 if attention_chunk is None else _chunk_of(settled(attention_chunk))


def off_or_number(name, value):
    """Returns a number in attention()'s form, where None is off. 0 is off too."""
    if value is None or type(value) in (int, float):
        return value or None
    return _number_of(name, settled(value)) or None


@marked_constant
def _number_of(name, value):
    return real(name, value)


def check_hints(**hints):
    """Checks hints that are ignored: a whole number, True, False or None."""
    for name, value in hints.items():
        if value is not None and not isinstance(value, (bool, int)):
            whole(name, value)


@marked_constant
def tell_ignored(function, hints):
    """Warns once per name about tuning hints that attune ignores. hints: texts name=value."""
    hints = tuple(hint for hint in hints if (function, hint.partition("=")[0]) not in _told)
    if hints:
        _told.update((function, hint.partition("=")[0]) for hint in hints)
        warnings.warn(f"{function} ignores {', '.join(hints)}: attune's tuner makes these choices", stacklevel=3)


# A window whose sides may be below 0, as in FlashAttention 4: keys from row - left to row + right. None: an open side.
Sides = namedtuple("Sides", "left right")


def window_of(window_size):
    """Returns window_size in attention()'s form, or the pair of Sides. None, -1, and sides wider than any sequence are
    open."""
    if window_size is None or isinstance(window_size, tuple) and window_size == (-1, -1):
        return None
    if isinstance(window_size, Sides):
        return (window_size.left, window_size.right)
    return _sides_of(settled(window_size))


def _numbers_of(window_size):
    """Returns both sides of a pair, or of a tensor or array of two numbers."""
    pair = window_size
    if not isinstance(pair, (tuple, list)) and tuple(getattr(pair, "shape", ())) == (2,):
        pair = pair.tolist()
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise ValueError(f"window_size is {window_size!r}; must be a pair (left, right)")
    return tuple(None if side is None else whole("window_size", side) for side in pair)


@marked_constant
def _sides_of(window_size):
    sides = _numbers_of(window_size)
    for side in sides:
        if side is not None and side < -1:
            raise ValueError(
                f"window_size is {sides}; sides must be at least 0, or -1 or None for an open side "
                "(attune.flash.cute takes sides below 0, as in FlashAttention 4)")
    sides = tuple(None if side is None or not 0 <= side <= _WIDEST else side for side in sides)
    return None if sides == (None, None) else sides


def sides_of_version_4(window_size, causal):
    """Returns the Sides of FlashAttention 4's window_size, or None for a window that hides nothing. A causal window
    ends at the row. A window that would show no key is ignored, as in version 4."""
    return None if window_size is None else _sides_of_version_4(settled(window_size), causal)


@marked_constant
def _sides_of_version_4(window_size, causal):
    left, right = (None if side is None or side > _WIDEST else max(side, -_WIDEST) for side in _numbers_of(window_size))
    right = 0 if causal else right
    if (left, right) == (None, None) or None not in (left, right) and left + right < 0:
        return None
    return Sides(left, right)


def check_heads(query, key, enable_gqa):
    """Checks the numbers of heads of tensors [batch, num_heads, seqlen, head_dim]."""
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError(
            f"query has {query.shape[1]} heads and key {key.shape[1]}; must be equal, or with enable_gqa=True key's "
            "must divide query's")
