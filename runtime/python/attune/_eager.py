# SPDX-License-Identifier: Apache-2.0
"""torch.ops.attune.attention in eager mode. PyTorch's dispatcher takes three times as long as the call itself: it boxes each argument and asks
Python again. So the first call with certain shapes, spec and scope goes through it; calls like that one, of plain tensors in a scope where
nothing but the kernel can be meant, run in the C module. Used by torch.py. What others can see stays: profilers, modes of functions
and of dispatch, autocast, transforms, tracing, gradients and negative views lead to the dispatcher, each time."""
import contextlib
import threading

import torch

from . import _quick as quick
from ._library import module

_local = threading.local()


def wanted_recipes():
    """A list for what attention._checked() gives beside its result, inside the kernel of a call that may be kept; else None."""
    return getattr(_local, "recipes", None)


@contextlib.contextmanager
def hidden():
    """A scope in which no call is kept: of autograd's forward, which makes more than the caller asked for."""
    before, _local.recipes = wanted_recipes(), None
    try:
        yield
    finally:
        _local.recipes = before


_HARMLESS = torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect).add(
    torch._C.DispatchKey.ADInplaceOrView).raw_repr()


def in_plain_scope():
    """Whether no key of this thread stands before the kernel's: of modes, transforms and tracing."""
    return torch._C._dispatch_tls_local_include_set().raw_repr() & ~_HARMLESS == 0


def _checked(dispatch):
    """The op by the dispatcher, and how the C module may repeat the call."""
    def checked(*arguments, **choices):
        before, _local.recipes = wanted_recipes(), []
        try:
            result, found = dispatch(*arguments, **choices), _local.recipes
        finally:
            _local.recipes = before
        return result, found[0] if len(found) == 1 and in_plain_scope() else None
    return checked


def shorten(op):
    """Gives an overload the short way. Its handle is private to PyTorch, which puts other callables there itself: without it, and where PyTorch
    makes no guards (guard.h), all calls take the dispatcher's."""
    native, profiler = torch._C, torch.autograd.profiler
    needed = (native,
              "_is_torch_function_mode_enabled"), (native,
                                                   "_dispatch_tls_local_include_set"), (profiler,
                                                                                        "_is_profiler_enabled"), (op,
                                                                                                                  "_op")
    if module is None or quick.guard_maker(torch) is None or not all(hasattr(*each) for each in needed):
        return
    dispatch, is_watched = op._op, native._is_torch_function_mode_enabled
    arguments = op._schema.arguments
    required, positional = (sum(not test(one) for one in arguments)
                            for test in (lambda one: one.has_default_value(), lambda one: one.kwarg_only))
    parameters = tuple(one.name for one in arguments), tuple(
        one.default_value for one in arguments[required:]), required, positional
    op._op = quick.function(_checked(dispatch), "attention", parameters, contexts=False,
                            watch=(profiler, "_is_profiler_enabled", is_watched))
