# SPDX-License-Identifier: Apache-2.0
"""The tensors that the steps of a Plan move. They hold some tokens and heads of the whole; a Route is the order in
which an exchange sends their parts. Used by run.py and invariant.py."""
import math
from collections import namedtuple


class Held:
    """A tensor [batch, tokens, heads, x] that holds some tokens and heads of the whole. ranges: its tokens, rising."""

    def __init__(self, tensor, ranges, first_head=0):
        self.tensor, self.ranges, self.first_head = tensor, ranges, first_head

    def slice_of(self, tokens):
        """Returns the tokens' slice, or None if they are not in one range."""
        offset = 0
        for first, end in self.ranges:
            if first <= tokens[0] and tokens[1] <= end:
                return slice(offset + tokens[0] - first, offset + tokens[1] - first)
            offset += end - first
        return None

    def index(self, tokens, heads):
        """Returns the index of these tokens and heads."""
        rows = self.slice_of(tokens)
        if rows is None:
            raise RuntimeError(f"internal error: tokens {tokens} are not in {self.ranges}")
        return slice(None), rows, slice(heads[0] - self.first_head, heads[1] - self.first_head)

    def part(self, tokens, heads):
        """Returns a view of these tokens and heads."""
        return self.tensor[self.index(tokens, heads)]

    def heads(self):
        return self.first_head, self.first_head + self.tensor.shape[2]


def overlaps(ranges, others):
    """Yields the ranges of tokens that are in both."""
    for one in ranges:
        for first, end in others:
            if max(one[0], first) < min(one[1], end):
                yield max(one[0], first), min(one[1], end)


# An exchange sends transfers of `what` from `source` (a Held) to take(transfer, part). width: the last axis.
Item = namedtuple("Item", "what source width take")


class Route:
    """The order of the parts that an exchange of items sends and receives: by ranks.

    sent: pairs of an item's number and an index into its source. coming: pairs of an item's number and a Transfer.
    shapes, sizes: of the parts that come. sent_counts, coming_counts: elements for each rank."""

    def __init__(self, items, sent, coming, world):
        batch = items[0].source.tensor.shape[0]
        shape = lambda number, step: (batch, step.tokens[1] - step.tokens[0], step.heads[1] - step.heads[0],
                                      items[number].width)
        self.what = " and ".join(dict.fromkeys(item.what for item in items))
        self.sent = [(number, items[number].source.index(step.tokens, step.heads)) for number, step in sent]
        self.coming, self.shapes = coming, [shape(*pair) for pair in coming]
        self.sizes = [math.prod(one) for one in self.shapes]
        self.sent_counts, self.coming_counts = [0] * world, [0] * world
        for number, step in sent:
            self.sent_counts[step.target] += math.prod(shape(number, step))
        for size, (_, step) in zip(self.sizes, coming):
            self.coming_counts[step.source] += size
