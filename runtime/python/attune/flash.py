# SPDX-License-Identifier: Apache-2.0
"""FlashAttention's functions on attune: the arguments of its versions 2, 3 and 4, with their meaning or refused with a sentence.
Tensors are [batch, seqlen, num_heads, head_dim], as in attention()."""
from ._attention import attention
from ._known import marked_constant, tell_ignored

_FUNCTION = "flash_attn_func"
_SERVING = "is not here yet: attune has no packed or paged keys so far"


@marked_constant
def _check(dropout_p, refused):
    if dropout_p != 0.0:
        raise ValueError(f"dropout_p is {dropout_p}; accepted is 0.0: attune has no dropout (softmax_scale, which FlashAttention 3 and 4 have in this "
                         "place, goes by name)")
    for name, instead in refused:
        raise ValueError(f"{name} is given; accepted is None: {instead}")


@marked_constant
def _scale_text(window_size):
    """window_size as attention() has it: None, -1 and less are open sides."""
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise ValueError(f"window_size is {window_size!r}; accepted is a pair (left, right)")
    sides = tuple(None if side is None or side < 0 else int(side) for side in window_size)
    return None if sides == (None, None) else sides


def _hints(num_splits, pack_gqa, sm_margin, softmax_hints):
    given = [f"{name}={value}" for name, value, plain in (("num_splits", num_splits, (0, 1)), ("pack_gqa", pack_gqa, (None,)),
                                                          ("sm_margin", sm_margin, (0,))) if value not in plain]
    return tuple(given + softmax_hints)
