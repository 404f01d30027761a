# SPDX-License-Identifier: Apache-2.0
"""The places where a score program loads from tensors: which elements, for which batch entries, heads, rows and keys.
Computed with PyTorch or NumPy from a program's nodes (attune_program_nodes in attune.h). Used by capture_gradient.py.
"""
import functools
import operator
import struct
import sys
from collections import namedtuple

from ..core import tensors
from ..core.library import module

# The numbers are frozen in generator/score/language/program.hpp. operands: numbers of nodes.
Node = namedtuple("Node", "operation type index bits operands")
BOOL, INT, FLOAT = range(3)
CONSTANT, NAME, SCALAR, LOAD, TO_FLOAT, TO_INT, NEGATE, ADD, SUBTRACT, MULTIPLY = range(10)
SCORE, BATCH, HEAD, KV_HEAD, Q_IDX, KV_IDX, SEQLEN_Q, SEQLEN_KV, HEAD_DIM = range(9)
AXES = (BATCH, HEAD, Q_IDX, KV_IDX)  # axes of the arrays of indices


@functools.lru_cache(maxsize=1024)
def nodes_of(handle):
    lines = module.program_nodes(handle).splitlines()
    return [Node(*numbers[:4], tuple(numbers[4:])) for numbers in (tuple(map(int, line.split())) for line in lines)]


@functools.lru_cache(maxsize=1024)
def float_loads(handle):
    """Returns the numbers of the nodes that load floats, in the order of attune_problem.load."""
    return [i for i, node in enumerate(nodes_of(handle)) if node.operation == LOAD and node.type == FLOAT]


@functools.lru_cache(maxsize=1024)
def needed_by(handle, number):
    """Returns the nodes that a load's indices are computed from, operands first."""
    nodes, needed = nodes_of(handle), set(nodes_of(handle)[number].operands)
    for i in range(number - 1, -1, -1):
        if i in needed:
            needed.update(nodes[i].operands)
    return tuple(sorted(needed))


@functools.lru_cache(maxsize=1024)
def is_along_diagonals(handle, number):
    """True if the indices depend on row and key only through their distance, and not on the batch entry."""
    nodes, steps, diagonal, moves = nodes_of(handle), {}, {}, False
    for i in needed_by(handle, number):
        node = nodes[i]
        if not node.operands:
            diagonal[i] = node.operation != NAME or node.index not in (SCORE, BATCH, Q_IDX, KV_IDX)
            moves = moves or (node.operation == NAME and node.index in (Q_IDX, KV_IDX))
        else:
            diagonal[i] = all(diagonal[one] for one in node.operands)
        steps[i] = _steps(node, [steps[one] for one in node.operands])
        diagonal[i] = diagonal[i] or (steps[i] is not None and sum(steps[i]) == 0)
    return moves and all(diagonal[one] for one in nodes[number].operands)


def _steps(node, operands):
    """Returns how far a sum of positions, lengths and numbers moves from one row, and from one key, to the next; None
    for other nodes."""
    if node.operation == NAME:
        return None if node.index in (SCORE, BATCH) else (int(node.index == Q_IDX), int(node.index == KV_IDX))
    if node.operation in (CONSTANT, SCALAR):
        return 0, 0
    if node.operation not in (NEGATE, ADD, SUBTRACT) or node.type != INT or any(one is None for one in operands):
        return None
    if node.operation == NEGATE:
        return tuple(-one for one in operands[0])
    return tuple(map(operator.add if node.operation == ADD else operator.sub, *operands))


def _library_of(like):
    return sys.modules["torch" if tensors.is_torch(like) else "numpy"]


class Indices:
    """The indices of a call's loads. problem: batch, num_heads_q, num_heads_kv, seqlen_q, seqlen_kv and head_dim.
    captures, scalars: in the program's order. Arrays have the axes batch, heads, rows and keys, of extent 1 where
    nothing depends on them."""

    def __init__(self, handle, like, problem, captures, scalars):
        self.handle, self.like, self.problem, self.captures, self.scalars = handle, like, problem, captures, scalars
        self.library = _library_of(like)

    def _array(self, values, kind):
        dtype = {
            BOOL: self.library.bool if tensors.is_torch(self.like) else bool, INT: self.library.int32,
            FLOAT: self.library.float32}[kind]
        return self.library.asarray(values, dtype=dtype,
                                    **({"device": self.like.device} if tensors.is_torch(self.like) else {}))

    def _range(self, count, axis):
        shape = [1, 1, 1, 1]
        shape[axis] = count
        place = {"device": self.like.device} if tensors.is_torch(self.like) else {}
        return self.library.arange(count, dtype=self.library.int32, **place).reshape(shape)

    def _name(self, name, diagonals):
        p = self.problem
        if diagonals and name in (Q_IDX, KV_IDX):
            return self._range(p.seqlen_q + p.seqlen_kv - 1, 3) if name == KV_IDX else self._array(p.seqlen_q - 1, INT)
        if name in AXES:
            return self._range({BATCH: p.batch, HEAD: p.num_heads_q, Q_IDX: p.seqlen_q, KV_IDX: p.seqlen_kv}[name],
                               AXES.index(name))
        if name == KV_HEAD:
            ratio = p.num_heads_q // p.num_heads_kv
            return self._range(p.num_heads_q, 1) // ratio
        if name == SCORE:
            raise ValueError(
                "score_mod loads by an index that depends on the score, and attune gives no gradient for such loads; "
                "indices must depend only on batch, heads and positions")
        return self._array({SEQLEN_Q: p.seqlen_q, SEQLEN_KV: p.seqlen_kv, HEAD_DIM: p.head_dim}[name], INT)

    def _value(self, node, operands, types, diagonals):
        if node.operation == CONSTANT:
            return self._array(_constant(node), node.type)
        if node.operation == NAME:
            return self._name(node.index, diagonals)
        if node.operation == SCALAR:
            return self._array(self.scalars[node.index], node.type)
        if node.operation == LOAD:
            tensor = self.captures[node.index]
            return self._cast(tensor[tuple(self.clamped(one, extent) for one, extent in zip(operands, tensor.shape))],
                              node.type)
        if node.operation in (TO_FLOAT, TO_INT):
            return self._cast(operands[0], FLOAT if node.operation == TO_FLOAT else INT)
        return _FUNCTIONS[node.operation](self.library, types[0] if types else node.type, *operands)

    def _cast(self, x, kind):
        if kind == INT and tensors.dtype_text(x.dtype) in ("fp32", "fp64"):
            wide = self.library.nan_to_num(x, nan=0.0)  # truncates and saturates; NaN becomes 0
            x = self.library.trunc(wide).clip(-2.0 ** 31, 2.0 ** 31 - 128)
        return x.astype(self.library.int32 if kind == INT else self.library.float32 if kind ==
                        FLOAT else bool) if not tensors.is_torch(x) else x.to({
                            BOOL: self.library.bool, INT: self.library.int32, FLOAT: self.library.float32}[kind])

    def clamped(self, index, extent):
        clamped = index.clip(0, extent - 1)
        return clamped.long() if tensors.is_torch(clamped) else clamped.astype(self.library.int64)

    def of(self, number, diagonals=False):
        """Returns an array of clamped indices per axis of the tensor. diagonals: the last axis counts distances, key -
        row + seqlen_q - 1."""
        nodes, values = nodes_of(self.handle), {}
        for i in needed_by(self.handle, number):
            node = nodes[i]
            values[i] = self._value(node, [values[one] for one in node.operands],
                                    [nodes[one].type for one in node.operands], diagonals)
        load = nodes[number]
        return [
            self.clamped(values[one], extent) for one, extent in zip(load.operands, self.captures[load.index].shape)]


def _constant(node):
    if node.type == FLOAT:
        return struct.unpack("<f", struct.pack("<I", node.bits))[0]
    return bool(node.bits) if node.type == BOOL else struct.unpack("<i", struct.pack("<I", node.bits))[0]


def _quotient(library, kind, a, b, floors=False):
    if kind == FLOAT:
        return a / b
    safe = library.where(b == 0, library.ones_like(b), b)
    down = a // safe
    if not floors:
        down = down + ((a - down * safe != 0) & ((a < 0) != (safe < 0)))
    return library.where(b == 0, library.zeros_like(down), down)


def _rest(library, a, b, floors):
    return library.where(b == 0, library.zeros_like(a + b), a - _quotient(library, INT, a, b, floors) * b)


def _both(function):
    return lambda library, kind, *x: function(*x)


def _named(name):
    return lambda library, kind, *x: getattr(library, name)(*x)


_FUNCTIONS = {
    NEGATE: _both(operator.neg), ADD: _both(operator.add), SUBTRACT: _both(operator.sub), MULTIPLY: _both(
        operator.mul), 10: _quotient, 11: lambda library, kind, a, b: _rest(library, a, b, False),
    12: lambda library, kind, a, b: _quotient(library, INT, a, b, True),
    13: lambda library, kind, a, b: _rest(library, a, b, True), 14: _both(operator.and_), 15: _both(
        operator.or_), 16: _both(operator.xor), 17: _both(operator.invert), 18: _both(lambda a, b: a << (b & 31)),
    19: _both(lambda a, b: a >> (b & 31)), 20: _both(operator.lt), 21: _both(operator.le), 22: _both(
        operator.eq), 23: _both(operator.ne), 24: _both(operator.invert), 25: _both(operator.and_), 26: _both(
            operator.or_), 27: _named("where"), 28: _named("abs"), 29: _named("minimum"), 30: _named("maximum"),
    31: lambda library, kind, x, low, high: library.minimum(library.maximum(x, low), high), 32: _named("floor"),
    33: _named("sqrt"), 34: lambda library, kind, x: 1 / library.sqrt(x), 35: _named("exp"), 36: _named("exp2"),
    37: _named("log"), 38: _named("log2"), 39: _named("tanh"), 40: lambda library, kind, x: 1 / (1 + library.exp(-x))}
