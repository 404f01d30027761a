# SPDX-License-Identifier: Apache-2.0
"""Layout: the tokens of one sequence that each rank of a group holds. Group.layout() makes layouts."""
import sys
from functools import cached_property

from ..core.torch_state import refuse_gradients

KINDS = ("auto", "contiguous", "zigzag", "balanced")


def ranges_of(text):
    """Returns, for each rank, a tuple of ranges (first, end) from the text of the C interface."""
    return tuple(
        tuple(tuple(map(int, pair.split("-"))) for pair in rank.split("+")) if rank else () for rank in text.split("/"))


class Layout:
    """The tokens that each rank holds, as ranges of the whole sequence. It serves all layers of a model.

    ranges: for each rank a tuple of ranges (first, end), rising; () if the rank holds no token. documents: the borders
    of packed documents, from 0 to seqlen, or None. Layouts do not change, and keep their group alive."""

    def __init__(self, group, seqlen, documents, text):
        self.group, self.seqlen, self.documents, self.text = group, seqlen, documents, text
        self.ranges = ranges_of(text)
        self.told = f"layout={text},documents={documents}"  # what ranks compare

    @property
    def mine(self):
        """The ranges of this rank."""
        return self.ranges[self.group.rank]

    @cached_property
    def lengths(self):
        """The number of tokens that each rank holds."""
        return tuple(sum(end - first for first, end in rank) for rank in self.ranges)

    @property
    def length(self):
        """The number of tokens that this rank holds."""
        return self.lengths[self.group.rank]

    def _check(self, x, dim, wanted):
        if not isinstance(dim, int) or isinstance(dim, bool) or not -x.dim() <= dim < x.dim():
            raise ValueError(f"dim is {dim!r}; must be an axis of a tensor with {x.dim()} dimensions")
        if x.shape[dim] != wanted:
            raise ValueError(f"x has {x.shape[dim]} tokens in dim {dim}; must have {wanted}")

    def shard(self, x, dim=1):
        """Returns the part of a tensor that this rank holds, in the order of the sequence. x: any tensor with the whole
        sequence along `dim`. Autograd records the result."""
        torch = sys.modules["torch"]
        self._check(x, dim, self.seqlen)
        parts = [x.narrow(dim, first, end - first) for first, end in self.mine]
        return torch.cat(parts, dim) if parts else x.narrow(dim, 0, 0)

    def unshard(self, x, dim=1):
        """Returns the whole tensor on every rank, from the parts of all ranks. All ranks of the group must call it.
        Raises ValueError for a tensor that requires a gradient: it computes none."""
        torch = sys.modules["torch"]
        self._check(x, dim, self.length)
        refuse_gradients((("x", x),))
        parts = self.group.gather_parts(x.movedim(dim, 0), self.lengths)
        whole = x.new_empty((self.seqlen, *parts[0].shape[1:]))
        for part, ranges in zip(parts, self.ranges):
            offset = 0
            for first, end in ranges:
                whole[first:end] = part[offset:offset + end - first]
                offset += end - first
        return torch.movedim(whole, 0, dim).contiguous()

    def positions(self, device=None):
        """Returns the positions of this rank's tokens, int64 [length], for rotary embeddings. Positions of packed
        documents count from their document's first token."""
        torch = sys.modules["torch"]
        whole = torch.arange(self.seqlen)
        for first, end in zip(self.documents or (), (self.documents or ())[1:]):
            whole[first:end] -= first
        parts = [whole[first:end] for first, end in self.mine]
        return (torch.cat(parts) if parts else whole[:0]).to(device)

    def __repr__(self):
        return f"Layout(rank={self.group.rank}, seqlen={self.seqlen}, {self.text})"
