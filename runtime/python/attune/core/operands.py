# SPDX-License-Identifier: Apache-2.0
"""Operands of one run: checks tensors against the plan's problem, and makes the struct of attune_types.h. The library
itself refuses rows that overlap. Used by ops/context.py, ops/attention.py and ops/quantise.py."""
import math
import numbers
from collections import namedtuple

from . import tensors
from .library import module
from .problem import real

ALIGNMENT = 16  # bytes, of addresses and strides of q, k, v and o

# A tensor's place in memory: strides and shape over [batch, rows, num_heads, head_dim], the bytes of an element, and
# the bytes from the first to the end of the last.
Extent = namedtuple("Extent", "strides shape item_bytes span")


def span_of(name, tensor, shape, strides):
    item = tensors.item_bytes(tensor)
    if tensors.size_of(shape) == 0:
        return Extent(strides, shape, item, 0)
    for extent, stride in zip(shape, strides):
        if extent > 1 and stride < 0:
            raise ValueError(f"{name} has strides {strides}; strides must be at least 0 (copy the tensor)")
    return Extent(strides, shape, item, (sum(
        (extent - 1) * stride for extent, stride in zip(shape, strides)) + 1) * item)


def steps_of(extent):
    """Returns strides over (batch, rows, heads) for the library. A single row's stride may be any, while the library's
    problem may have more rows; it then becomes a stride past all elements."""
    batch, row, head = extent.strides[:3]
    past = -(-extent.span // ALIGNMENT) * ALIGNMENT // extent.item_bytes
    if extent.shape[:2] == (1, 1) and (row < past or row * extent.item_bytes % ALIGNMENT):
        row = past
    return batch, row, head


def _check_basics(name, tensor, target, like=None):
    tensors.check_plain(name, tensor)
    if like is not None and tensors.is_torch(tensor) != tensors.is_torch(like):
        raise ValueError(
            f"{name} is {tensors.kind_text(tensor)} and q is {tensors.kind_text(like)}; both must be of one library")
    found = tensors.check_device(name, tensor)
    if found != target:
        raise ValueError(f"{name} is on {found}; must be on {target}, the plan's device")


def _check_dtype(name, tensor, wanted):
    found = tensors.dtype_text(tensor.dtype)
    if found != wanted and not (found == "uint8" and wanted in tensors.NARROW_NAMES):
        raise ValueError(f"{name} is {found}; must be {wanted}, as in the plan's problem")


def extent_of(name, tensor, shape, dtype, target, like, layout=tensors.ROWS):
    """Returns the Extent of one operand. Raises if it does not fit.

    shape: [batch, rows, num_heads, head_dim]; transposed tensors are [batch, num_heads, head_dim, rows]. like: q, whose
    library it must be of."""
    _check_basics(name, tensor, target, like)
    _check_dtype(name, tensor, dtype)
    batch, rows, heads, head_dim = shape
    wanted = shape if layout == tensors.ROWS else (batch, heads, head_dim, rows)
    if tuple(tensor.shape) != wanted:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; must be {wanted}, {tensors.DIMENSIONS[layout]}")
    strides = tuple(tensors.element_strides(name, tensor))
    if strides[3] != 1 and wanted[3] > 1 and tensors.size_of(wanted):
        inner = "head_dim" if layout == tensors.ROWS else "seqlen"
        raise ValueError(
            f"{name} has stride {strides[3]} in {inner}; must be 1 (call .contiguous() on it, or NumPy's .copy())")
    found = span_of(name, tensor, wanted, strides)
    if found.span and any(extent > 1 and stride * found.item_bytes % ALIGNMENT
                          for extent, stride in zip(wanted[:3], strides)):
        raise ValueError(
            f"{name} has strides {strides} of {found.item_bytes}-byte elements; must be a multiple of {ALIGNMENT} "
            "bytes (copy the tensor, if its head_dim is such a multiple)")
    return found


def operand_address(name, tensor, written=False):
    found = tensors.address(name, tensor, written)
    if found is not None and found % ALIGNMENT:
        raise ValueError(
            f"{name} is at address {found:#x}; must be aligned to {ALIGNMENT} bytes (copy the tensor)")
    return found


def lse_extent(name, lse, shape, target, like):
    """Returns the Extent of a tensor with a number per row and head. Raises if it does not fit. like: as in
    extent_of()."""
    _check_basics(name, lse, target, like)
    _check_dtype(name, lse, "fp32")
    tensors.check_rank(name, lse, "[batch, num_heads_q, seqlen_q]")
    if tuple(lse.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(lse.shape)}; must be {shape}, [batch, num_heads_q, seqlen_q]")
    batch, heads, rows = shape
    strides = tensors.element_strides(name, lse)
    # Strides of axes of size 1 do not matter; the library reads two zeros as contiguous.
    head = strides[1] if heads > 1 else rows
    per_batch = strides[0] if batch > 1 else heads * head
    if tensors.size_of(shape) and (head < 1 or per_batch < 1 or (rows > 1 and strides[2] != 1)):
        raise ValueError(
            f"{name} has strides {tuple(strides)}; must be 1 in seqlen_q, without overlap (call .contiguous() on it, "
            "or NumPy's .copy())")
    return span_of(name, lse, shape, (per_batch, head, 1))


class Layout:
    """A run's operands without addresses and factors, checked against a problem. It serves all tensors with the same
    signatures."""

    def __init__(self, problem, target, q, k, v, o, lse, out_name="o"):
        p, self.out_name = problem, out_name
        dtype_q, dtype_kv, dtype_o = (tensors.DTYPES[code] for code in (p.dtype, p.dtype_kv, p.dtype_o))
        self.q = extent_of("q", q, (p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_qk), dtype_q, target, q)
        self.k = extent_of("k", k, (p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_qk), dtype_kv, target, q)
        self.v = extent_of("v", v, (p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim_v), dtype_kv, target, q,
                           p.v_layout)
        self.o = extent_of(out_name, o, (p.batch, p.seqlen_q, p.num_heads_q, p.head_dim_v), dtype_o, target, q)
        self.lse = None if lse is None else lse_extent("lse", lse, (p.batch, p.num_heads_q, p.seqlen_q), target, q)
        self.template = module.Operands(_tensor(self.q), _tensor(self.k), _tensor(self.v, p.v_layout), _tensor(self.o))
        if lse is not None:
            self.template.lse_batch_stride, self.template.lse_head_stride = self.lse.strides[:2]

    def bind(self, q, k, v, o, lse, fresh=False):
        """Returns the struct with these tensors' addresses. fresh: o and lse are new, so nothing shares their memory.
        """
        operands = self.template.copy()
        at_q, at_k, at_v = operand_address("q", q), operand_address("k", k), operand_address("v", v)
        at_o = operand_address(self.out_name, o, written=True)
        operands.q.data, operands.k.data, operands.v.data, operands.o.data = at_q, at_k, at_v, at_o
        if lse is not None:
            operands.lse = tensors.address("lse", lse, written=True)
        if not fresh:
            end, places = (at_o or 0) + self.o.span, ((at_q, self.q), (at_k, self.k), (at_v, self.v))
            if lse is not None or any(at is not None and at < end and at_o < at + extent.span for at, extent in places):
                self.refuse_overlap(operands, [(name, *place) for name, place in zip("qkv", places)])
        return operands

    def refuse_overlap(self, operands, others):
        """Raises if o or lse overlaps a tensor that a run reads. others: (name, address, Extent) of these."""
        written = [(self.out_name, operands.o.data, self.o)]
        if operands.lse:
            written.append(("lse", operands.lse, self.lse))
        for i, (name, address, extent) in enumerate(written):
            for other, at, place in others + written[:i]:
                in_place = other == "q" and i == 0 and (address, extent) == (
                    at, place)  # a row of q is read before its o is written
                if not in_place and share_memory(address, extent, at, place):
                    raise ValueError(f"{name} and {other} overlap in memory; {name} must have memory of its own" +
                                     (", or be exactly q's" if i == 0 else ""))


def _tensor(extent, layout=tensors.ROWS):
    batch, a, b, _ = extent.strides
    return module.Tensor(None, batch, *((a, b) if layout == tensors.ROWS else (b, a)))


def share_memory(a_address, a, b_address, b):
    """True if two tensors have a byte in common. Exact if their strides are equal, as for parts of one packed tensor;
    otherwise true for all whose ranges overlap."""
    if not a.span or not b.span or a_address + a.span <= b_address or b_address + b.span <= a_address:
        return False
    distance, rest = divmod(b_address - a_address, a.item_bytes)
    if rest or a.item_bytes != b.item_bytes or len(a.shape) != len(b.shape):
        return True
    steps = []
    for stride_a, stride_b, extent_a, extent_b in zip(a.strides, b.strides, a.shape, b.shape):
        if extent_a > 1 and extent_b > 1 and stride_a != stride_b:
            return True
        if extent_a > 1 or extent_b > 1:
            steps.append((stride_a if extent_a > 1 else stride_b, extent_a, extent_b))
    return _meet(distance, sorted(steps, reverse=True))


def _meet(distance, steps):
    """True if indices i of a and j of b exist with distance = sum of stride * (i - j). Strides descend."""
    if not steps:
        return distance == 0
    (stride, extent_a, extent_b), inner = steps[0], steps[1:]
    if sum((max(x, y) - 1) * s for s, x, y in inner) >= stride:
        return True  # not nested: assume an overlap
    first = distance // stride
    return any(-extent_b < step < extent_a and _meet(distance - step * stride, inner) for step in (first, first + 1))


def factors(name, scale, like, batch, heads, blocks, target):
    """Returns (tensor of factors of one 8-bit operand, Scale by which kernels find them, the tensor's Extent). For the
    number 1 returns (None, Scale(), None).

    scale: a number, or float32 of shape [], [batch, n] or [batch, n, blocks], where n divides the heads. Axes of 1
    broadcast."""
    if scale is None:
        raise ValueError(
            f"{name} is missing; 8-bit tensors need the factors that quantise() gave with them, or {name}=1.0 for "
            "unscaled values")
    if not (tensors.is_torch(scale) or tensors.is_numpy(scale)):
        if not isinstance(scale, numbers.Real):
            raise TypeError(f"{name} is {tensors.kind_text(scale)}; must be a number or a float32 tensor")
        number = real(name, scale)
        if not 0 <= number < math.inf:
            raise ValueError(f"{name} is {number}; must be finite and at least 0")
        if number == 1:
            return None, module.Scale(), None  # the library's own default
        tensor = tensors.empty(like, (), tensors.native_dtype(like, "fp32"))
        tensors.fill(tensor, number)
    else:
        tensor = scale
    check_factor_tensor(name, tensor, like, target)
    return (tensor, *_scale_view(name, tensor, batch, heads, blocks))


def check_factor_tensor(name, tensor, like, target):
    _check_basics(name, tensor, target, like)
    if tensors.dtype_text(tensor.dtype) != "fp32":
        raise ValueError(f"{name} is {tensors.dtype_text(tensor.dtype)}; must be a number or a float32 tensor")


def _scale_view(name, tensor, batch, heads, blocks):
    shape, strides = tuple(tensor.shape), tuple(tensors.element_strides(name, tensor))
    if len(shape) not in (0, 2, 3):
        raise ValueError(f"{name} has shape {shape}; must be [], [batch, heads] or [batch, heads, blocks]")
    shape, strides = shape + (1,) * (3 - len(shape)), strides + (0,) * (3 - len(strides))
    if shape[0] not in (1, batch) or shape[1] == 0 or heads % shape[1] != 0 or shape[2] not in (1, blocks):
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; must be {batch} batches, a divisor of {heads} heads, {blocks} "
            "blocks of rows (scale_block rows share a factor), or 1 of each")
    extent = span_of(name, tensor, shape, strides)
    batch_stride, head_stride, block_stride = (stride if steps > 1 else 0 for stride, steps in zip(strides, shape))
    return module.Scale(
        tensors.address(name, tensor), batch_stride, head_stride, block_stride, heads // shape[1]), extent
