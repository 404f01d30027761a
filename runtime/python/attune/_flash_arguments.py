# SPDX-License-Identifier: Apache-2.0
"""What the functions of flash/ make of the arguments of FlashAttention's versions 2, 3 and 4 and of vLLM's: two names of one thing, hints, factors,
lists that the host sees, and what is refused."""
import functools
import operator
import re

from ._known import marked_constant, settled, tell_ignored
from ._library import Error
from ._programs import mask_mod
from ._torch import needs_op

_INSTEAD = {
    "aux_tensors": "tensors that score_mod and mask_mod read stand in their closures, as attune.score_mod() says",
    "block_sparse_tensors": "attune.block_map.from_flex() and from_blocks() make maps for attune.attention(block_map=)",
}


def refusals(**given):
    """Pairs of a name and what to do instead, of arguments that are given and not taken."""
    return [(name, _INSTEAD[name]) for name, value in given.items() if value is not None]


def refuse(pairs):
    for name, instead in pairs:
        raise ValueError(f"{name} is given; must be None: {instead}")


def one_of(**named):
    """The value of an argument that has several names."""
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are given; must be one of them: they are names of one thing")
    return named[given[0]] if given else None


# Names that stand in sentences as words too: they are changed where something is said of the argument.
_WORDS = ("slots", "scale", "chunk", "cos", "sin", "k_cache", "v_cache", "seqlen_q", "seqlen_kv")
_SAID = r"(?= (?:is|has|are|overlap|requires|of no less)\b| \(| and \w+ (?:are|overlap)\b|\[\d)"


def renamed(error, names):
    """Returns the error, with arguments by the names that the caller knows; `names`: of attune's own ones."""
    text = str(error)
    for own, theirs in names.items():
        text = re.sub(rf"(?:\bcache\.)?\b{own}\b{_SAID if own in _WORDS else ''}", theirs,
                      text)  # the library's lists are members of a struct
    error.args = (text,)
    return error


def named(names, function, *given, **choices):
    """Returns function(..), whose refusals name arguments as renamed() does. Graphs have the names of their ops."""
    import torch
    if torch.compiler.is_compiling():
        return function(*given, **choices)
    try:
        return function(*given, **choices)
    except (TypeError, ValueError, Error) as error:
        raise renamed(error, names) from None


def ignore(function, **hints):
    given = [f"{name}={value}" for name, value in hints.items() if isinstance(value, bool) or value not in (None, 0, 1)]
    if given:
        tell_ignored(function, given)


def check_list(name, tensor, shape, words, q):
    """Of an int32 tensor on q's device; `words`: what its axes are called."""
    import torch
    if not torch.is_tensor(tensor) or tensor.dtype != torch.int32 or tuple(
            tensor.shape) != shape or tensor.device != q.device:
        found = f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}" if torch.is_tensor(
            tensor) else f"{tensor!r}"
        raise ValueError(f"{name} is {found}; must be a tensor of int32 {words} = {shape} on {q.device}")


def is_recorded(tensor):
    """Whether the call becomes part of a graph, where no values are yet."""
    import torch
    return torch.compiler.is_compiling() or needs_op(tensor, autocast=False) is not None


def refuse_program(what):
    """Of a program that reads tensors which the graph itself makes."""
    import torch
    if torch.compiler.is_compiling():
        raise ValueError(
            f"{what} would be a program that reads tensors of the graph, which torch.compile does not hold; must be "
            f"the call outside"
        )


def host_sees(numbers):
    """Whether the host reads a list without waiting for a device, and nothing records the call."""
    return numbers.device.type == "cpu" and not is_recorded(numbers)


def check_lengths(name, lengths, room, why):
    """Where the host sees them: `room` is a number, or one for each request."""
    if lengths is None or not host_sees(lengths):
        return
    for i, length in enumerate(lengths.tolist()):
        most = room if isinstance(room, int) else int(room[i])
        if not 0 <= length <= most:
            raise ValueError(f"{name}[{i}] is {length}; must be 0 to {most}: {why}")


def seen_by_kernels(window):
    """Returns the window that kernels know and that holds `window`, whose sides may be below 0: program_of() narrows it."""
    return None if window is None else tuple(side if side is None or side > 0 else 0 for side in window)


def program_of(chunk=0, window=None, ahead=0):
    """Returns the mask_mod for attention_chunk and for sides of a window below 0; None where there are neither. `ahead`: what a row's position is beyond the
    number that programs have of it."""
    left, right = window or (None, None)
    starts, ends = left is not None and left < 0, right is not None and right < 0
    if not chunk and not starts and not ends:
        return None
    return _program_of(settled((chunk or None, left if starts else None, right if ends else None, ahead)))


@marked_constant
def _program_of(parts):
    return _made_program(*parts)


@functools.lru_cache(maxsize=64)
def _made_program(chunk, left, right, ahead):
    def seen(b, h, q_idx, kv_idx):
        row, conditions = q_idx + ahead, []
        if chunk is not None:
            conditions.append(row // chunk == kv_idx // chunk)
        if left is not None:
            conditions.append(kv_idx >= row - left)
        if right is not None:
            conditions.append(kv_idx <= row + right)
        return functools.reduce(operator.and_, conditions)
    return mask_mod(seen)


def requests_of_rows(cu_seqlens, rows, first=0):
    """The number of the sequence that each row from `first` on is of; of rows before the first sequence and behind the last -1 and batch."""
    import torch
    begins = cu_seqlens.to(torch.int64).contiguous()
    return torch.searchsorted(begins, torch.arange(first, first + rows, device=begins.device), right=True) - 1


def with_factors(q, q_descale, heads_kv, cu_seqlens_q):
    """q as attention over caches takes it: of 8 bits in bf16, times its factors [batch, num_heads_kv]. Those of 16 bits have none, as in FlashAttention 3."""
    import torch
    if q.dtype.itemsize > 1:
        return q
    if q_descale is None:
        return q.bfloat16()
    factors = q_descale.repeat_interleave(q.shape[-2] // heads_kv, 1)
    if cu_seqlens_q is None:
        factors = factors[:, None]
    else:
        factors = factors[requests_of_rows(cu_seqlens_q, q.shape[0]).clamp(0, factors.shape[0] - 1)]
    return (q.float() * factors[..., None]).to(torch.bfloat16)


def _of_slots(descale, slots, k_cache):
    """Factors of each request and head as those of its slot, which all its keys have: [slots, 1, num_heads_kv]."""
    if slots is None and descale.shape[0] == k_cache.shape[0]:
        return descale[:, None]
    count = k_cache.shape[0]
    made = descale.new_ones((count + 1, descale.shape[1]))  # the last: of requests whose slot there is none of
    if slots is None:
        made[:descale.shape[0]] = descale
    else:
        slots = slots.long().where((slots >= 0) & (slots < count), count)
        made.index_copy_(0, slots, descale)
        if host_sees(slots):
            _refuse_unlike(descale, made, slots, count)
    return made[:count, None]


def _refuse_unlike(descale, made, slots, count):
    """Of requests that share a slot, whose keys have one factor."""
    for slot, own, written in zip(slots.tolist(), descale, made[slots]):
        if slot < count and not own.equal(written):
            raise ValueError(
                f"cache_batch_idx has slot {slot} more than once, with unlike factors (k_descale, v_descale); must be "
                f"the same factors of all "
                "requests of a slot, whose keys they are")


def scales_of(k_cache, spread, **descales):
    """k_scale and v_scale of attention_kvcache(). FlashAttention has a factor for each request and head of tensors of 8 bits, and looks at none of others;
    caches have one for each head, or what `spread` makes of those of requests (None: there is no such)."""
    scales = {}
    for name, descale in descales.items():
        if k_cache.dtype.itemsize > 1:
            descale = None
        elif descale is None:
            descale = 1.0
        elif descale.dim() == 2 and descale.shape[0] > 1 and descale.stride(0) == 0:
            descale = descale[:1]
        elif descale.dim() == 2 and descale.shape[0] > 1:
            if spread is None:
                raise ValueError(
                    f"{name} has shape {tuple(descale.shape)}; accepted beside block_table are factors of heads that "
                    f"all requests share: "
                    "[1, num_heads_kv], or that with .expand(batch, num_heads_kv); without it those of each request, "
                    "too"
                )
            descale = spread(descale)
        scales[name.replace("descale", "scale")] = descale
    return scales


def spread_over_slots(k_cache, block_table, slots):
    """For scales_of()."""
    return None if block_table is not None else lambda descale: _of_slots(descale, slots, k_cache)
