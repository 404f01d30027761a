# SPDX-License-Identifier: Apache-2.0
"""Dropout of attention's weights: seeds of calls, the rate as kernels have it, and the mask that a seed makes. Used by attention() and its adapters."""
import ctypes
import sys

from . import _tensors as tensors
from ._library import DropoutOperands, check, library
from ._problem import real, whole

_MOST = 2 ** 63 - 1  # of seeds that PyTorch's generators draw
_WORD = 2 ** 64
_LAST_RATE = 1 - 2.0 ** -24  # of float32


def rate_of(dropout_p):
    """A float from 0 on, below 1, also as the library's float32 has it."""
    number = real("dropout_p", dropout_p)
    if not 0 <= number < 1:
        raise ValueError(f"dropout_p is {number}; must be numbers from 0 on, below 1")
    return min(number, _LAST_RATE)


def drawn_seed(q):
    """What PyTorch's generator of q's device draws for one call: an int64 tensor of no dimensions there. torch.compile traces it."""
    torch = sys.modules["torch"]
    return torch.randint(0, _MOST, (), dtype=torch.int64, device=q.device)


def seed_for(q, dropout_p, seed):
    """The seed of a call with dropout: the given one or, of PyTorch, a drawn one."""
    if rate_of(dropout_p) == 0 or seed is not None:
        return seed
    if tensors.is_numpy(q):
        raise ValueError(
            "seed is missing; accepted beside dropout_p are whole numbers and int64 arrays of one (PyTorch's tensors "
            "get one from its generator)"
        )
    return drawn_seed(q)


def _is_tensor(value):
    return tensors.is_torch(value) or tensors.is_numpy(value)


def _number(name, value):
    """Of 64 bits, also given as a signed one."""
    number = whole(name, value)
    if not -2 ** 63 <= number < _WORD:
        raise ValueError(f"{name} is {number}; must be whole numbers of 64 bits")
    return number % _WORD


def signed(name, value):
    """A whole number of 64 bits as the ops' schemas have it, from -2^63 on, below 2^63."""
    number = _number(name, value)
    return number - _WORD if number > _MOST else number


def _address(name, tensor, plan):
    tensors.check_plain(name, tensor)
    found = tensors.dtype_text(tensor.dtype)
    if found not in ("int64", "uint64") or tensors.size_of(tensor.shape) != 1:
        raise ValueError(
            f"{name} is {found} of shape {tuple(tensor.shape)}; must be whole numbers, and int64 tensors of one element"
        )
    if tensors.target_of(tensor) != plan.target:
        raise ValueError(
            f"{name} is on {tensors.target_of(tensor)}; must be tensors on {plan.target}, as q, and whole numbers")
    return tensors.address(name, tensor)


class Seeds:
    """Seed and offset of one call: numbers, or tensors on the device that the kernels read when they run."""

    __slots__ = ("seed", "offset")

    def __init__(self, seed, offset):
        if seed is None:
            raise ValueError(
                "seed is missing; accepted beside dropout_p are whole numbers and int64 tensors of one, as the forward "
                "call had it"
            )
        self.seed, self.offset = seed, offset

    def give(self, operands, plan):
        """Into the struct of a call of the plan. Returns what must live until the call is enqueued."""
        struct = DropoutOperands(size=ctypes.sizeof(DropoutOperands))
        for name in ("seed", "offset"):
            value = getattr(self, name)
            if _is_tensor(value):
                setattr(struct, f"{name}_address", _address(name, value, plan))
            else:
                setattr(struct, name, 0 if value is None else _number(name, value))
        operands.dropout = ctypes.pointer(struct)
        return struct, self.seed, self.offset


def dropout_rate(dropout_p):
    """The part of the weights that attention(dropout_p=) drops: the nearest of 0/256 to 255/256. What is kept is multiplied by 1 / (1 - rate)."""
    return library.attune_dropout_rate(rate_of(dropout_p))


def dropout_mask(shape, dropout_p, seed, offset=0, like=None):
    """What attention() keeps with this seed and offset: bools [batch, num_heads_q, seqlen_q, seqlen_kv], which is `shape`. Computed on the host, for tests
    and other frameworks.

    seed, offset: whole numbers, or tensors of one, which are read here. like: a tensor of PyTorch, on whose device the result is one; by
    default it is NumPy's. What is kept depends on seed, offset, head of all batch entries, row and key alone."""
    if not isinstance(shape, (tuple, list)) or len(shape) != 4:
        raise ValueError(f"shape is {shape!r}; must be four extents: [batch, num_heads_q, seqlen_q, seqlen_kv]")
    extents = [whole("shape", extent) for extent in shape]
    numbers = [
        _number(name,
                value.item() if _is_tensor(value) else value) for name, value in (("seed", seed), ("offset", offset))]
    if any(extent < 0 or extent >= 2 ** 31 for extent in extents):
        raise ValueError(f"shape is {tuple(extents)}; must be extents of 0 and more, below 2^31")
    if like is not None and tensors.is_torch(like):
        torch = sys.modules["torch"]
        made = torch.empty(extents, dtype=torch.bool, device="cpu")
        address = made.data_ptr()
    else:
        import numpy
        made = numpy.empty(extents, dtype=bool)
        address = made.__array_interface__["data"][0]
    check(
        library.attune_dropout_mask(rate_of(dropout_p), *numbers, *extents,
                                    address if tensors.size_of(extents) else None))
    return made.to(like.device) if like is not None and tensors.is_torch(like) else made
