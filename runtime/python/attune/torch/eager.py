# SPDX-License-Identifier: Apache-2.0
"""torch.ops.attune.attention in eager mode, without PyTorch's dispatcher. Used by __init__.py.

The dispatcher takes three times as long as the call itself, because it boxes each argument and calls back into Python.
So only the first call with certain shapes, spec and scope goes through it. Later equal calls run in the C module, if
all tensors are plain and no other dispatch key applies in their scope. Calls under profilers, function or dispatch
modes, autocast, transforms or tracing, with gradients, or of negative views always go through the dispatcher.
"""
import contextlib
import threading

import torch

from ..ops import quick

_local = threading.local()


def wanted_recipes():
    """Returns the list that collects recipes of _attention._checked(), if the current call may be kept; otherwise None.
    """
    return getattr(_local, "recipes", None)


@contextlib.contextmanager
def hidden():
    """Returns a scope in which no call is kept. Autograd's forward needs it, because it always computes lse as well."""
    before, _local.recipes = wanted_recipes(), None
    try:
        yield
    finally:
        _local.recipes = before


_HARMLESS = torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect).add(
    torch._C.DispatchKey.ADInplaceOrView).raw_repr()


def in_plain_scope():
    """True if no dispatch key of this thread precedes the kernel's: no mode, transform or tracing."""
    return torch._C._dispatch_tls_local_include_set().raw_repr() & ~_HARMLESS == 0


def _checked(dispatch):
    """Returns a function that gives the op's result through the dispatcher, and the recipe by which the C module can
    repeat the call, or None."""
    def checked(*arguments, **choices):
        before, _local.recipes = wanted_recipes(), []
        try:
            result, found = dispatch(*arguments, **choices), _local.recipes
        finally:
            _local.recipes = before
        return result, found[0] if len(found) == 1 and in_plain_scope() else None
    return checked


def shorten(op):
    """Gives an op's overload the fast path, by replacing its attribute _op. That attribute is private to PyTorch, which
    also replaces it. If it is missing, or PyTorch's guards are (guard.h), all calls go through the dispatcher."""
    native, profiler = torch._C, torch.autograd.profiler
    needed = (native,
              "_is_torch_function_mode_enabled"), (native,
                                                   "_dispatch_tls_local_include_set"), (profiler,
                                                                                        "_is_profiler_enabled"), (op,
                                                                                                                  "_op")
    if quick.guard_maker(torch) is None or not all(hasattr(*each) for each in needed):
        return
    dispatch, is_watched = op._op, native._is_torch_function_mode_enabled
    arguments = op._schema.arguments
    required, positional = (sum(not test(one) for one in arguments)
                            for test in (lambda one: one.has_default_value(), lambda one: one.kwarg_only))
    parameters = tuple(one.name for one in arguments), tuple(
        one.default_value for one in arguments[required:]), required, positional
    op._op = quick.function(_checked(dispatch), "attention", parameters, contexts=False,
                            watch=(profiler, "_is_profiler_enabled", is_watched))
