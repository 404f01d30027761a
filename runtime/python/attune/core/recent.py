# SPDX-License-Identifier: Apache-2.0
"""Values used last, by key. Used by ops/context.py and score/trace.py."""
import collections
import contextlib


class Recent:
    """The values used last, by key. It has no lock, which a fork could find taken. Each step is atomic; other threads
    cause at most a plan made twice."""

    def __init__(self, capacity):
        self._capacity, self._items = capacity, collections.OrderedDict()

    def find(self, key):
        value = self._items.get(key)
        if value is not None:
            with contextlib.suppress(KeyError):
                self._items.move_to_end(key)
        return value

    def keep(self, key, value):
        self._items[key] = value
        if len(self._items) > self._capacity:
            with contextlib.suppress(KeyError):
                self._items.popitem(last=False)
