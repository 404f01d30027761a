# SPDX-License-Identifier: Apache-2.0
"""Kept calls: all that calls with equal shapes, strides and choices share. Used by the other modules of ops/."""
from ..core.preparing import note


def kept_call(context, key, make):
    """Returns the context's kept call of this key, or keeps the call that make() returns. prepare() stops here."""
    recent = context.recent  # reload() replaces it
    call = recent.find(key)
    if call is None:
        call = make()
        recent.keep(key, call)
    note(call.plan)
    return call
