# SPDX-License-Identifier: Apache-2.0
"""Gradients of tensors that a score_mod reads. Used by ops/score_gradient.py.

For each load of the program, the library gives the gradient of the loaded value at each place. It is summed over the
axes that the load's indices do not depend on. Here each element of the tensor gets the sum over the places that load
it."""
import sys
from collections import namedtuple

from ..core import tensors
from .loads import AXES, Indices, KV_IDX, NAME, float_loads, is_along_diagonals, nodes_of
from .programs import bind, refuse_stop

_LETTERS = "bhq"  # letters of `repeats`; sums over keys are computed here
_Extents = namedtuple("_Extents", "batch num_heads_q num_heads_kv seqlen_q seqlen_kv head_dim")


def find_capture(of, score_mod):
    """Returns (bound program, name in that program) of a capture, or None if there is no such capture. of: the label,
    captures[number], or the name in the program. If a label and another capture's name are equal, the label wins."""
    if score_mod is None:
        return None
    bound = bind("score_mod", score_mod)
    by_label = {label: name for name, (label, _) in reversed(bound.captures.items())}
    by_number = {f"captures[{number}]": name for number, name in enumerate(bound.captures)}
    name = by_label.get(of) or by_number.get(of) or (of if of in bound.captures else None)
    if name in bound.stopped:
        refuse_stop(of, of)
    return None if name is None else (bound, name)


def names_of(score_mod):
    return [] if score_mod is None else [label for label, _ in bind("score_mod", score_mod).captures.values()]


class CaptureGradient:
    """The gradient of one capture of a call. loads: numbers of the program's loads from this capture, as in
    attune_problem.load."""

    def __init__(self, bound, name, q, k):
        self.tensor, handle = bound.captures[name][1], bound.program.handle
        place = list(bound.program.captures).index(name)
        captures, scalars = ([value for _, value in part.values()] for part in (bound.captures, bound.scalars))
        self.extents = _Extents(q.shape[0], q.shape[2], k.shape[2], q.shape[1], k.shape[1], q.shape[3])
        self._handle, self._indices = handle, Indices(handle, q, self.extents, captures, scalars)
        self.loads = [
            number for number, node in enumerate(float_loads(handle)) if nodes_of(handle)[node].index == place]
        library = sys.modules["torch" if tensors.is_torch(q) else "numpy"]
        place = {"device": q.device} if tensors.is_torch(q) else {}
        self._library, self.sum = library, library.zeros(tuple(self.tensor.shape), dtype=library.float32, **place)

    def _node(self, load):
        return float_loads(self._handle)[load]

    def has_diagonals(self, load):
        return is_along_diagonals(self._handle, self._node(load))

    def places(self, load):
        """Returns the indices of a load, and the letters of `repeats`: the axes over which the library sums."""
        diagonals = self.has_diagonals(load)
        indices = self._indices.of(self._node(load), diagonals)
        p = self.extents
        repeated = [letter for letter, axis, extent in zip(_LETTERS, range(3), (p.batch, p.num_heads_q, p.seqlen_q))
                    if extent != 1 and all(one.ndim < 4 or one.shape[axis] == 1 for one in indices)]
        return indices, "h" * ("h" in repeated) if diagonals else "".join(repeated)

    def add(self, load, indices, gradients):
        """Adds gradients [batch, heads, rows, keys]. An axis that the library summed has extent 1."""
        if not indices:
            self.sum += gradients.sum()
            return
        if all(one.ndim < 4 or one.shape[3] == 1 for one in indices) and gradients.shape[3] != 1:
            gradients = gradients.sum(3, keepdim=True) if tensors.is_torch(gradients) else gradients.sum(
                3, keepdims=True)
        if self._add_whole(load, gradients):
            return
        flat = 0
        for one, extent in zip(indices, self.sum.shape):
            flat = flat * extent + one
        flat = self._library.broadcast_to(flat.reshape((1, ) * (4 - flat.ndim) + tuple(flat.shape)),
                                          gradients.shape).reshape(-1)
        if not tensors.is_torch(gradients):
            self._library.add.at(self.sum.reshape(-1), flat, gradients.reshape(-1))
        elif gradients.is_cuda:  # sorts, so it adds in a fixed order
            self.sum.view(-1).index_put_((flat,), gradients.reshape(-1), accumulate=True)
        else:
            self.sum.view(-1).index_add_(0, flat, gradients.reshape(-1))

    def _add_whole(self, load, gradients):
        """Adds the gradients to a slice, without indexing, if each index of the load is a different axis. Returns False
        if it is not."""
        nodes = nodes_of(self._handle)
        names = [nodes[one].index if nodes[one].operation == NAME else None for one in nodes[self._node(load)].operands]
        if self.has_diagonals(load) or any(name not in AXES for name in names) or len(set(names)) != len(names):
            return False
        order = [AXES.index(name) for name in names]
        counts = [gradients.shape[axis] for axis in order]
        if any(count > extent for count, extent in zip(counts, self.sum.shape)):
            return False
        rest = [axis for axis in range(4) if axis not in order]
        if any(gradients.shape[axis] != 1 for axis in rest):
            return False
        turned = gradients.permute(*rest, *order) if tensors.is_torch(gradients) else gradients.transpose(*rest, *order)
        self.sum[tuple(slice(0, count) for count in counts)] += turned.reshape(counts)
        return True
