# SPDX-License-Identifier: Apache-2.0
"""quantise(): 8-bit tensors and their factors, for attention() in _context.py."""
import ctypes

from . import _tensors as tensors
from ._context import cached_plan, current_stream
from ._library import Operands, Scale, check, library


def _padded(extent):
    return -(-extent // 16) * 16  # rows of 8-bit tensors begin at 16 bytes


def quantise(x, dtype="e4m3", scale_block=0, rotation="none", v_layout="rows"):
    """x in 8 bits, and its factors: x = tensor * scale up to rounding. x: [batch, seqlen, num_heads, head_dim] in bf16, fp16 or fp32.

    dtype: "e4m3" or "e5m2". scale_block: rows of a head that share a factor, multiples of 16; 0: all rows of a head. rotation:
    "hadamard" multiplies each row by the orthonormal Hadamard matrix first (head_dim must be a power of two): do so to q and k
    alike, and q k^T is as it was while outliers spread over the row. v_layout: "transposed" for a v whose keys are contiguous.

    Returns (tensor, scale). tensor: as x, or [batch, num_heads, head_dim, seqlen] when transposed; of NumPy's uint8 for arrays.
    Rows begin at multiples of 16 bytes. scale: float32 [batch, num_heads], with scale_block [batch, num_heads, blocks]."""
    batch, seqlen, heads, head_dim = x.shape
    dtype = tensors.dtype_text(dtype)
    transposed = v_layout == "transposed"
    if transposed:
        o = tensors.empty(x, (batch, heads, head_dim, _padded(seqlen)), dtype)[..., :seqlen]
    else:
        o = tensors.empty(x, (batch, seqlen, heads, _padded(head_dim)), dtype)[..., :head_dim]
    blocks = tensors.num_blocks(seqlen, scale_block)
    scale = tensors.empty(x, (batch, heads, blocks), "fp32")
    problem = (f"op=quantise,dtype={tensors.dtype_name(x)},dtype_o={dtype},head_dim={head_dim},heads={heads},batch={batch},seqlen={seqlen},"
               f"scale_block={scale_block},rotation={rotation},v_layout={v_layout}")
    layout = tensors.TRANSPOSED if transposed else tensors.ROWS
    strides = (tensors.layout_strides(x), (0, 0, 0), (0, 0, 0), tensors.layout_strides(o, layout))
    plan = cached_plan(tensors.target_of(x), problem, strides)
    operands = Operands(size=ctypes.sizeof(Operands))
    shape = (batch, seqlen, heads, head_dim)
    operands.q = tensors.view("x", x, shape)
    operands.o = tensors.view("tensor", o, shape, layout)
    operands.o_scale = Scale(tensors.address(scale), heads * blocks, blocks, 1, 1)
    plan.run_operands(operands, x, current_stream(x))
    return o, (scale if scale_block > 0 else scale[..., 0])
