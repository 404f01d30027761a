# SPDX-License-Identifier: Apache-2.0
"""What the signatures of other libraries share: sdpa.py, flash/ and flex.py. torch.compile traces those files; what stands here with
@marked_constant runs while it traces."""
import warnings
from collections import namedtuple

from ._problem import whole
from ._torch import in_graphs

_WIDEST = 2 ** 31 - 1 - 2 ** 16  # of a window, and of a sequence
_told = set()


def marked_constant(function):
    """torch.compiler.assume_constant_result, without importing PyTorch."""
    function._dynamo_marked_constant = True
    return function


@in_graphs("settled")
def settled(number):
    """The number, or numbers of a tuple, as functions with @marked_constant take them: torch.compile, for which they may be symbols (with dynamic=True
    defaults, too), makes them constants of the graph. Elsewhere they are."""
    return number


@marked_constant
def tell_ignored(function, hints):
    """Warns once of tuning hints, by name, that another library's kernels would follow. `hints`: texts name=value."""
    hints = tuple(hint for hint in hints if (function, hint.partition("=")[0]) not in _told)
    if hints:
        _told.update((function, hint.partition("=")[0]) for hint in hints)
        warnings.warn(f"{function} ignores {', '.join(hints)}: attune's tuner chooses what they choose", stacklevel=3)


# A window whose sides may be below 0, as FlashAttention 4 means them: keys from row - left to row + right, None: an open side.
Sides = namedtuple("Sides", "left right")


def window_of(window_size):
    """Returns window_size as attention() has it, or the pair of Sides. None and -1 are open sides, and so are those wider than any sequence."""
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
                f"window_size is {sides}; must be sides of 0 and more, and -1 or None for an open side "
                f"(attune.flash.cute takes sides below 0, as "
                "FlashAttention 4)")
    sides = tuple(None if side is None or not 0 <= side <= _WIDEST else side for side in sides)
    return None if sides == (None, None) else sides


def sides_of_version_4(window_size, causal):
    """Returns the Sides of FlashAttention 4's window_size, or None for a window that hides nothing. A causal window ends at the row; a window without any key
    is none."""
    return None if window_size is None else _sides_of_version_4(settled(window_size), causal)


@marked_constant
def _sides_of_version_4(window_size, causal):
    left, right = (None if side is None or side > _WIDEST else max(side, -_WIDEST) for side in _numbers_of(window_size))
    right = 0 if causal else right
    if (left, right) == (None, None) or None not in (left, right) and left + right < 0:
        return None
    return Sides(left, right)


def check_heads(query, key, enable_gqa):
    """Of [batch, num_heads, seqlen, head_dim]."""
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError(
            f"query has {query.shape[1]} heads and key {key.shape[1]}; must be equal ones, and with enable_gqa=True "
            f"heads of key "
            "that divide those of query")
