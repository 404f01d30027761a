# SPDX-License-Identifier: Apache-2.0
"""merge(): joins two results of attention() over different keys, for attention whose keys are spread over calls or
devices."""
import math
from collections import namedtuple

from ..core import tensors
from ..core.library import module
from ..core.operands import extent_of, lse_extent, operand_address, share_memory
from ..core.problem import check_beside
from ..core.torch_state import (in_graphs, needs_op, ordinal_of, refuse_gradients, stream_address, tell_written,
                                untraced)
from .context import context_of, refuse_capture

# Everything that depends only on the tensors' shapes, dtypes and strides: the plan, a struct without addresses, each
# tensor's extent.
_Call = namedtuple("_Call", "plan template extents")
_STATE = ("o", "lse", "other_o", "other_lse", "out", "lse_out")


def _make_call(context, given):
    o, other_o, out = given["o"], given["other_o"], given["out"]
    for name, tensor in given.items():
        check_beside(name, tensor, o, "o")
    refuse_capture(ordinal_of(tensors.target_of(o)), "merge")
    for name in ("o", "other_o", "out"):
        tensors.check_rank(name, given[name], tensors.DIMENSIONS[tensors.ROWS])
    batch, seqlen, heads, head_dim = shape = tuple(o.shape)
    dtypes = [tensors.dtype_text(one.dtype) for one in (o, other_o, out)]
    for name, dtype in zip(("o", "other_o", "out"), dtypes):
        if dtype not in ("fp32", "bf16", "fp16"):
            raise ValueError(f"{name} is {dtype}; must be fp32, bf16 or fp16")
    problem = (
        f"op=merge,dtype={dtypes[0]},dtype_kv={dtypes[1]},dtype_o={dtypes[2]},head_dim={head_dim},heads={heads},"
        f"batch={batch},seqlen={seqlen}")
    strides = [
        tensors.layout_strides("o", o),
        tensors.layout_strides("other_o", other_o), (0, 0, 0),
        tensors.layout_strides("out", out)]
    plan = context.plan_with_strides(problem, strides)
    extents = {}
    for name, tensor in given.items():
        if name in ("o", "other_o", "out"):
            dtype = dtypes[("o", "other_o", "out").index(name)]
            extents[name] = extent_of(name, tensor, shape, dtype, plan.target, o)
        else:
            extents[name] = lse_extent(name, tensor, (batch, heads, seqlen), plan.target, o)
    template = module.Operands(q=module.Tensor(None, *extents["o"].strides[:3]), k=module.Tensor(
        None, *extents["other_o"].strides[:3]), o=module.Tensor(None, *extents["out"].strides[:3]),
                        q_scale=_scale(extents["lse"]), k_scale=_scale(extents["other_lse"]))
    template.lse_batch_stride, template.lse_head_stride = extents["lse_out"].strides[:2]
    return _Call(plan, template, extents)


def _scale(extent):
    return module.Scale(None, extent.strides[0], extent.strides[1], 1, 1)


def _call_of(context, given):
    key = ("merge", *(tensors.signature(name, tensor) for name, tensor in given.items()))
    context = context_of(context, tensors.check_device("o", given["o"]))
    call = context.recent.find(key)
    if call is None:
        call = _make_call(context, given)
        context.recent.keep(key, call)
    return call


# Pairs that may share memory exactly: kernels read a row completely before they write it.
_IN_PLACE = {("out", "o"), ("lse_out", "lse")}


def _refuse_overlap(at, extents):
    written = ("out", "lse_out")
    for i, name in enumerate(written):
        for other in ("o", "lse", "other_o", "other_lse", *written[:i]):
            if (name, other) in _IN_PLACE and (at[name], extents[name]) == (at[other], extents[other]):
                continue
            if share_memory(at[name] or 0, extents[name], at[other] or 0, extents[other]):
                raise ValueError(
                    f"{name} and {other} overlap in memory; each must have memory of its own, except out=o and "
                    "lse_out=lse")


def _given(o, lse, other_o, other_lse, out, lse_out):
    for name, tensor in (("o", o), ("lse", lse)):
        tensors.signature(name, tensor)  # refuses other types
    if out is None:
        out = tensors.empty(o, tuple(o.shape), o.dtype)
    if lse_out is None:
        lse_out = tensors.empty(o, tuple(lse.shape), tensors.native_dtype(o, "fp32"))
    return dict(zip(_STATE, (o, lse, other_o, other_lse, out, lse_out)))


@in_graphs("merge")
@untraced
def merge(o, lse, other_o, other_lse, out=None, lse_out=None, *, context=None):
    """Returns the attention over the keys of two calls together, from the o and lse (return_lse=True) of each.

    o, other_o: [batch, seqlen, num_heads, head_dim], each fp32, bf16 or fp16. lse, other_lse: fp32 [batch, num_heads,
    seqlen], natural logarithms. A row whose lse is -inf has seen no key: its o is ignored, whatever it holds. If both
    are -inf, o is 0 and lse -inf.
    Sinks count once: give them to one of the calls. Sums are fp32: for many calls keep an fp32 o.

    Returns (out, lse_out): new tensors (out with o's dtype), or the given ones. out=o, lse_out=lse adds the other call
    to the first in place. context: as in attention(). Has no gradients.
    Raises ValueError or TypeError if arguments do not fit. Before a CUDA graph's capture, call prepare_merge() with the
    same arguments."""
    graph = needs_op(o, other_o, lse, other_lse, autocast=False, named=("o", "other_o", "lse", "other_lse"))
    if graph is not None:
        return graph.merge(o, lse, other_o, other_lse, out, lse_out, context=context)
    refuse_gradients([("o", o), ("lse", lse), ("other_o", other_o), ("other_lse", other_lse), ("out", out),
                      ("lse_out", lse_out)])
    given = _given(o, lse, other_o, other_lse, out, lse_out)
    call = _call_of(context, given)
    at = {name: operand_address(name, tensor, name == "out") if name in ("o", "other_o", "out") else
          tensors.address(name, tensor, name == "lse_out") for name, tensor in given.items()}
    _refuse_overlap(at, call.extents)
    operands = call.template.copy()
    operands.q.data, operands.k.data, operands.o.data = at["o"], at["other_o"], at["out"]
    operands.q_scale.data, operands.k_scale.data, operands.lse = at["lse"], at["other_lse"], at["lse_out"]
    if at["o"] is not None:  # otherwise there are no elements
        call.plan.enqueue(operands, stream_address(None, call.plan.ordinal))
    tell_written(out, lse_out)
    return given["out"], given["lse_out"]


def prepare_merge(o, lse, other_o, other_lse, out=None, lse_out=None, *, context=None):
    """Prepares merge() with these arguments, as prepare() does for attention(). Returns the Plan."""
    plan = _call_of(context, _given(o, lse, other_o, other_lse, out, lse_out)).plan
    plan.prepare()
    return plan


def merge_all(o, lse):
    """Returns (sums, lse) of several states merged one after the other, in fp32, to be rounded once. Used by
    flashinfer/cascade.py and flash/rows.py.

    o: PyTorch [states, batch, seqlen, num_heads, head_dim], lse: fp32 [states, batch, num_heads, seqlen]."""
    sums, whole = o[0].float().clone(), lse[0].float().contiguous().clone()
    sums.masked_fill_((whole == -math.inf).transpose(1, 2)[..., None], 0)  # rows that saw no key
    for other_o, other_lse in zip(o[1:], lse[1:]):
        merge(sums, whole, other_o, other_lse.float().contiguous(), out=sums, lse_out=whole)
    return sums, whole
