# SPDX-License-Identifier: Apache-2.0
"""Copies of tensors that kernels do not take as they stand, and the order in memory of results. Used by attune.sdpa, attune.flex and the adapters of
transformers and diffusers (_attention.py), by gradients (_backward.py) and by the ops (torch.py). torch.compile traces these functions."""
import functools

from . import _tensors as tensors

_ALIGNMENT = 16  # bytes, of the first element and of each step
_PADDED_STEP = 8  # columns; others are copied into wider tensors, see _padding.py


def overlaps(shape, strides):
    """True if rows, heads or batch entries share memory, as runtime/operand_check.cpp finds it: a step must pass all that smaller steps span. A stride
    of 0 repeats and overlaps nothing."""
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
    """fits() of a tensor of PyTorch. Symbols have no hash: only plain tensors outside torch.compile take what is kept."""
    import torch
    if torch.compiler.is_dynamo_compiling() or type(x) not in (torch.Tensor, torch.nn.Parameter):
        return fits(x.shape, x.stride(), x.element_size())
    return _fits_kept(x.shape, x.stride(), x.element_size())


def _begins_aligned(x):
    """True if the first element stands at a multiple of 16 bytes. torch.compile knows no addresses: the ops look at them."""
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
    """The tensor of PyTorch, or a copy of it where it begins between multiples of 16 bytes."""
    return x if _begins_aligned(x) else x.clone()


def readable(x):
    """The tensor of PyTorch, or a copy of it where kernels do not take its strides, its address or the sign of its view. A head_dim that is computed in
    wider copies stays: those are made of any tensor."""
    x = x.resolve_neg()
    if x.shape[-1] % _PADDED_STEP:
        return x
    return aligned(x) if _fits(x) else x.contiguous()


def readable_operand(name, tensor):
    """readable() of a tensor of PyTorch or NumPy."""
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
    """Axes of [batch, num_heads, seqlen, head_dim] from the outermost on, as they stand in query's memory; head_dim is the innermost. An axis of one
    entry, or one that repeats, stands before the next."""
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
    """Strides of a tensor without gaps whose axes stand in this order, from the outermost on."""
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis], step = step, step * max(shape[axis], 1)
    return tuple(strides)


def in_order_of(query, o):
    """o [batch, num_heads, seqlen, head_dim], or a copy of it where its memory has gaps or another order of axes than query's."""
    order = order_of(query)
    turned = o.permute(order)
    return o if turned.is_contiguous() else turned.contiguous().permute([order.index(axis) for axis in range(4)])
