# SPDX-License-Identifier: Apache-2.0
"""Checks and conversions for the arguments of flash/: two names of one argument, hints, factors, lists that the host
sees, and refusals. The arguments are those of FlashAttention's versions 2, 3 and 4 and of vLLM."""
import functools
import operator

from ..core.problem import whole
from ..core.tensors import is_torch
from ..core.torch_state import marked_constant, settled
from ..score.programs import mask_mod
from ..adapters.arguments import check_hints, tell_ignored
from ..adapters.lists import host_sees, requests_of_rows

_INSTEAD = {
    "aux_tensors": "score_mod and mask_mod read tensors from their closures; see attune.score_mod()",
    "block_sparse_tensors": "attune.block_map.from_flex() and from_blocks() make maps for attune.attention(block_map=)",
}


def refusals(**given):
    """Returns pairs (name, what to do instead) for the given arguments that attune does not take."""
    return [(name, _INSTEAD[name]) for name, value in given.items() if value is not None]


def refuse(pairs):
    for name, instead in pairs:
        raise ValueError(f"{name} is given; must be None: {instead}")


def one_of(**named):
    """Returns the value of an argument that has several names. Raises if more than one is given."""
    given = [name for name, value in named.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are given; give one of them: they are names of one argument")
    return named[given[0]] if given else None


def check_longest(name, length, rows):
    """Returns the given length of the longest sequence as a whole number; `rows` for None. Symbols of torch.compile
    stay symbols, so that one graph serves all."""
    import torch
    if length is None:
        return rows
    is_symbol = isinstance(length, torch.SymInt) or torch.compiler.is_compiling() and isinstance(length, int)
    return length if is_symbol else whole(name, length)


def ignore(function, **hints):
    check_hints(**hints)
    given = [f"{name}={value}" for name, value in hints.items() if isinstance(value, bool) or value not in (None, 0, 1)]
    if given:
        tell_ignored(function, given)


class _NotKept:
    """The third result of a call with return_attn_probs and dropout. Callers that only want lse may ignore it; each use
    raises."""

    def __repr__(self):
        return "<probabilities that attune does not keep>"

    def __getattr__(self, name):
        if name.startswith("__"):  # Python, PyTorch and copy ask for these
            raise AttributeError(name)
        self._refuse()

    def _refuse(self, *_, **__):
        raise ValueError(
            "return_attn_probs is True with dropout_p; attune keeps no probabilities, so only out and lse may be used "
            "(attune.dropout_mask() returns the weights that a given seed keeps)")

    __getitem__ = __len__ = __iter__ = __bool__ = __add__ = __mul__ = __lt__ = __gt__ = __le__ = __ge__ = _refuse
    __torch_function__ = classmethod(lambda cls, *_, **__: _NOT_KEPT._refuse())


_NOT_KEPT = _NotKept()


def no_probabilities(q, dropout_p):
    """Returns the third result for return_attn_probs: an empty tensor, as in FlashAttention 2 without dropout."""
    return _NOT_KEPT if dropout_p else q.new_empty(0) if is_torch(q) else q.ravel()[:0]


def check_list(name, tensor, shape, words, q):
    """Checks an int32 tensor on q's device. words: the names of its axes."""
    import torch
    if not torch.is_tensor(tensor) or tensor.dtype != torch.int32 or tuple(
            tensor.shape) != shape or tensor.device != q.device:
        found = f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}" if torch.is_tensor(
            tensor) else f"{tensor!r}"
        raise ValueError(f"{name} is {found}; must be a tensor of int32 {words} = {shape} on {q.device}")


def refuse_program(what):
    """Raises inside torch.compile, because a program cannot read tensors that the graph itself makes."""
    import torch
    if torch.compiler.is_compiling():
        raise ValueError(
            f"{what} would be a program that reads tensors of the graph, which torch.compile does not support; make "
            f"the call outside torch.compile")


def check_lengths(name, lengths, room, why):
    """Checks lengths that the host sees. room: a number, or one per request."""
    if lengths is None or not host_sees(lengths):
        return
    for i, length in enumerate(lengths.tolist()):
        most = room if isinstance(room, int) else int(room[i])
        if not 0 <= length <= most:
            raise ValueError(f"{name}[{i}] is {length}; must be 0 to {most}: {why}")


def seen_by_kernels(window):
    """Returns a window that contains `window` and whose sides are at least 0; sides of `window` may be below 0.
    program_of() returns the mask that narrows it again."""
    return None if window is None else tuple(side if side is None or side > 0 else 0 for side in window)


def program_of(chunk=0, window=None, ahead=0):
    """Returns the mask_mod for attention_chunk and for window sides below 0; None without both. ahead: a row's position
    minus its q_idx in the program."""
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


def with_factors(q, q_descale, heads_kv, cu_seqlens_q):
    """Returns q in the form that attention over caches takes. 8-bit q becomes bf16 times its factors [batch,
    num_heads_kv]; 16-bit q has no factors, as in FlashAttention 3."""
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
    """Returns factors per slot, [slots, 1, num_heads_kv], from factors per request and head. All keys of a slot have
    its factor."""
    if slots is None and descale.shape[0] == k_cache.shape[0]:
        return descale[:, None]
    count = k_cache.shape[0]
    made = descale.new_ones((count + 1, descale.shape[1]))  # the last entry is for requests without a slot
    if slots is None:
        made[:descale.shape[0]] = descale
    else:
        slots = slots.long().where((slots >= 0) & (slots < count), count)
        made.index_copy_(0, slots, descale)
        if host_sees(slots):
            _refuse_unlike(descale, made, slots, count)
    return made[:count, None]


def _refuse_unlike(descale, made, slots, count):
    """Raises if requests that share a slot, and so its keys, have different factors."""
    for slot, own, written in zip(slots.tolist(), descale, made[slots]):
        if slot < count and not own.equal(written):
            raise ValueError(
                f"cache_batch_idx has slot {slot} more than once, with unlike factors (k_descale, v_descale); all "
                "requests of a slot must have the same factors, because they share its keys")


def scales_of(k_cache, spread, **descales):
    """Returns k_scale and v_scale for attention_kvcache().

    FlashAttention has a factor per request and head for 8-bit tensors, and ignores factors of wider tensors. attune's
    caches have a factor per head. spread(descale): converts factors per request to the cache's axes; None if the cache
    cannot hold factors per request."""
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
                    f"{name} has shape {tuple(descale.shape)}; with block_table it must be [1, num_heads_kv], shared "
                    f"by all requests, or such a tensor with .expand(batch, num_heads_kv)")
            descale = spread(descale)
        scales[name.replace("descale", "scale")] = descale
    return scales


def spread_over_slots(k_cache, block_table, slots):
    """Returns the function `spread` for scales_of(); None with block_table."""
    return None if block_table is not None else lambda descale: _of_slots(descale, slots, k_cache)
