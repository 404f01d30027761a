# SPDX-License-Identifier: Apache-2.0
"""Dropout of softmax weights: the seeds of calls, the rate in the kernels' form, and the mask of a seed. Used by
attention() and its adapters."""
import sys

from ..core import tensors
from ..core.library import module
from ..core.preparing import preparing
from ..core.problem import real, whole

_MOST = 2 ** 63 - 1  # the largest int64; drawn seeds are below it
_WORD = 2 ** 64
_LAST_RATE = 1 - 2.0 ** -24  # the largest float32 below 1


def rate_of(dropout_p):
    """Returns dropout_p as a float of at least 0 that stays below 1 in the library's float32."""
    number = real("dropout_p", dropout_p)
    if not 0 <= number < 1:
        raise ValueError(f"dropout_p is {number}; must be in [0, 1)")
    return min(number, _LAST_RATE)


def drawn_seed(q):
    """Returns a seed drawn by PyTorch's generator of q's device: an int64 tensor of no dimensions there. torch.compile
    traces this."""
    torch = sys.modules["torch"]
    return torch.randint(0, _MOST, (), dtype=torch.int64, device=q.device)


def seed_for(q, dropout_p, seed):
    """Returns the seed of a call with dropout: the given one, or a drawn one for PyTorch tensors."""
    if rate_of(dropout_p) == 0 or seed is not None:
        return seed
    if preparing():
        return 0
    if tensors.is_numpy(q):
        raise ValueError(
            "seed is missing; with dropout_p it must be a whole number or an int64 array of one element (PyTorch "
            "tensors get one from PyTorch's generator)")
    return drawn_seed(q)


def _is_tensor(value):
    return tensors.is_torch(value) or tensors.is_numpy(value)


def _number(name, value):
    """Returns a whole number of 64 bits, signed or unsigned, as an unsigned one."""
    number = whole(name, value)
    if not -2 ** 63 <= number < _WORD:
        raise ValueError(f"{name} is {number}; must be a whole number of 64 bits")
    return number % _WORD


def signed(name, value):
    """Returns a whole number of 64 bits in the ops' form: from -2^63 on, below 2^63."""
    number = _number(name, value)
    return number - _WORD if number > _MOST else number


def _address(name, tensor, plan):
    tensors.check_plain(name, tensor)
    found = tensors.dtype_text(tensor.dtype)
    if found not in ("int64", "uint64") or tensors.size_of(tensor.shape) != 1:
        raise ValueError(
            f"{name} is {found} of shape {tuple(tensor.shape)}; must be a whole number or an int64 tensor of one "
            f"element")
    if tensors.target_of(tensor) != plan.target:
        raise ValueError(
            f"{name} is on {tensors.target_of(tensor)}; must be a tensor on {plan.target}, q's device, or a whole "
            f"number")
    return tensors.address(name, tensor)


def _item(name, value):
    """Returns the element of a tensor; other values unchanged."""
    if not _is_tensor(value):
        return value
    if tensors.size_of(value.shape) != 1 or tensors.target_of(value) == "meta":
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; must be a whole number, or a tensor of one element with memory")
    return value.item()


class PlacedSeed:
    """The seed of a call that computes a part of a larger problem and drops what that would drop. head0: its first
    head, counted over all batch entries. row0: its first row, a multiple of 16."""

    __slots__ = ("seed", "head0", "row0")

    def __init__(self, seed, head0, row0):
        self.seed, self.head0, self.row0 = seed, head0, row0


class Seeds:
    """Seed and offset of one call: numbers, or tensors on the device that kernels read when they run."""

    __slots__ = ("seed", "offset", "head0", "row0")

    def __init__(self, seed, offset):
        if seed is None:
            raise ValueError(
                "seed is missing; with dropout_p it must be the forward call's: a whole number or an int64 tensor of "
                "one element")
        placed = seed if isinstance(seed, PlacedSeed) else PlacedSeed(seed, 0, 0)
        self.seed, self.offset, self.head0, self.row0 = placed.seed, offset, placed.head0, placed.row0

    def give(self, operands, plan):
        """Puts seed and offset into the struct of a call of the plan. Returns the objects that must live until the call
        is enqueued."""
        struct = module.DropoutOperands()
        struct.head0, struct.row0 = self.head0, self.row0
        for name in ("seed", "offset"):
            value = getattr(self, name)
            if _is_tensor(value):
                setattr(struct, f"{name}_address", _address(name, value, plan))
            else:
                setattr(struct, name, 0 if value is None else _number(name, value))
        operands.dropout = struct
        return struct, self.seed, self.offset


def dropout_rate(dropout_p):
    """Returns the share of weights that attention(dropout_p=) drops: dropout_p to the nearest of 0/256 to 255/256. Kept
    weights are multiplied by 1 / (1 - rate)."""
    return module.dropout_rate(rate_of(dropout_p))


def dropout_mask(shape, dropout_p, seed, offset=0, like=None):
    """Returns the weights that attention() keeps with this seed and offset, as bools [batch, num_heads_q, seqlen_q,
    seqlen_kv]. Computed on the host, for tests and other frameworks.

    shape: the four extents. seed, offset: whole numbers, or tensors of one element, which are read here. like: a
    PyTorch tensor; the result is then a PyTorch tensor on its device, otherwise a NumPy array.
    The result depends only on seed, offset, the head's number over all batch entries, row and key. Raises ValueError if
    an argument is out of range."""
    if not isinstance(shape, (tuple, list)) or len(shape) != 4:
        raise ValueError(f"shape is {shape!r}; must have four extents: [batch, num_heads_q, seqlen_q, seqlen_kv]")
    extents = [whole("shape", extent) for extent in shape]
    numbers = [_number(name, _item(name, value)) for name, value in (("seed", seed), ("offset", offset))]
    tensors.check_like(like)
    if any(extent < 0 or extent >= 2 ** 31 for extent in extents):
        raise ValueError(f"shape is {tuple(extents)}; extents must be at least 0 and below 2^31")
    if like is not None and tensors.is_torch(like):
        torch = sys.modules["torch"]
        made = torch.empty(extents, dtype=torch.bool, device="cpu")
        address = made.data_ptr()
    else:
        import numpy
        made = numpy.empty(extents, dtype=bool)
        address = made.__array_interface__["data"][0]
    module.dropout_mask(rate_of(dropout_p), *numbers, tuple(extents), address if tensors.size_of(extents) else None)
    return made.to(like.device) if like is not None and tensors.is_torch(like) else made
