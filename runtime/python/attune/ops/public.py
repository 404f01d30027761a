# SPDX-License-Identifier: Apache-2.0
"""Public functions of ops: their fast path, what torch.compile traces, and errors with the names of other libraries.
Signature and docstring stand once, in the function that checks the call. Used by ops/ and tools/why.py."""
import functools

from ..core.torch_state import in_graphs, profiled, tell_written
from . import quick

# Names of arguments in FlashAttention and PyTorch's SDPA, and attune's names for them.
WORDS = {
    "causal": "mask=\"causal\" or is_causal=True",
    "attn_mask": "mask_tensor (bool, True shows a key) or bias (numbers that are added)",
    "attention_mask": "mask_tensor (bool, True shows a key) or key_lengths", "softmax_scale": "scale",
    "sm_scale": "scale", "window_size": "window", "sliding_window": "window=(keys - 1, 0)", "dropout": "dropout_p",
    "return_softmax_lse": "return_lse", "return_attn_probs": "return_lse",
    "enable_gqa": "nothing: k and v may have fewer heads than q", "learnable_sink": "sinks"}


# The names of caches and rotary tables, for attention_kvcache() and append_kv().
OF_CACHES = {
    **WORDS, "attn_mask": "mask_mod (attune.mask_mod() makes programs)",
    "attention_mask": "kv_lengths (keys of each request) or mask_mod", "cache_seqlens": "kv_lengths, with the new keys",
    "seqused_k": "kv_lengths", "block_table": "page_table", "cache_batch_idx": "slots", "cu_seqlens_q": "q_begins",
    "indices": "key_places (places in the cache) or key_indices (positions in a request)",
    "topk_length": "key_counts", "cu_seqlens_k": "kv_begins", "max_seqlen_q": "seqlen_q",
    "max_seqlen_k": "seqlen_kv", "rotary_cos": "cos", "rotary_sin": "sin", "rotary_interleaved": "interleaved",
    "k_descale": "k_scale", "v_descale": "v_scale"}

# Named parameters cost less than *arguments, and those of a call's common arguments less than all.
_ENTRY = """
def {name}({shown}, **choices):
    try:
        result = call({given}, **choices) if choices else call({given})
    except TypeError as error:
        raise explained(error, choices, words) from None
    {tell}
    return result
"""


def explained(error, given, words=WORDS):
    """Returns a call's TypeError with attune's names of arguments; `error` itself if `given` has no such name."""
    hints = [f"{name} is {words[name]} here" for name in given if name in words]
    return TypeError(f"{error}; {', '.join(hints)}") if hints else error


def public(traced, words=WORDS, written="out"):
    """Returns a decorator for a function that checks a call and returns (result, recipe), see quick.py.

    The public function has its signature and docstring, and gives the result. The C module runs the calls that it
    knows. traced: the function of torch/graph.py that torch.compile traces. words: WORDS or OF_CACHES. written: names
    of the tensors that a call writes, of which autograd is told: out, or others and result.
    Attributes: __wrapped__, the checking function, and quick, the public one without words and autograd."""
    def make(checked):
        call = quick.function(profiled(checked), checked.__name__, parameters=quick.parameters_of(checked))
        names, _, required, positional = quick.parameters_of(checked)
        defaults, shown, given = defaults_of(checked), [*names[:required]], [*names[:positional]]
        shown += [f"{name}=defaults[{name!r}]" for name in names[required:positional]]
        if written == "out" and "out" not in given:
            shown, given = [*shown, "*", "out=None"], [*given, "out=out"]
        tell = ("if out is not None: " if written == "out" else "") + f"tell_written({written})"
        made = dict(__package__=__package__, call=call, defaults=defaults, explained=explained, words=words,
                    tell_written=tell_written)
        exec(_ENTRY.format(name=checked.__name__, shown=", ".join(shown), given=", ".join(given), tell=tell), made)
        entry = in_graphs(traced)(functools.wraps(checked)(made[checked.__name__]))
        entry._torchdynamo_disable = True  # tracing of callers stops here
        entry.quick = call
        return entry
    return make


def defaults_of(function):
    """Returns the defaults of a public function's parameters, by name."""
    names, defaults, required, _ = quick.parameters_of(getattr(function, "__wrapped__", function))
    return dict(zip(names[required:], defaults))


def with_keywords(keywords):
    """Returns a decorator for a function whose last parameter takes any keywords: it then takes those of `keywords`,
    defaults by name, and shows them in its signature. It gets the given ones only."""
    def make(function):
        names, _, required, positional = quick.parameters_of(function)
        defaults = {**defaults_of(function), **keywords}
        names = *names, *(name for name in keywords if name not in names)
        shown = [name if name in names[:required] else f"{name}=defaults[{name!r}]" for name in names]
        shown.insert(positional, "*")
        made = {"defaults": defaults}
        exec(f"def {function.__name__}({', '.join(shown)}): pass", made)
        checked = made[function.__name__]

        @functools.wraps(function)
        def entry(*arguments, **choices):
            if not choices.keys() <= defaults.keys():
                try:
                    checked(*arguments, **choices)  # raises Python's own error, or the name is a required argument's
                except TypeError as error:
                    raise explained(error, choices) from None
            return function(*arguments, **choices)

        entry.__wrapped__ = checked
        return entry
    return make
