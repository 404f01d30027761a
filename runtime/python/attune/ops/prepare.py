# SPDX-License-Identifier: Apache-2.0
"""prepare(): makes the plans of a call, and runs nothing. Also its names of version 0.2. See core/preparing.py."""
import contextlib
import functools
import sys
import warnings

from ..core.preparing import noted_plans
from ..core.torch_state import untraced
from .append import append_kv
from .attention import attention
from .cascade import cascade
from .kvcache import attention_kvcache
from .merge import merge
from .padding import levels_to_caller
from .quantise import quantise


_ROOMS = ("attune.ops.", "attune.sdpa", "attune.flash", "attune.flex")
_OTHERS = ("attune.ops.context", "attune.ops.prepare", "attune.ops.rotary")


@untraced
def prepare(function=None, *arguments, **keywords):
    """Prepares function(*arguments, **keywords), for instance before a CUDA graph's capture: compiles and loads the
    kernels, and makes the workspaces that graphs use.

    function: attune.attention, attention_kvcache, append_kv, merge, quantise, cascade, index_scores, top_k,
    attention_backward or score_gradient, or a function of attune.sdpa, attune.flash, attune.flex or attune.flashinfer.
    Its arguments are those of the coming call; they are checked as in that call, except lengths in lists.
    Computes nothing, and writes into no tensor. Returns the Plan, or a list of the plans if the call does not run
    exactly one. Graphs that are replayed at the same time need Plan.run() with a workspace per graph.
    Raises as the function does, and TypeError if `function` is not a function of attune."""
    if hasattr(function, "shape") or function is None and "q" in keywords:  # version 0.2: prepare(q, k, v, ...)
        _tell("prepare(q, k, v, ...)", attention)
        return prepare(attention, *(() if function is None else (function,)), *arguments, **keywords)
    module = getattr(function, "__module__", None) or ""
    if isinstance(function, type) or not callable(function) or module in _OTHERS or not module.startswith(_ROOMS):
        raise TypeError(f"function is {function!r}; must be a function of attune that runs kernels, such as "
                        "attune.attention")
    torch = sys.modules.get("torch")
    with getattr(torch, "no_grad", contextlib.nullcontext)(), noted_plans() as plans:
        function(*arguments, **keywords)
    return plans[0] if len(plans) == 1 else plans


def _tell(form, function):
    warnings.warn(f"attune.{form} is attune.prepare(attune.{function.__name__}, ...) now; the next version drops it",
                  DeprecationWarning, stacklevel=levels_to_caller())


def _alias(name, function):
    @functools.wraps(function)
    def alias(*arguments, **keywords):
        _tell(f"{name}(...)", function)
        plans = prepare(function, *arguments, **keywords)
        return [plans] if function is cascade and not isinstance(plans, list) else plans

    alias.__name__ = alias.__qualname__ = name
    alias.__module__ = __name__  # where pickle finds it
    alias.__doc__ = f"Deprecated: attune.prepare(attune.{function.__name__}, ...)."
    return alias


prepare_append_kv = _alias("prepare_append_kv", append_kv)
prepare_kvcache = _alias("prepare_kvcache", attention_kvcache)
prepare_merge, prepare_quantise = _alias("prepare_merge", merge), _alias("prepare_quantise", quantise)
prepare_quantize = prepare_quantise
prepare_cascade = _alias("prepare_cascade", cascade)
