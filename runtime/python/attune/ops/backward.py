# SPDX-License-Identifier: Apache-2.0
"""attention_backward(): gradients of attention with respect to q, k and v. Calls with equal shapes, strides and choices
share one plan. torch/autograd.py calls it for PyTorch's autograd."""
import sys
from collections import namedtuple

from ..core import tensors
from ..core.copies import readable, readable_operand
from ..core.flags import flag, flag_or_none, is_deterministic
from ..core.habits import explained
from ..core.library import module
from ..core.operands import extent_of, lse_extent, operand_address, share_memory
from ..core.problem import check_beside, problem_text, word
from ..core.torch_state import (in_graphs, needs_op, ordinal_of, refuse_gradients, stream_address, tell_written,
                                untraced)
from ..score.scores import scores_of
from . import quick
from .attention import choices_of
from .context import context_of, refuse_capture
from .padding import check_written, is_between, refuse_overlap, widened, widened_arguments

_GRADIENTS = (("q", "dq"), ("k", "dk"), ("v", "dv"))
FEATURES = ("softcap", "bias", "relative_bias", "alibi_slopes", "mask_tensor", "key_lengths", "documents", "prefix",
            "chunk", "score_mod", "mask_mod", "sinks", "dropout_p", "seed", "offset")
_OF_TENSORS = ("dout", "dq", "dk", "dv", "dscores")  # fields of attune_gradient_operands
_INPUTS = ("q", "k", "v", "o")  # fields of attune_operands; dout is among the gradients

_Call = namedtuple("_Call", "plan template gradients extents")


def gradients_asked(gradients):
    """Returns the text of attune_problem.gradients for a text such as "qk", or for three flags (of q, k and v)."""
    asked = gradients
    if isinstance(gradients, (tuple, list)) and len(gradients) == 3:
        asked = "".join(name for name, wanted in zip("qkv", gradients)
                        if flag("gradients", wanted, "q, k, v, .. or three flags, each True or False"))
    if not isinstance(asked, str) or not asked or "".join(name for name in "qkv" if name in asked) != asked:
        raise ValueError(
            f"gradients is {gradients!r}; must be q, k, v, qk, qv, kv, qkv, or three flags (of q, k and v), at least "
            f"one of them True")
    return asked


def gradient_like(x):
    """Returns new memory for a gradient: the axes in x's memory order, without gaps."""
    if tensors.is_torch(x):
        torch = sys.modules["torch"]
        repeats = any(stride == 0 and extent > 1 for stride, extent in zip(x.stride(), x.shape))
        made = None if repeats else torch.empty_like(x, requires_grad=False)
        return made if made is not None and made.stride(3) == 1 else x.new_empty(x.shape)
    numpy = sys.modules["numpy"]
    made = numpy.empty_like(x, subok=False)
    return made if made.strides[3] == made.itemsize else numpy.empty(x.shape, x.dtype)


def readable_lse(name, tensor):
    """Returns lse or dlse (None: None), or a copy of it. The library needs contiguous rows without broadcast axes."""
    if tensor is None or len(tensor.shape) != 3:
        return tensor
    strides = tensors.element_strides(name, tensor)
    fits = all(extent == 1 or stride > 0
               for stride, extent in zip(strides, tensor.shape)) and (strides[2] == 1 or tensor.shape[2] == 1)
    if fits and not (tensors.is_torch(tensor) and tensor.is_neg()):
        return tensor
    made = tensors.empty(tensor, tuple(tensor.shape), tensor.dtype)
    made[...] = tensor
    return made


def readable_saved(dout, q, k, v, o, lse):
    """Returns the tensors that a backward reads. A tensor that a saved-tensor hook returned at an unaligned address or
    in another memory order is copied."""
    return *(readable(x) if x.dim() == 4 else x for x in (dout, q, k, v, o)), readable_lse("lse", lse)


def _struct_of(extent):
    return module.Tensor(None, *extent.strides[:3])


def _extents(problem, target, given):
    """Returns the extent of each operand by name. Raises if one does not fit the problem."""
    p, q = problem, given["q"]
    dtype = tensors.DTYPES[p.dtype]
    rows, keys = (p.batch, p.seqlen_q, p.num_heads_q), (p.batch, p.seqlen_kv, p.num_heads_kv)
    shapes = {
        "q": (*rows, p.head_dim_qk), "k": (*keys, p.head_dim_qk), "v": (*keys, p.head_dim_v),
        "o": (*rows, p.head_dim_v)}
    shapes.update(dout=shapes["o"], dq=shapes["q"], dk=shapes["k"], dv=shapes["v"])
    of_gradient = "fp32" if p.accumulate else dtype
    found = {name: extent_of(name, given[name], shape, of_gradient if name in ("dq", "dk", "dv") else dtype, target, q)
             for name, shape in shapes.items() if given.get(name) is not None}
    if given.get("dscores") is not None:
        found["dscores"] = extent_of("dscores", given["dscores"], tuple(given["dscores"].shape), "fp32", target, q)
    for name in ("lse", "dlse"):
        if given.get(name) is not None:
            found[name] = lse_extent(name, given[name], (p.batch, p.num_heads_q, p.seqlen_q), target, q)
    return found


def make_call(context, given, asked, keywords, scores, fields=()):
    """Makes the call for these operands.

    asked: the problem's fields that name the gradients to compute, as text. fields: pairs (field of attune_problem,
    value) for values that a problem's text cannot hold."""
    q, k, v = given["q"], given["k"], given["v"]
    for name, tensor in given.items():
        if tensor is not None:
            check_beside(name, tensor, q)
            tensors.check_plain(name, tensor)
    refuse_capture(ordinal_of(tensors.target_of(q)), "attention_backward")
    text = f"op=attention_backward,{problem_text(q, k, v, **keywords)}{'' if scores is None else scores.text},{asked}"
    for name in ("o", "dout"):
        tensors.check_rank(name, given[name], tensors.DIMENSIONS[tensors.ROWS])
    strides = module.GradientOperands()
    for name in _OF_TENSORS:
        if given.get(name) is not None:
            tensors.check_rank(name, given[name], tensors.DIMENSIONS[tensors.ROWS])
            setattr(strides, name, module.Tensor(None, *tensors.layout_strides(name, given[name])))
    programs = () if scores is None else scores.programs()
    plan = context.plan_with_strides(text, [tensors.layout_strides(name, given[name]) for name in _INPUTS],
                                     (*programs, *fields), strides)
    extents = _extents(plan.problem, plan.target, given)
    template = module.Operands(**{name: _struct_of(extents[name]) for name in _INPUTS})
    template.lse_batch_stride, template.lse_head_stride = extents["lse"].strides[:2]
    for name in _OF_TENSORS:
        if name in extents:
            setattr(strides, name, _struct_of(extents[name]))
    if "dlse" in extents:
        strides.dlse_batch_stride, strides.dlse_head_stride = extents["dlse"].strides[:2]
    plan.prepare()  # later captures need no extra call
    return _Call(plan, template, strides, extents)


def bind_call(call, given):
    """Returns the structs with these tensors' addresses, and the addresses by name."""
    operands, gradients = call.template.copy(), call.gradients.copy()
    at = {}
    for name in call.extents:
        if name in ("lse", "dlse"):
            at[name] = tensors.address(name, given[name])
            setattr(operands if name == "lse" else gradients, name, at[name])
        else:
            at[name] = operand_address(name, given[name], written=name in _OF_TENSORS[1:])
            getattr(operands if name in _INPUTS else gradients, name).data = at[name]
    operands.gradients = gradients
    operands.kept = gradients
    return operands, at


def _refuse_overlap(call, at):
    written = [name for _, name in _GRADIENTS if name in at]
    for number, name in enumerate(written):
        for other in (*(each for each in at if each not in written), *written[:number]):
            if share_memory(at[name] or 0, call.extents[name], at[other] or 0, call.extents[other]):
                raise ValueError(f"{name} and {other} overlap in memory; {name} must have memory of its own")


def _outputs(out, asked, q, k, v):
    """Returns the gradients' tensors by name: those of `out`, or new ones. A gradient missing in `asked` is None."""
    if out is None:
        return {name: gradient_like(x) if letter in asked else None for (letter, name), x in zip(_GRADIENTS, (q, k, v))}
    if not isinstance(out, (tuple, list)) or len(out) != 3:
        raise ValueError(
            f"out is {type(out).__name__}; must be None or a tuple (dq, dk, dv), with None for each gradient that "
            f"`gradients` does not name")
    for (letter, name), tensor in zip(_GRADIENTS, out):
        if (tensor is None) == (letter in asked):
            raise ValueError(
                f"out has {'no ' if tensor is None else ''}{name}, and gradients is {asked!r}; out must hold a tensor "
                "for each gradient that `gradients` names, and None for the others")
    return {name: tensor for (_, name), tensor in zip(_GRADIENTS, out)}


def _padded(given, dlse, asked, out, choices):
    """Computes the gradients in wider tensors, for head dims that kernels do not take (see padding.py)."""
    q, v = given["q"], given["v"]
    wide = widened_arguments({
        "out": None, "pad_head_dim": None, "scale": None, **choices, **{name: given[name]
                                                                        for name in "qkv"}})
    wide_o, wide_dout = (widened(name, check_like_o(name, given[name], q, v), q) for name in ("o", "dout"))
    choices = {name: wide[name] for name in choices}
    outputs = _outputs(out, asked, *(given[name] for name in "qkv"))
    if out is not None:
        for letter, name in _GRADIENTS:
            if outputs[name] is not None:
                check_written(name, outputs[name], given[letter].shape, q, v)
        refuse_overlap(outputs, {**given, "dlse": dlse})
    found = attention_backward_checked(wide_dout, wide["q"], wide["k"], wide["v"], wide_o, given["lse"], dlse=dlse,
                                       gradients=asked, **choices)
    for made, target in zip(found, outputs.values()):
        if target is not None:
            target[...] = made[..., :target.shape[3]]
    return tuple(outputs.values())


def check_like_o(name, tensor, q, v):
    wanted = (*q.shape[:3], v.shape[3])
    if tuple(tensor.shape) != wanted:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; must be {wanted}, {tensors.DIMENSIONS[tensors.ROWS]}")
    return tensor


def attention_backward_checked(dout, q, k, v, o, lse, *, dlse=None, gradients="qkv", out=None, mask=None, window=None,
                               scale=None, is_causal=False, accuracy="accurate", context=None, block_map=None,
                               pad_head_dim=None, accumulate=False, deterministic=None, **features):
    """Implements attention_backward() for tensors with memory and without autograd history."""
    asked, accumulate = gradients_asked(gradients), flag("accumulate", accumulate)
    _check_accumulate(accumulate, out, q, k, v)
    deterministic, pad_head_dim = is_deterministic(deterministic), flag_or_none("pad_head_dim", pad_head_dim)
    word("accuracy", accuracy)
    for name in features:
        if name not in FEATURES:
            raise TypeError(
                f"attention_backward() has no keyword {name}; must be {', '.join(FEATURES)} or another of its "
                f"arguments")
    given = dict(dout=dout, q=q, k=k, v=v, o=o, lse=lse)
    keywords = dict(mask=mask, window=window, scale=scale, is_causal=is_causal)
    for name, tensor in given.items():
        tensors.signature(name, tensor)
        check_beside(name, tensor, q)
    if is_between(q, k, v):
        return _padded(
            given, dlse, asked, out, {
                **keywords, "context": context, "block_map": block_map, "pad_head_dim": pad_head_dim,
                "deterministic": deterministic, **features})
    outputs, _ = _run(given, dlse, asked, out, accumulate, deterministic, keywords, context,
                      scores_of(block_map=block_map, **features))
    return outputs


def _run(given, dlse, asked, out, accumulate, deterministic, keywords, context, scores):
    """Returns the gradients, and the parts of a recipe for such calls. Adds the gradients and readable copies to
    `given`, the tensors by name."""
    dout, q, k, v = (given[name] for name in ("dout", "q", "k", "v"))
    tensors.check_rank("dout", dout, tensors.DIMENSIONS[tensors.ROWS])
    given.update(dout=readable_operand("dout", dout), dlse=readable_lse("dlse", dlse))
    check_ranks(q, k, v)
    given.update(_outputs(out, asked, q, k, v))
    fields = f"gradients={asked}{',accumulate=1' if accumulate else ''}{',deterministic=1' if deterministic else ''}"
    key = ("backward", fields, *(None if tensor is None else tensors.signature(name, tensor)
                                 for name, tensor in given.items()), choices_of(**keywords),
           None if scores is None else scores.key)
    context = context_of(context, tensors.check_device("q", q))
    call = context.recent.find(key)
    if call is None:
        call = make_call(context, given, fields, keywords, scores)
        context.recent.keep(key, call)
    operands, at = bind_call(call, given)
    if out is not None:
        _refuse_overlap(call, at)
    kept = None if scores is None else scores.give(operands, call.plan)  # lives until the call is enqueued
    stream = stream_address(None, call.plan.ordinal)
    call.plan.enqueue(operands, stream)
    tell_written(*(out or ()))
    return tuple(given[name] for _, name in _GRADIENTS), (call, operands, scores, kept, stream)


def _checked_gradients(dout, q, k, v, o, lse, dlse=None, gradients="qkv", *, mask=None, window=None, scale=None,
                       is_causal=False, accuracy="accurate", context=None, softcap=None, bias=None, relative_bias=None,
                       alibi_slopes=None, mask_tensor=None, key_lengths=None, documents=None, prefix=None, chunk=None,
                       sinks=None, dropout_p=0.0, seed=None, offset=0, deterministic=False):
    """Returns (gradients, recipe). The requested gradients are one tensor or a tuple, as the C module returns them. The
    recipe (see quick.py) may be None."""
    arguments = locals()
    features = {name: arguments[name] for name in FEATURES if name in arguments}
    given = {name: arguments[name] for name in ("dout", *_INPUTS, "lse")}
    keywords = dict(mask=mask, window=window, scale=scale, is_causal=is_causal)
    found, made = _run(given, dlse, gradients, None, False, deterministic, keywords, context, scores_of(**features))
    named = {name: gradient for (_, name), gradient in zip(_GRADIENTS, found) if gradient is not None}
    results = tuple(named.values())
    if not tensors.is_torch(q) or given["dout"] is not dout or given["dlse"] is not dlse or (
            dropout_p and not tensors.is_torch(seed)):
        return results[0] if len(results) == 1 else results, None
    call, operands, scores, kept, stream = made
    recipe = lambda **shown: quick.recipe_of_gradients(call, operands, arguments, scores, kept, stream, named, **shown)
    return results[0] if len(results) == 1 else results, recipe


def _checked_heads_first(dout, q, k, v, o, *rest, **choices):
    """Implements _checked_gradients() for operands and gradients [batch, num_heads, seqlen, head_dim]."""
    found, recipe = _checked_gradients(*(x.transpose(1, 2) for x in (dout, q, k, v, o)), *rest, **choices)
    shown = tuple(x.transpose(1, 2) for x in found) if isinstance(found, tuple) else found.transpose(1, 2)
    return shown, None if recipe is None else lambda: recipe(heads_first=True)


def _quickly(checked):
    """Returns `checked` without its recipe, as a fast path."""
    return quick.function(checked, "attention_backward", quick.parameters_of(_checked_gradients), contexts=False)


differentiate, differentiate_heads_first = _quickly(_checked_gradients), _quickly(_checked_heads_first)


def _check_accumulate(accumulate, out, q, k, v):
    if accumulate and out is None:
        raise ValueError("accumulate is True and out is None; out must hold fp32 tensors, which are added to")
    if accumulate and is_between(q, k, v):
        raise ValueError(
            f"accumulate is True and head dims are {q.shape[3]} and {v.shape[3]}; both must be multiples of 8 from 16 "
            f"on")


def check_ranks(q, k, v):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        tensors.check_rank(name, tensor, tensors.DIMENSIONS[tensors.ROWS])


@in_graphs("differentiate")
@untraced
def attention_backward(dout, q, k, v, o, lse, *, dlse=None, gradients="qkv", out=None, **choices):
    """Returns the gradients of attention() with respect to q, k and v, given the gradients of its o and lse.

    dout: the gradient of o, with o's shape. dlse: the gradient of lse; None is 0.
    q, k, v: the tensors that attention() was given. o, lse: its results, with return_lse=True.
    All are of PyTorch or NumPy, in bf16, fp16 or fp32. lse and dlse are fp32 [batch, num_heads_q, seqlen_q]. q, k, v, o
    and dout have any strides that attention() takes. A dout whose head_dim is not contiguous, or whose rows do not
    begin at multiples of 16 bytes, is copied once.
    gradients: "q", "kv", .., or three flags; only these are computed.
    Other keywords are those that attention() was given: mask, window, scale, is_causal, context, pad_head_dim,
    block_map, the score features, and dropout_p with its seed and offset. accuracy changes nothing: fp32 gradients are
    computed in fp32.

    accumulate: True adds to `out`, fp32 tensors whatever q's dtype is. This sums the gradients of parts of a sequence
    that see different keys; o and lse are then those of the whole sequence.
    deterministic: True gives the same bits each time the call is repeated. False allows kernels that add in another
    order each time, which may be faster. None follows torch.use_deterministic_algorithms(), and is False without
    PyTorch. `attune tune` keeps winners for both.

    Returns (dq, dk, dv), with None for each gradient that `gradients` does not name; or `out`, a tuple of the three.
    Each gradient has its tensor's shape and dtype, and the same memory order of axes, without gaps. Rows that see no
    key, and keys that no row sees, get 0.
    Biases, slopes and sinks take part in the scores; score_gradient() gives their own gradients. There are no second
    derivatives.

    PyTorch's autograd does all this for attention() of tensors that require gradients. Before a CUDA graph's capture,
    make one call with the same shapes.
    Raises ValueError or TypeError if arguments do not fit, and attune.Error if the library refuses the call."""
    given = dict(dlse=dlse, gradients=gradients, out=out, **choices)
    graph = needs_op(dout, q, k, v, o, lse, autocast=False, named=("dout", "q", "k", "v", "o", "lse"))
    if graph is not None:
        return graph.differentiate(dout, q, k, v, o, lse, **given)
    refuse_gradients(
        (("dout", dout), ("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), ("dlse", dlse), *choices.items()))
    try:
        return attention_backward_checked(dout, q, k, v, o, lse, **given)
    except TypeError as error:
        raise explained(error, choices) from None
