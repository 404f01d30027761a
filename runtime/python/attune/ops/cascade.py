# SPDX-License-Identifier: Apache-2.0
"""cascade(): attention over shared prefixes and over each request's own keys. Each prefix is read once for all its
requests. Built from attention_kvcache() and merge()."""
from ..core import tensors
from ..core.flags import flag
from ..core.problem import causal_flag
from ..core.torch_state import in_graphs, needs_op, refuse_gradients, untraced
from .kvcache import attention_kvcache
from .merge import merge

_ROWS = "[rows of all requests, num_heads, head_dim]"
_KEYS = ("k_cache", "v_cache", "q_begins", "seqlen_q")
_MORE = ("kv_lengths", "page_table", "slots", "kv_begins", "seqlen_kv", "k_scale", "v_scale", "dtype_kv")


def check_levels(q, levels):
    tensors.check_rank("q", q, _ROWS)
    levels = list(levels)
    if not levels:
        raise ValueError("levels is empty; must have at least 1 level: prefixes first, each request's own keys last")
    for number, level in enumerate(levels):
        missing = [name for name in _KEYS if level.get(name) is None]
        unknown = [name for name in level if name not in (*_KEYS, *_MORE)]
        if missing or unknown:
            raise ValueError(
                f"levels[{number}] {'lacks ' + missing[0] if missing else 'has ' + repr(unknown[0])}; must have "
                f"{', '.join(_KEYS)}, and may have {', '.join(_MORE)}, as in attention_kvcache()")
    return levels


def calls_of(q, levels, out, *, is_causal=False, sinks=None, **choices):
    """Yields the arguments of attention_kvcache() for each level. Only the last level has masks and sinks, and writes
    into `out`."""
    for number, level in enumerate(levels):
        level, last = dict(level), number == len(levels) - 1
        given = dict(choices, return_lse=True)
        if last:
            given.update(is_causal=is_causal, sinks=sinks, out=out)
        yield (q, level.pop("k_cache"), level.pop("v_cache"), level.pop("kv_lengths", None)), {**level, **given}


def _states(o, lse):
    """Returns [rows, heads, d] and [heads, rows] in merge()'s form."""
    return o[None], lse[None]


@in_graphs("cascade")
@untraced
def cascade(q, levels, *, is_causal=False, scale=None, softcap=None, sinks=None, return_lse=False, out=None,
            context=None):
    """Returns attention of requests that share prefixes. Shared keys are read once for all requests that share them.

    q: [rows, num_heads_q, head_dim], the newest tokens of all requests end to end.
    levels: dicts of attention_kvcache()'s arguments for packed rows, from the widest prefix to each request's own keys.
    A level has k_cache, v_cache, q_begins (int32, the first row of each group and the end of the last), seqlen_q (the
    most rows of a group), kv_lengths, and page_table, slots, or kv_begins with seqlen_kv. 8-bit caches need k_scale,
    v_scale and dtype_kv.
    Rows that share keys are adjacent. A level's q_begins holds the bounds of its groups; a group of the last level is a
    request. Rows outside all groups see no key of that level. A group without keys has kv_lengths 0. All levels may use
    one cache.

    Each row sees all keys of its groups. is_causal applies to the last level, where a request's last row is at its last
    key. sinks count once. Results are joined in fp32, as by merge(). Lists are read on the device: a replayed CUDA
    graph reads their new values.

    Returns out, like q with v_cache's head_dim; with return_lse (out, lse), lse fp32 [num_heads_q, rows]. A row outside
    all groups of all levels gets 0 and -inf; with only one level its out is not written, as in attention_kvcache(). Has
    no gradients. Raises ValueError or TypeError if arguments do not fit, and attune.Error if the library refuses the
    call.
    Before a CUDA graph's capture, call prepare(cascade, ...) with the same arguments."""
    is_causal, return_lse = causal_flag(is_causal), flag("return_lse", return_lse)
    graph = needs_op(q, autocast=False)
    if graph is not None:
        return graph.cascade(q, levels, is_causal=is_causal, scale=scale, softcap=softcap, sinks=sinks,
                             return_lse=return_lse, out=out, context=context)
    refuse_gradients((("q", q), ("out", out), ("sinks", sinks)))
    tensors.signature("q", q)  # refuses other types
    levels = check_levels(q, levels)
    state = None
    calls = list(
        calls_of(q, levels, out if len(levels) == 1 else None, is_causal=is_causal, sinks=sinks, scale=scale,
                 softcap=softcap, context=context))
    for number, (given, keywords) in enumerate(calls):
        found = attention_kvcache(*given, **keywords)
        if state is None:
            state = found
            continue
        joined = out if number == len(levels) - 1 else tensors.empty(q, tuple(found[0].shape),
                                                                     tensors.native_dtype(q, "fp32"))
        if joined is None:
            joined = tensors.empty(q, tuple(found[0].shape), q.dtype)
        o, lse = merge(*_states(*state), *_states(*found), out=joined[None], context=context)
        state = joined, lse[0]
    return state if return_lse else state[0]
