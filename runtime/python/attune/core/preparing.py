# SPDX-License-Identifier: Apache-2.0
"""The state of prepare() (ops/prepare.py): while it is on, calls of that thread find their plans, and run and write
nothing. Used by ops/, torch/graph.py and the adapters that write tensors."""
import contextlib
import threading

from .library import module

_state = threading.local()
_lock = threading.Lock()
_threads = 0  # that prepare a call now


def preparing():
    """True while this thread prepares a call."""
    return _threads > 0 and getattr(_state, "plans", None) is not None


preparing._dynamo_marked_constant = True  # as torch_state.py's marked_constant(), which needs this module


def note(plan):
    """Tells the prepare() that is under way, if there is one, that the call runs this plan."""
    if _threads > 0 and preparing():
        plan.prepare()
        _state.plans.append(plan)


def copied(target, made):
    """Returns `target`, into which `made` is copied unless this thread prepares a call."""
    return target if preparing() else target.copy_(made)


@contextlib.contextmanager
def noted_plans():
    """Returns a scope in which this thread runs nothing, as the list of plans that its calls would run."""
    global _threads
    before, _state.plans = getattr(_state, "plans", None), []
    with _lock:
        _threads += 1
    module.check_all(True)  # calls that the C module knows take the Python path too
    try:
        yield _state.plans
    finally:
        module.check_all(False)
        with _lock:
            _threads -= 1
        _state.plans = before
