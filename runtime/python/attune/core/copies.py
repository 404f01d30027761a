# SPDX-License-Identifier: Apache-2.0
"""Copies of tensors that kernels cannot read, and the memory order of results. torch.compile traces these functions.

Used by attune.sdpa, attune.flex and the adapters of transformers and diffusers (ops/attention.py), by gradients
(ops/backward.py) and by the ops (torch/__init__.py)."""
import functools

from . import tensors

_ALIGNMENT = 16  # bytes, for the first element and each stride
_PADDED_STEP = 8  # columns; other head dims are copied into wider tensors, see ops/padding.py


def overlaps(shape, strides):
    """True if rows, heads or batch entries share memory, by the rule of runtime/operands/operand_check.cpp: each stride
    must be at least the span of all axes with smaller strides. A stride of 0 broadcasts, and does not count as an
    overlap."""
    steps = [(stride, extent) for stride, extent in zip(strides[:-1], shape[:-1]) if extent > 1 and stride != 0]
    for at, (stride, _) in enumerate(steps):
        span = shape[-1]
        for number, (other, extent) in enumerate(steps):
            if other < stride or (other == stride and number < at):
                span = span + (extent - 1) * other
        if stride < span:
            return True
    return False


def fits(shape, strides, item_bytes):
    """True if kernels take these strides: head_dim contiguous, others multiples of 16 bytes or 0, no overlap."""
    if shape[-1] > 1 and strides[-1] != 1:
        return False
    for stride, extent in zip(strides[:-1], shape[:-1]):
        if extent > 1 and (stride < 0 or stride * item_bytes % _ALIGNMENT != 0):
            return False
    return not overlaps(shape, strides)


_fits_kept = functools.lru_cache(maxsize=1024)(fits)


def _fits(x):
    """Returns fits() for a PyTorch tensor. Symbols have no hash, so only plain tensors outside torch.compile use the
    cache."""
    import torch
    if torch.compiler.is_dynamo_compiling() or type(x) not in (torch.Tensor, torch.nn.Parameter):
        return fits(x.shape, x.stride(), x.element_size())
    return _fits_kept(x.shape, x.stride(), x.element_size())


def _begins_aligned(x):
    """True if the first element is at a multiple of 16 bytes. torch.compile knows no addresses: the ops check them."""
    import torch
    if torch.compiler.is_dynamo_compiling():
        return True
    if getattr(type(x), "__torch_dispatch__", None) is torch._C._disabled_torch_dispatch_impl:
        try:
            return x.data_ptr() % _ALIGNMENT == 0
        except RuntimeError:  # a transform's wrapper
            return True
    return x.storage_offset() * x.element_size() % _ALIGNMENT == 0


def aligned(x):
    """Returns the PyTorch tensor, or a copy if its address is not a multiple of 16 bytes."""
    return x if _begins_aligned(x) else x.clone()


def readable(x):
    """Returns the PyTorch tensor, or a copy if kernels do not take its strides or address, or if it is a negative view.
    A tensor whose head dim needs padding is not copied here, because ops/padding.py copies it from any strides."""
    x = x.resolve_neg()
    if x.shape[-1] % _PADDED_STEP:
        return x
    return aligned(x) if _fits(x) else x.contiguous()


def readable_operand(name, tensor):
    """Returns readable() for a PyTorch tensor or NumPy array."""
    tensors.check_dense(name, tensor)
    if tensors.is_torch(tensor):
        return readable(tensor)
    if fits(tensor.shape, tensors.element_strides(name, tensor),
            tensor.itemsize) and (tensors.address(name, tensor) or 0) % _ALIGNMENT == 0:
        return tensor
    made = tensors.empty(tensor, tuple(tensor.shape), tensor.dtype)
    made[...] = tensor
    return made


def order_of(query):
    """Returns the axes of [batch, num_heads, seqlen, head_dim] in query's memory order, from the outermost; head_dim is
    the innermost. A broadcast axis, or an axis of one entry, comes directly before the axis that follows it."""
    steps, order = list(query.stride()), [0, 1, 2, 3]
    for axis in (2, 1, 0):
        if query.shape[axis] == 1 or steps[axis] == 0:
            steps[axis] = steps[axis + 1] if axis < 2 else 0
    for axis in range(3):  # no sorted(): torch.compile has symbols here
        place = 0
        for other in range(3):
            if steps[other] > steps[axis] or (steps[other] == steps[axis] and other < axis):
                place = place + 1
        order[place] = axis
    return order


def strides_in_order(shape, order):
    """Returns the strides of a tensor without gaps whose axes have this order, from the outermost."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis], step = step, step * max(shape[axis], 1)
    return tuple(strides)


def in_order_of(query, o):
    """Returns o [batch, num_heads, seqlen, head_dim], or a copy if its memory has gaps or another order of axes than
    query's."""
    order = order_of(query)
    turned = o.permute(order)
    return o if turned.is_contiguous() else turned.contiguous().permute([order.index(axis) for axis in range(4)])
