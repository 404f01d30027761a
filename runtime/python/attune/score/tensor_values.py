# SPDX-License-Identifier: Apache-2.0
"""Tensors in a traced function (trace.py): captured tensors, results of operations on whole tensors, and broadcast
tensors. A score program reads single elements of them; an element is a Value (values.py)."""
import operator

from .index_ranges import may_be_negative
from .values import CHOICE, NeedsValue, Operators, Value, refuse, values_in

_COMPUTED = "the result of an operation on "


class TensorValue(Operators):
    """A tensor with `indices` given so far, fewer than its rank. source: an object of one of the classes below."""

    __slots__ = ("program", "source", "indices", "is_detached")

    def __init__(self, program, source, indices=(), is_detached=False):
        self.program, self.source, self.indices, self.is_detached = program, source, indices, is_detached

    def __str__(self):
        given = f"{len(self.indices)} {'index' if len(self.indices) == 1 else 'indices'}" if self.indices else "none"
        return f"{self.source.label} with {given} of its {self.source.rank} indices"

    __repr__ = __str__

    def __getitem__(self, index):
        label, rank = self.source.label, self.source.rank
        indices = self.indices + tuple(
            self.program.index(label, one) for one in (index if isinstance(index, tuple) else (index, )))
        if len(indices) > rank:
            refuse(f"{label} has {rank} dimensions, shape {tuple(self.source.shape)}, and gets {len(indices)} indices")
        if len(indices) < rank:
            return TensorValue(self.program, self.source, indices, self.is_detached)
        element = self.source.element(indices)
        return element.detach() if self.is_detached else element

    def detach(self):
        return TensorValue(self.program, self.source, self.indices, True)

    def clone(self, **_):
        return self

    contiguous = clone

    def expand(self, *sizes):
        sizes = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
        return TensorValue(self.program, Expanded(self, [operator.index(one) for one in sizes]),
                           is_detached=self.is_detached)

    def expand_as(self, other):
        return self.expand(*other.shape)

    shape = property(lambda self: tuple(self.source.shape)[len(self.indices):])

    def size(self, axis=None):
        return self.shape if axis is None else self.shape[axis]

    def __len__(self):
        return self.shape[0]

    @property
    def ndim(self):
        return self.source.rank - len(self.indices)

    def dim(self):
        return self.ndim

    dtype = property(lambda self: self.source.dtype)
    device = property(lambda self: self.source.device)

    def __bool__(self):
        refuse(CHOICE)

    def __iter__(self):
        refuse(f"{self} is not a single element, and cannot be iterated over; give it an index for each axis")

    def __hash__(self):
        refuse(f"{self} is not a single element, and cannot be a key of a set or dict")


class Captured:
    """A leaf of the trace."""

    def __init__(self, program, leaf):
        self.program, self.leaf = program, leaf
        self.label, self._tensor = program.leaves[leaf]
        self.rank, self.dtype, self.device = len(self._tensor.shape), self._tensor.dtype, getattr(
            self._tensor, "device", None)

    @property
    def shape(self):
        if self.leaf not in self.program.fixed:
            raise NeedsValue([self.leaf])
        return self._tensor.shape

    def element(self, indices):
        return self.program.load(self.leaf, tuple(self._from_end(axis, one) for axis, one in enumerate(indices)))

    def _from_end(self, axis, index):
        """Returns the index for the program: an index below 0 counts from the end."""
        if not may_be_negative(index.range):
            return index
        least, most = index.range
        extent = self.program.extent(self.leaf, axis)
        if most is not None and most < 0:
            return index + extent
        return self.program.operation("where")(index < 0, index + extent, index)


class Computed:
    """An operation on whole tensors, element by element, with PyTorch's broadcasting."""

    def __init__(self, program, operation, args, kwargs):
        self.program, self._operation, self._args, self._kwargs = program, operation, args, kwargs
        self._tensors = [one for one in values_in((args, kwargs)) if isinstance(one, TensorValue)]
        first = self._tensors[0].source.label.removeprefix(_COMPUTED)
        self.rank, self.label = max(one.ndim for one in self._tensors), _COMPUTED + first
        self.device = self._tensors[0].device

    @property
    def dtype(self):
        refuse(f"{self.label} has no dtype yet; ask for the dtype of its elements")

    @property
    def shape(self):
        shapes = [(1,) * (self.rank - one.ndim) + tuple(one.shape) for one in self._tensors]
        return tuple(next((extent for extent in extents if extent != 1), 1) for extents in zip(*shapes))

    def _of(self, part, indices):
        if isinstance(part, (tuple, list)):
            return type(part)(self._of(one, indices) for one in part)
        if not isinstance(part, TensorValue):
            return part
        own = indices[self.rank - part.ndim:]
        if len(self._tensors) > 1:  # otherwise the indices are its own, and it may have any shape
            own = tuple(self.program.lift(0) if extent == 1 else one for extent, one in zip(part.shape, own))
        return part[own]

    def element(self, indices):
        kwargs = {name: self._of(part, indices) for name, part in self._kwargs.items()}
        return self._operation(*self._of(self._args, indices), **kwargs)


class Expanded:
    """A tensor with more leading axes, and with more elements along axes of 1."""

    def __init__(self, tensor, sizes):
        missing = len(sizes) - tensor.ndim
        if missing < 0 or any(size == -1 for size in sizes[:missing]) or any(
                extent not in (1, size) and size != -1 for extent, size in zip(tensor.shape, sizes[missing:])):
            refuse(f"{tensor} is expanded to {tuple(sizes)}, but its shape {tuple(tensor.shape)} does not broadcast")
        self._tensor, self._missing, self.rank = tensor, missing, len(sizes)
        self.shape = (*sizes[:missing], *(extent if size == -1 else size
                                          for extent, size in zip(tensor.shape, sizes[missing:])))
        self.label, self.device = tensor.source.label, tensor.device

    dtype = property(lambda self: self._tensor.dtype)

    def element(self, indices):
        own = zip(self._tensor.shape, indices[self._missing:])
        return self._tensor[tuple(self._tensor.program.lift(0) if extent == 1 else one for extent, one in own)]
