# SPDX-License-Identifier: Apache-2.0
"""merge(): joins two results of attention() over different keys, for attention whose keys are spread over calls or
devices."""
import math

from ..core import tensors
from ..core.operands import extent_of, lse_extent
from ..core.torch_state import in_graphs, needs_op, profiled, refuse_gradients, tell_written, untraced
from .call import Call, Operand, check_new, kept_call, key_of
from .context import context_of

_OPERANDS = (
    Operand("o", "q"), Operand("lse", "q_scale"), Operand("other_o", "k"), Operand("other_lse", "k_scale"),
    Operand("out", "o", written=True, over="o"), Operand("lse_out", "lse", written=True, over="lse"))


def _make_call(context, given):
    check_new("merge", given, "o")
    values = {name: given[name] for name in ("o", "other_o", "out")}
    for name, tensor in values.items():
        tensors.check_rank(name, tensor, tensors.DIMENSIONS[tensors.ROWS])
    batch, seqlen, heads, head_dim = shape = tuple(given["o"].shape)
    dtypes = {name: tensors.dtype_text(tensor.dtype) for name, tensor in values.items()}
    for name, dtype in dtypes.items():
        if dtype not in ("fp32", "bf16", "fp16"):
            raise ValueError(f"{name} is {dtype}; must be fp32, bf16 or fp16")
    problem = (
        f"op=merge,dtype={dtypes['o']},dtype_kv={dtypes['other_o']},dtype_o={dtypes['out']},head_dim={head_dim},"
        f"heads={heads},batch={batch},seqlen={seqlen}")
    strides = [tensors.layout_strides(name, tensor) for name, tensor in values.items()]
    plan = context.plan_with_strides(problem, [*strides[:2], (0, 0, 0), strides[2]])
    extents = {
        name: extent_of(name, tensor, shape, dtypes[name], plan.target, given["o"]) if name in values else lse_extent(
            name, tensor, (batch, heads, seqlen), plan.target, given["o"])
        for name, tensor in given.items()}
    return Call(plan, _OPERANDS, extents)


def _given(o, lse, other_o, other_lse, out, lse_out):
    for name, tensor in (("o", o), ("lse", lse)):
        tensors.signature(name, tensor)  # refuses other types
    if out is None:
        out = tensors.empty(o, tuple(o.shape), o.dtype)
    if lse_out is None:
        lse_out = tensors.empty(o, tuple(lse.shape), tensors.native_dtype(o, "fp32"))
    return dict(o=o, lse=lse, other_o=other_o, other_lse=other_lse, out=out, lse_out=lse_out)


@in_graphs("merge")
@untraced
@profiled
def merge(o, lse, other_o, other_lse, out=None, lse_out=None, *, context=None):
    """Returns the attention over the keys of two calls together, from the o and lse (return_lse=True) of each.

    o, other_o: [batch, seqlen, num_heads, head_dim], each fp32, bf16 or fp16. lse, other_lse: fp32 [batch, num_heads,
    seqlen], natural logarithms. A row whose lse is -inf has seen no key: its o is ignored, whatever it holds. If both
    are -inf, o is 0 and lse -inf.
    Sinks count once: give them to one of the calls. Sums are fp32: for many calls keep an fp32 o.

    Returns (out, lse_out): new tensors (out with o's dtype), or the given ones. out=o, lse_out=lse adds the other call
    to the first in place. context: as in attention(). Has no gradients.
    Raises ValueError or TypeError if arguments do not fit. Before a CUDA graph's capture, call
    prepare(merge, ...)."""
    graph = needs_op(o, other_o, lse, other_lse, autocast=False, named=("o", "other_o", "lse", "other_lse"))
    if graph is not None:
        return graph.merge(o, lse, other_o, other_lse, out, lse_out, context=context)
    refuse_gradients(dict(o=o, lse=lse, other_o=other_o, other_lse=other_lse, out=out, lse_out=lse_out).items())
    given = _given(o, lse, other_o, other_lse, out, lse_out)
    context = context_of(context, tensors.check_device("o", o))
    call = kept_call(context, ("merge", *key_of(given)), lambda: _make_call(context, given))
    operands, at = call.bind(given)
    if at["o"] is not None:  # otherwise there are no elements
        call.run(operands)
    tell_written(out, lse_out)
    return given["out"], given["lse_out"]


def merge_all(o, lse):
    """Returns (sums, lse) of several states merged one after the other, in fp32, to be rounded once. Used by
    flashinfer/cascade.py and flash/rows.py.

    o: PyTorch [states, batch, seqlen, num_heads, head_dim], lse: fp32 [states, batch, num_heads, seqlen]."""
    sums, whole = o[0].float().clone(), lse[0].float().contiguous().clone()
    sums.masked_fill_((whole == -math.inf).transpose(1, 2)[..., None], 0)  # rows that saw no key
    for other_o, other_lse in zip(o[1:], lse[1:]):
        merge(sums, whole, other_o, other_lse.float().contiguous(), out=sums, lse_out=whole)
    return sums, whole
