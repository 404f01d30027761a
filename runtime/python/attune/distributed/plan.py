# SPDX-License-Identifier: Apache-2.0
"""Plan: the schedule of one rank for attention in a group, as the library makes it (attune_group.h). Makes no
transfer, and needs neither PyTorch nor a group."""
from collections import namedtuple
from functools import lru_cache

from ..core.library import module
from .layout import ranges_of

ALGORITHMS = ("auto", "gather", "exchange")

# One exchange of tokens and heads of `what` between two ranks; ranges are [first, end).
Transfer = namedtuple("Transfer", "round what source target tokens heads bytes")
# One call on slices: rows and keys of the whole, heads of q, and the window (left, right) of the slice, -1 if open.
Launch = namedtuple("Launch", "round rows keys heads left right")
Join = namedtuple("Join", "round what tokens heads")
# received: the bytes that each rank receives in this pass.
Pass = namedtuple("Pass", "received transfers launches joins")


class Plan:
    """A schedule: ranges (of each rank), algorithm, forward and backward (see Pass). blocks: the borders of blocks of
    rows if launches are the same for each number of ranks, else ()."""

    def __init__(self, text):
        self.text, self.blocks = text, ()
        for line in text.splitlines():
            word, *values = line.split(" ")
            if word == "layout":
                self.layout = values[0]
                self.ranges = ranges_of(values[0])
            elif word == "algorithm":
                self.algorithm = values[0]
            elif word == "blocks":
                self.blocks = tuple(map(int, values))
            elif word in ("forward", "backward"):
                steps = Pass(tuple(map(int, values)), [], [], [])
                setattr(self, word, steps)
            else:
                self._add(steps, word, values)

    def _add(self, steps, word, values):
        names = [None if value.lstrip("-").isdigit() else value for value in values]
        numbers = [int(value) if name is None else name for name, value in zip(names, values)]
        if word == "transfer":
            round_, what, source, target, *rest = numbers
            steps.transfers.append(Transfer(round_, what, source, target, tuple(rest[:2]), tuple(rest[2:4]), rest[4]))
        elif word == "launch":
            round_, *rest = numbers
            steps.launches.append(Launch(round_, *(tuple(rest[at:at + 2]) for at in (0, 2, 4)), *rest[6:]))
        elif word == "join":
            round_, what, *rest = numbers
            steps.joins.append(Join(round_, what, tuple(rest[:2]), tuple(rest[2:])))
        else:
            raise RuntimeError(f"internal error: a schedule has the line {word!r}, which this package does not know")


@lru_cache(maxsize=256)
def make_plan(problem, world, rank, layout, algorithm="auto", documents=None, training=False,
              world_invariant=False):
    """Returns the Plan of a rank. problem: the problem of the whole, as text. layout: a kind, or the text of ranges.
    Raises attune.Error if the library refuses it."""
    request = f"world={world},rank={rank},layout={layout},algorithm={algorithm},training={int(training)}"
    if world_invariant:
        request += ",world_invariant=1"
    if documents is not None:
        request += f",documents={':'.join(map(str, documents))}"
    return Plan(module.group_schedule(module.problem(problem.encode(), ()), request.encode()))


def mask_of(launch):
    """Returns the keywords mask and window of a launch."""
    left, right = (None if side < 0 else side for side in (launch.left, launch.right))
    if right == 0:
        return {"mask": "causal_bottom_right", "window": None if left is None else (left, None)}
    return {"mask": None, "window": None if (left, right) == (None, None) else (left, right)}
