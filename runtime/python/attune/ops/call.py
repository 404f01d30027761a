# SPDX-License-Identifier: Apache-2.0
"""Call: all that calls with equal shapes, strides and choices share. The other modules of ops/ give it the list of
their operands. attention() has core/operands.py's Layout instead, which Plan.run() shares."""
from collections import namedtuple

from ..core import tensors
from ..core.library import module
from ..core.operands import operand_address, share_memory
from ..core.preparing import note
from ..core.problem import check_beside
from ..core.torch_state import ordinal_of, stream_address
from .context import refuse_capture

# name: the argument's. field: its place in attune_operands, or in the struct `part` of it. written: by the call. over:
# the operand whose memory it may have, if both have the same strides: kernels read a row before they write it.
Operand = namedtuple("Operand", "name field part written over", defaults=(None, False, None))
_PARTS = {"gradients": module.GradientOperands, "append": module.AppendOperands}


class Call:
    """plan; extents: of the operands, by name, None for those that no written one may overlap; part: the struct of
    operands beside q, k, v and o, or None; more: attributes that one op needs."""

    def __init__(self, plan, operands, extents, steps=(), **more):
        """operands: the op's list; those without an extent are left out. steps: strides by name, for those that differ
        from their extent's."""
        self.plan, self.extents, self.part, steps = plan, extents, None, dict(steps)
        vars(self).update(more)
        listed = [operand for operand in operands if operand.name in extents]
        self._template, self._places = module.Operands(), []
        for name, field, part, written, _ in listed:
            if part is not None and self.part is None:
                self._of_part, self.part = part, _PARTS[part]()
            struct = self._template if part is None else self.part
            kind, strides = type(getattr(struct, field)), steps.get(name) or getattr(extents[name], "strides", None)
            if kind in (module.Tensor, module.Scale):
                steps_of_kind = strides[:3] if kind is module.Tensor else (*strides[:2], *(strides[2:3] or (1,)), 1)
                setattr(struct, field, kind(None, *steps_of_kind))
            elif strides is not None:
                setattr(struct, f"{field}_batch_stride", strides[0])
                setattr(struct, f"{field}_head_stride", strides[1])
            address = operand_address if kind is module.Tensor else tensors.address
            self._places.append((name, field, part, kind in (module.Tensor, module.Scale), address, written))
        self._apart = list(_pairs_apart([operand for operand in listed if extents[operand.name] is not None], extents))
        plan.prepare()  # later captures need no extra call

    def bind(self, given, fresh=False):
        """Returns the struct with the addresses of the given tensors, and these by name. fresh: nothing that the call
        writes shares memory with another operand."""
        operands, part, at = self._template.copy(), None, {}
        if self.part is not None:
            part = self.part.copy()
            setattr(operands, self._of_part, part)
        for name, field, of_part, is_struct, address, written in self._places:
            at[name] = found = address(name, given[name], written)
            struct = operands if of_part is None else part
            if is_struct:
                getattr(struct, field).data = found
            else:
                setattr(struct, field, found)
        for name, one, other, another, over in () if fresh else self._apart:
            begin, other_begin = at[name] or 0, at[other] or 0
            if begin < other_begin + another.span and other_begin < begin + one.span and not (
                    other == over and (begin, one) == (other_begin, another)) and share_memory(
                        begin, one, other_begin, another):
                raise ValueError(f"{name} and {other} overlap in memory; {name} must have memory of its own" +
                                 ("" if over is None else f", or be exactly {over}'s"))
        return operands, at

    def run(self, operands):
        """Enqueues the call on the current stream, whose handle it returns."""
        stream = stream_address(None, self.plan.ordinal)
        self.plan.enqueue(operands, stream)
        return stream


def _pairs_apart(listed, extents):
    """Yields (name, extent, name, extent, over) for each pair that may not share memory, a written operand first."""
    read, written = [one.name for one in listed if not one.written], [one for one in listed if one.written]
    for number, (name, *_, over) in enumerate(written):
        for other in (*read, *(before.name for before in written[:number])):
            yield name, extents[name], other, extents[other], over


def key_of(given):
    """Returns the part of a call's key for tensors by name, of which some may be None."""
    return tuple(None if tensor is None else tensors.signature(name, tensor) for name, tensor in given.items())


def kept_call(context, key, make):
    """Returns the context's kept call of this key, or keeps the call that make() returns. prepare() stops here."""
    recent = context.recent  # reload() replaces it
    call = recent.find(key)
    if call is None:
        call = make()
        recent.keep(key, call)
    note(call.plan)
    return call


def check_new(function, given, first="q"):
    """Checks the tensors of a call that is not kept, by name: all must be of the library and device of `first`."""
    for name, tensor in given.items():
        if tensor is not None:
            check_beside(name, tensor, given[first], first)
            tensors.check_plain(name, tensor)
    refuse_capture(ordinal_of(tensors.target_of(given[first])), function)
