# SPDX-License-Identifier: Apache-2.0
"""Tensors of PyTorch and NumPy as the C interface sees them: dtype names, strides, addresses, factors of 8-bit tensors. Used by
_context.py and _quantise.py; imports neither library by itself."""
import sys

from ._library import Scale, Tensor

# What parse_dtype does not know: 8-bit types of PyTorch and of ml_dtypes.
_DTYPE_NAMES = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
FP8_NAMES = ("e4m3", "e5m2")
ROWS, TRANSPOSED = 0, 1  # attune_v_layout


def is_torch(tensor):
    torch = sys.modules.get("torch")  # imported by the caller, or not at all
    return torch is not None and isinstance(tensor, torch.Tensor)


def dtype_text(dtype):
    """attune's name of a dtype given as a name, or as one of PyTorch or NumPy."""
    name = str(dtype).removeprefix("torch.")
    return _DTYPE_NAMES.get(name, name)


def dtype_name(tensor, given=None):
    """Arrays of uint8 hold 8-bit floats whose type the caller names."""
    name = dtype_text(tensor.dtype)
    if name != "uint8":
        return name
    if given is None:
        raise ValueError("an array of uint8 needs the name of its type: dtype=\"e4m3\" or \"e5m2\"")
    return dtype_text(given)


def element_strides(tensor):
    if is_torch(tensor):
        return tensor.stride()
    return tuple(stride // tensor.itemsize for stride in tensor.strides)


def address(tensor):
    return (tensor.data_ptr() if is_torch(tensor) else tensor.ctypes.data) or None


def view(name, tensor, shape, layout=ROWS):
    """`shape` is [batch, rows, num_heads, head_dim]; transposed tensors are [batch, num_heads, head_dim, rows]."""
    batch, rows, heads, head_dim = shape
    wanted = shape if layout == ROWS else (batch, heads, head_dim, rows)
    if tuple(tensor.shape) != wanted:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; accepted is {wanted}")
    strides = element_strides(tensor)
    if strides[3] != 1 and wanted[3] != 1:
        inner = "head_dim" if layout == ROWS else "seqlen"
        raise ValueError(f"{name} has stride {strides[3]} in {inner}; accepted is 1 (call .contiguous() on it)")
    return Tensor(address(tensor), *layout_strides(tensor, layout))


def layout_strides(tensor, layout=ROWS):
    """Strides over (batch, rows, heads); a transposed tensor's rows are its head_dim."""
    strides = element_strides(tensor)
    return (strides[0], strides[1], strides[2]) if layout == ROWS else (strides[0], strides[2], strides[1])


def target_of(tensor):
    return f"cuda:{tensor.device.index}" if is_torch(tensor) and tensor.is_cuda else "cpu"


def empty(like, shape, dtype):
    """A new tensor beside `like`; dtype by attune's name. 8-bit arrays of NumPy are uint8."""
    if is_torch(like):
        torch = sys.modules["torch"]
        names = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    else:
        import numpy
        names = {"e4m3": numpy.uint8, "e5m2": numpy.uint8, "fp32": numpy.float32, "fp16": numpy.float16}
    if dtype not in names:
        raise ValueError(f"dtype is {dtype}; accepted here are {', '.join(names)}")
    return torch.empty(shape, dtype=names[dtype], device=like.device) if is_torch(like) else numpy.empty(shape, dtype=names[dtype])


def factors(name, scale, like, batch, heads, blocks):
    """A tensor with the factors of one operand and how the kernels find them; (None, no view) for None. `scale`: a number, or
    float32 of shape [], [batch, n] or [batch, n, blocks], where n divides the heads and 1 stands for any extent."""
    if scale is None:
        return None, Scale()
    if isinstance(scale, (int, float)):
        tensor = empty(like, (), "fp32")
        tensor.fill_(scale) if is_torch(tensor) else tensor.fill(scale)
    else:
        tensor = scale
    if dtype_text(tensor.dtype) != "fp32":
        raise ValueError(f"{name} is {dtype_text(tensor.dtype)}; accepted is a number or a float32 tensor")
    shape, strides = tuple(tensor.shape), tuple(element_strides(tensor))
    if len(shape) not in (0, 2, 3):
        raise ValueError(f"{name} has shape {shape}; accepted are [], [batch, heads] and [batch, heads, blocks]")
    shape, strides = shape + (1,) * (3 - len(shape)), strides + (0,) * (3 - len(strides))
    if shape[0] not in (1, batch) or heads % max(shape[1], 1) != 0 or shape[1] == 0 or shape[2] not in (1, blocks):
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; accepted are {batch} batches, a divisor of {heads} heads, {blocks} blocks "
                         "of rows (scale_block says how many rows share a factor), or 1 of each")
    batch_stride, head_stride, block_stride = (stride if extent > 1 else 0 for stride, extent in zip(strides, shape))
    return tensor, Scale(address(tensor), batch_stride, head_stride, block_stride, heads // shape[1])


def num_blocks(rows, scale_block):
    return -(-rows // scale_block) if scale_block > 0 else 1
