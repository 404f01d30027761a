# SPDX-License-Identifier: Apache-2.0
"""What the signatures of other libraries share: sdpa.py, flash.py and flex.py. torch.compile traces those files; what stands here with
@marked_constant runs while it traces."""
import warnings

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


def window_of(window_size):
    """window_size as attention() has it. None, -1 and less are open sides, and so are those wider than any sequence."""
    return None if window_size is None or window_size == (-1, -1) else _sides_of(settled(window_size))


@marked_constant
def _sides_of(window_size):
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise ValueError(f"window_size is {window_size!r}; accepted is a pair (left, right)")
    sides = tuple(None if side is None else whole("window_size", side) for side in window_size)
    sides = tuple(None if side is None or not 0 <= side <= _WIDEST else side for side in sides)
    return None if sides == (None, None) else sides


def check_heads(query, key, enable_gqa):
    """Of [batch, num_heads, seqlen, head_dim]."""
    if not enable_gqa and query.size(1) != key.size(1):
        raise ValueError(f"query has {query.shape[1]} heads and key {key.shape[1]}; accepted are equal ones, and with enable_gqa=True heads of key "
                         "that divide those of query")
