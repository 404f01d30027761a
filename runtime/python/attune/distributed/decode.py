# SPDX-License-Identifier: Apache-2.0
"""attention_kvcache() and append_kv() over caches that are spread over the ranks of a group (cache_layout.py). Each
rank attends to its own keys. One exchange brings the partial results to all ranks as fp32, and merge() joins them."""
import sys

from ..core.problem import cache_mask, mask_name, whole, window_sides
from ..core.torch_state import refuse_gradients, untraced
from ..ops.append import append_kv as append
from ..ops.kvcache import attention_kvcache as attend
from ..ops.merge import merge
from ..ops.prepare import prepare
from .cache_layout import Step, joins_of
from .group import key_of

_GRAIN = 4  # floats: states begin at multiples of 16 bytes
_PASSED = ("scale", "softcap", "dtype_kv", "batch_invariant")
_OF_RANK = ("k_scale", "v_scale", "context")  # each rank has its own
_TAKEN = ("mask", "is_causal", "window", "sinks", "seqlen_kv", *_PASSED, *_OF_RANK)
_REFUSED = {
    "alibi_slopes": "its distances", "score_mod": "its positions", "mask_mod": "its positions",
    **dict.fromkeys(("k_factors", "v_factors"), "factors of 4-bit caches"),
    "kv_begins": "packed keys", **dict.fromkeys(("key_indices", "key_places", "key_counts"), "lists of keys"),
    **dict.fromkeys(("kv_lengths", "page_table", "slots", "q_begins", "seqlen_q"), "lists beside those of the step")}


class Decoding:
    """A call that all ranks have agreed on: the choices of this rank's launch, and the joins.

    States are the partial results of ranks, each in one piece of memory: o [rows, heads, columns], lse [heads, rows],
    and a number that is not 0 if the rank refused its launch."""

    def __init__(self, q, k_cache, v_cache, step, given):
        layout = step.layout
        self.group, self.joins = layout.group, joins_of(layout.group.world)
        self.rows, self.heads, self.columns = q[..., 0, 0].numel(), q.shape[-2], v_cache.shape[-1]
        if self.columns % 8 or self.columns < 16:
            raise ValueError(f"v_cache has a head_dim of {self.columns}; must be a multiple of 8 from 16 on in a group")
        self.of_o, self.of_lse = self.rows * self.heads * self.columns, self.rows * self.heads
        self.at_refusal = self.of_o + self.of_lse
        self.size = -(-(self.at_refusal + 1) // _GRAIN) * _GRAIN
        self.choices = {name: given[name] for name in _PASSED if given.get(name) is not None}
        left, right = window_sides(given.get("window"))
        if mask_name(cache_mask(given.get("mask"), given.get("is_causal", False)), False, 0, 0) != "none":
            right = 0
        rows_of_request = q.shape[1] if step.q_begins is None else step.seqlen_q
        self.sides = (left, right if rows_of_request > 1 else -1)  # a request's only row is at its last key
        if left >= 0:
            self.choices["window"] = (layout.most(left + 1) - 1, None)  # no rank holds more keys of the window
        longest = given.get("seqlen_kv")
        self.longest = None if longest is None else layout.most(whole("seqlen_kv", longest))
        sinks = given.get("sinks")
        self.hidden_sinks = None  # sinks count once, on rank 0
        if sinks is not None and self.group.rank > 0:
            self.hidden_sinks = sys.modules["torch"].full_like(sinks, -sys.modules["torch"].inf)

    def new_states(self, q, count):
        torch = sys.modules["torch"]
        return torch.empty((count, self.size), dtype=torch.float32, device=q.device)

    def parts(self, states):
        """Returns o [states, rows, heads, columns] and lse [states, heads, rows] of states."""
        o = states[:, :self.of_o].unflatten(1, (self.rows, self.heads, self.columns))
        return o, states[:, self.of_o:self.at_refusal].unflatten(1, (self.heads, self.rows))

    def options(self, step, given, page_size):
        """Returns the keywords of this rank's launch."""
        options = {**self.choices, **step.lists}
        options.update((name, given[name]) for name in _OF_RANK if given.get(name) is not None)
        if self.longest is not None and step.page_table is not None:
            options["seqlen_kv"] = min(self.longest, step.page_table.shape[1] * page_size)
        if given.get("sinks") is not None:
            options["sinks"] = given["sinks"] if self.hidden_sinks is None else self.hidden_sinks
        if self.sides != (-1, -1):
            options["mask_mod"] = step.mask(*self.sides)
        return options

    def merges(self, states, out):
        """Yields the arguments of the joins. The first one writes new sums, the last one out and the returned lse."""
        gathered, (_, _, half) = self.parts(states), self.joins[0]
        sums = [x.new_empty((half, *x.shape[1:])) for x in gathered]
        for number, (first, other, count) in enumerate(self.joins):
            one = [x[first:first + count] for x in (sums if number else gathered)]
            another = [x[other:other + count] for x in (sums if number and other < half else gathered)]
            into = [x[:count] for x in sums]
            if number + 1 == len(self.joins):
                into = [out.view(1, self.rows, self.heads, self.columns), None]
            yield *one, *another, *into

    def prepare(self, q, k_cache, v_cache, step, given, out):
        """Compiles what the call launches, and runs nothing."""
        states = self.new_states(q, self.group.world)
        prepare(attend, q, k_cache, v_cache, step.lengths, out=self.parts(states)[0][0].view(out.shape),
                return_lse=True, **self.options(step, given, k_cache.shape[1]))
        for arguments in self.merges(states, out):
            prepare(merge, *arguments, context=given.get("context"))

    def _attend(self, mine, q, k_cache, v_cache, step, given, out):
        """Computes this rank's state."""
        o, lse = self.parts(mine)
        _, found = attend(q, k_cache, v_cache, step.lengths, out=o[0].view(out.shape), return_lse=True,
                          **self.options(step, given, k_cache.shape[1]))
        lse[0].copy_(found if found.dim() == 2 else found.transpose(0, 1).flatten(1))

    def run(self, q, k_cache, v_cache, step, given, out):
        """Computes out. Returns lse [heads, rows].

        A rank whose launch is refused, for instance for a page id, takes part in the exchange before it raises: the
        others would wait for it, or take its next exchange for this one. On a CPU they then raise GroupError. On a GPU,
        where the host does not wait for the exchange, they get NaN."""
        mine, refusal = self.new_states(q, 1), None
        try:
            self._attend(mine, q, k_cache, v_cache, step, given, out)
        except Exception as error:
            mine.fill_(sys.modules["torch"].nan)
            refusal = error
        if not q.is_cuda:
            mine[0, self.at_refusal] = refusal is not None
        states = self.new_states(q, self.group.world)
        self.group.gather_states(states, mine)
        if q.is_cuda and refusal is not None:
            raise refusal
        if not q.is_cuda and states[:, self.at_refusal].any():
            self.group.settle("a call that runs", refusal)
        for arguments in self.merges(states, out):
            _, found = merge(*arguments, context=given.get("context"))
        return found[0]


def _check(q, k_cache, v_cache, step, given):
    torch = sys.modules["torch"]
    if not isinstance(step, Step):
        raise TypeError(f"step is {type(step).__name__}; must be a Step that CacheLayout.step() made")
    for name in given:
        if name in _REFUSED:
            raise ValueError(f"{name} is given, and caches in a group do not serve {_REFUSED[name]}; must be left out")
        if name not in _TAKEN:
            raise TypeError(f"attention_kvcache() of a group got an unexpected keyword argument {name!r}")
    for name, x in (("q", q), ("k_cache", k_cache), ("v_cache", v_cache)):
        if type(x) not in (torch.Tensor, torch.nn.Parameter):
            raise TypeError(f"{name} is {type(x).__name__}; must be a PyTorch tensor")
    if q.dim() != (4 if step.q_begins is None else 3):
        raise ValueError(f"q has {q.dim()} dimensions; must be [batch, seqlen_q, num_heads_q, head_dim], or [rows, "
                         "num_heads_q, head_dim] with q_begins")


def _told(x):
    return f"{x.dtype} {tuple(x.shape)}" if hasattr(x, "shape") else repr(x)


def _described(q, k_cache, v_cache, step, given, out):
    """Returns the text that ranks compare, and the Decoding, whose kernels are compiled."""
    _check(q, k_cache, v_cache, step, given)
    step.layout.group.check_device(q)
    decoding = Decoding(q, k_cache, v_cache, step, given)
    if q.numel() and decoding.joins:
        decoding.prepare(q, k_cache, v_cache, step, given, out)
    told = {name: _told(given[name]) for name in sorted(given) if given[name] is not None and name not in _OF_RANK}
    caches = f"{k_cache.dtype} {tuple(k_cache.shape[2:])}, {v_cache.dtype} {tuple(v_cache.shape[2:])}"
    text = f"decoding q {_told(q)}, caches {caches}, {step.told}, out {out.dtype}, {told}"
    return text, decoding


def _key(q, k_cache, v_cache, step, given, out):
    """Returns the key of a call. All that it holds is equal on all ranks, so all of them meet a new key together."""
    known = tuple((name, x is None if name in _OF_RANK else key_of(x)) for name, x in given.items())
    return ("decode", q.shape, q.dtype, k_cache.shape[2:], k_cache.dtype, v_cache.shape[2:], out.dtype, step.told,
            known)


@untraced
def attention_kvcache(q, k_cache, v_cache, *, step, out=None, return_lse=False, **choices):
    """Returns attention of the newest tokens over keys that are spread over the caches of a group's ranks. All ranks
    must call it, in the same order, with equal q.

    q: [batch, seqlen_q, num_heads_q, head_dim], or packed rows, as in attune.attention_kvcache(). k_cache, v_cache:
    this rank's pages or slots, as there. step: the Step with the lists, of CacheLayout.step(). seqlen_kv: the most keys
    of a request on all ranks together.
    mask, is_causal, window, sinks, scale, softcap, k_scale, v_scale, dtype_kv, batch_invariant, context: as there, for
    whole requests. Masks of several rows, and windows, run as programs of the score language. Sinks count once.
    Factors of 8-bit caches are this rank's. Other keywords of attune.attention_kvcache() raise ValueError.
    head_dim of v_cache: a multiple of 8 from 16 on.

    Partial results are fp32, so joining them rounds nothing to 16 bits. Returns out (q's dtype, or the given tensor),
    or with return_lse (out, lse) as attune.attention_kvcache() does, on every rank with the same bits.
    Nothing waits for the host after the first call of a kind, and CUDA graphs can capture later calls with NCCL.
    Raises GroupError on all ranks if they disagree about a call that is new to the group, if one cannot compile it, or,
    on CPUs, if one refuses its lists; ValueError, TypeError and attune.Error as attune.attention_kvcache() does. Has no
    gradients."""
    if getattr(getattr(step, "layout", None), "group", None) is None:
        raise TypeError(f"step is {type(step).__name__}; must be a Step that CacheLayout.step() made")
    refuse_gradients((("q", q), ("k_cache", k_cache), ("v_cache", v_cache)))
    shape = (*q.shape[:-1], v_cache.shape[-1])
    result = q.new_empty(shape) if out is None else out
    if result.shape != shape or not result.is_contiguous():
        raise ValueError(f"out has shape {tuple(result.shape)}; must be contiguous, of shape {tuple(shape)}")
    decoding = step.layout.group.agreed(
        _key(q, k_cache, v_cache, step, choices, result),
        lambda: _described(q, k_cache, v_cache, step, choices, result))
    if step.layout.group.world == 1:
        return attend(q, k_cache, v_cache, step.kv_lengths, out=out, return_lse=return_lse, **step.lists, **choices)
    if not q.numel():
        lse = q.new_empty(shape[-2::-1], dtype=sys.modules["torch"].float32)
        return (result, lse) if return_lse else result
    lse = decoding.run(q, k_cache, v_cache, step, choices, result)
    if return_lse and q.dim() == 4:
        lse = lse.unflatten(1, q.shape[:2]).transpose(0, 1).contiguous()
    return (result, lse) if return_lse else result


@untraced
def append_kv(k, v, k_cache, v_cache, *, step, **choices):
    """Writes new rows of k and v into the caches of the ranks that hold them. All ranks call it with equal k and v. No
    rank sends anything.

    k, v: [batch, seqlen, num_heads_kv, head_dim], or packed rows [rows, ..] with the step's q_begins, as in
    attune.append_kv(). k_cache, v_cache: this rank's. step: the Step with the lists, whose kv_lengths include the new
    rows. cos, sin, interleaved, q, q_out, k_scale, v_scale, make_scales, dtype_kv, context: as in attune.append_kv();
    angles are those of positions in the whole request, and every rank rotates all of q.
    Returns q_out, or None without q. Raises as attune.append_kv() does."""
    if not isinstance(step, Step):
        raise TypeError(f"step is {type(step).__name__}; must be a Step that CacheLayout.step() made")
    slots, positions = step.places(k.shape[-3], k_cache.shape[1])
    if choices.get("cos") is not None:
        choices["positions"] = positions
    return append(k, v, k_cache, v_cache, row_slots=slots, **choices)
