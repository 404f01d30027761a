# SPDX-License-Identifier: Apache-2.0
"""attention_backward(): gradients of attention with respect to q, k and v. Calls with equal shapes, strides and choices
share one plan. torch/autograd.py calls it for PyTorch's autograd."""
import sys

from ..core import tensors
from ..core.copies import readable, readable_operand
from ..core.flags import flag, flag_or_none, is_deterministic
from ..core.library import module
from ..core.operands import extent_of, lse_extent
from ..core.preparing import preparing
from ..core.problem import check_beside, problem_text, word
from ..core.torch_state import in_graphs, needs_op, profiled, refuse_gradients, tell_written, untraced
from ..score.features import UNREPEATED
from ..score.scores import scores_of
from . import quick
from .attention import OF_GRADIENTS, choices_of
from .call import Call, Operand, check_new, kept_call, key_of
from .context import context_of
from .key_lists import check_lists_of_keys, give_lists_of_keys, strides_of, text_of, v_is_in_k
from .padding import check_written, is_between, refuse_overlap, widened, widened_arguments
from .public import with_keywords

_GRADIENTS = (("q", "dq"), ("k", "dk"), ("v", "dv"))
OF_PROBLEM = ("mask", "window", "scale", "is_causal")  # keywords of problem_text()
_INPUTS = ("q", "k", "v", "o")
_OPERANDS = (
    *(Operand(name, name) for name in (*_INPUTS, "lse")), Operand("dout", "dout", "gradients"),
    Operand("dlse", "dlse", "gradients"),
    *(Operand(name, name, "gradients", written=True) for name in ("dq", "dk", "dv", "dscores")))


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
    check_new("attention_backward", given)
    q, k, v = given["q"], given["k"], given["v"]
    text = f"op=attention_backward,{problem_text(q, k, v, **keywords)}{'' if scores is None else scores.text},{asked}"
    for name in ("o", "dout"):
        tensors.check_rank(name, given[name], tensors.DIMENSIONS[tensors.ROWS])
    strides = module.GradientOperands()
    for name in ("dout", "dq", "dk", "dv", "dscores"):
        if given.get(name) is not None:
            tensors.check_rank(name, given[name], tensors.DIMENSIONS[tensors.ROWS])
            setattr(strides, name, module.Tensor(None, *tensors.layout_strides(name, given[name])))
    programs = () if scores is None else scores.programs()
    plan = context.plan_with_strides(text, [tensors.layout_strides(name, given[name]) for name in _INPUTS],
                                     (*programs, *fields), strides)
    return Call(plan, _OPERANDS, _extents(plan.problem, plan.target, given))


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
    wide = widened_arguments({"out": None, **choices, **{name: given[name] for name in "qkv"}})
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
        if target is not None and not preparing():
            target[...] = made[..., :target.shape[3]]
    return tuple(outputs.values())


def check_like_o(name, tensor, q, v):
    wanted = (*q.shape[:3], v.shape[3])
    if tuple(tensor.shape) != wanted:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; must be {wanted}, {tensors.DIMENSIONS[tensors.ROWS]}")
    return tensor


def attention_backward_checked(dout, q, k, v, o, lse, *, dlse=None, gradients="qkv", out=None, accumulate=False,
                               **choices):
    """Implements attention_backward() for tensors with memory and without autograd history."""
    asked, accumulate = gradients_asked(gradients), flag("accumulate", accumulate)
    _check_accumulate(accumulate, out, q, k, v)
    given, choices = dict(dout=dout, q=q, k=k, v=v, o=o, lse=lse), checked_choices(choices)
    check_operands(given)
    if is_between(q, k, v):
        return _padded(given, dlse, asked, out, choices)
    return _run(given, dlse, asked, out, accumulate, choices)[0]


def checked_choices(choices):
    """Returns all keywords of OF_GRADIENTS with the given values, of which those that no problem holds are checked."""
    for name in choices:
        if name not in OF_GRADIENTS:
            raise TypeError(f"gradients got an unexpected keyword argument {name!r}")
    choices = {**OF_GRADIENTS, **choices}
    word("accuracy", choices["accuracy"])
    return {
        **choices, "deterministic": is_deterministic(choices["deterministic"]), "pad_head_dim": flag_or_none(
            "pad_head_dim", choices["pad_head_dim"])}


def check_operands(given):
    for name, tensor in given.items():
        tensors.signature(name, tensor)
        check_beside(name, tensor, given["q"])


def _run(given, dlse, asked, out, accumulate, choices):
    """Returns the gradients, and the parts of a recipe for such calls. Adds the gradients and readable copies to
    `given`, the tensors by name. choices: all keywords of OF_GRADIENTS."""
    dout, q, k, v = (given[name] for name in ("dout", "q", "k", "v"))
    keywords, scores = {name: choices[name] for name in OF_PROBLEM}, scores_of(choices)
    tensors.check_rank("dout", dout, tensors.DIMENSIONS[tensors.ROWS])
    given.update(dout=readable_operand("dout", dout), dlse=readable_lse("dlse", dlse))
    check_ranks(q, k, v)
    given.update(_outputs(out, asked, q, k, v))
    fields = f"gradients={asked}{',accumulate=1' if accumulate else ''}"
    fields += ",deterministic=1" if choices["deterministic"] else ""
    key = "backward", fields, *key_of(given), choices_of(**keywords), None if scores is None else scores.key
    context = context_of(choices["context"], tensors.check_device("q", q))
    call = kept_call(context, key, lambda: make_call(context, given, fields, keywords, scores))
    operands, _ = call.bind(given, fresh=out is None)
    kept = None if scores is None else scores.give(operands, call.plan)  # lives until the call is enqueued
    stream = call.run(operands)
    tell_written(*(out or ()))
    return tuple(given[name] for _, name in _GRADIENTS), (call, operands, scores, kept, stream)


_OF_LISTS = "scale", "context", "deterministic"  # keywords of gradients over lists of keys


def check_choices_of_lists(choices):
    """Raises if a keyword of attention() is given that gradients over lists of keys do not take."""
    for name, value in choices.items():
        if name not in _OF_LISTS and value is not OF_GRADIENTS.get(name) and value != OF_GRADIENTS.get(name):
            raise ValueError(
                f"key_indices and {name} are given; gradients over lists of keys take only {', '.join(_OF_LISTS)} "
                f"besides")


def backward_over_lists(given, dlse, lists, out=None, in_k=None, **choices):
    """Returns (dq, dk, dv) of attention over lists of keys. given: dout, q, k, v, o and lse by name. in_k: True if v is
    the first columns of k, so that dk includes dv, which is None; None: as their memory is."""
    check_choices_of_lists(choices)
    choices = checked_choices(choices)
    check_operands(given)
    q, k, v = (given[name] for name in "qkv")
    check_ranks(q, k, v)
    check_lists_of_keys(lists, q, tuple(q.shape[:2]), k.shape[2])
    in_k = v_is_in_k(k, v) if in_k is None else in_k
    tensors.check_rank("dout", given["dout"], tensors.DIMENSIONS[tensors.ROWS])
    given.update(dout=readable_operand("dout", given["dout"]), dlse=readable_lse("dlse", dlse))
    given.update(_outputs(out, "qk" if in_k else "qkv", q, k, v))
    fields = text_of(lists)[1:] + (",v_in_k=1" if in_k else "") + (",deterministic=1" if choices["deterministic"] else
                                                                   "")
    keywords = {name: choices[name] for name in OF_PROBLEM}
    key = "backward", fields, *key_of(given), *key_of(lists), choices_of(**keywords)
    context = context_of(choices["context"], tensors.check_device("q", q))

    def make():
        call = make_call(context, given, fields, keywords, None)
        call.key_strides = strides_of(lists, 2)
        return call

    call = kept_call(context, key, make)
    operands, _ = call.bind(given, fresh=out is None)
    operands.cache = cache = module.CacheOperands()
    give_lists_of_keys(cache, lists, call.key_strides)
    call.run(operands)
    tell_written(*(out or ()))
    return tuple(given[name] for _, name in _GRADIENTS)


def _checked_gradients(dout, q, k, v, o, lse, dlse=None, gradients="qkv", *rest, **choices):
    """Returns (gradients, recipe) for keywords of _FAST. The requested gradients are one tensor or a tuple, as the C
    module returns them. The recipe (see quick.py) may be None."""
    choices = {**_FAST, **dict(zip(_FAST, rest)), **choices}
    given = dict(dout=dout, q=q, k=k, v=v, o=o, lse=lse)
    arguments = {**given, "dlse": dlse, "gradients": gradients, **choices}
    found, made = _run(given, dlse, gradients, None, False, choices)
    named = {name: gradient for (_, name), gradient in zip(_GRADIENTS, found) if gradient is not None}
    results = tuple(named.values())
    if not tensors.is_torch(q) or given["dout"] is not dout or given["dlse"] is not dlse or (
            choices["dropout_p"] and not tensors.is_torch(choices["seed"])):
        return results[0] if len(results) == 1 else results, None
    call, operands, scores, kept, stream = made
    recipe = lambda **shown: quick.recipe_of_gradients(call, operands, arguments, scores, kept, stream, named, **shown)
    return results[0] if len(results) == 1 else results, recipe


def _checked_heads_first(dout, q, k, v, o, *rest, **choices):
    """Implements _checked_gradients() for operands and gradients [batch, num_heads, seqlen, head_dim]."""
    found, recipe = _checked_gradients(*(x.transpose(1, 2) for x in (dout, q, k, v, o)), *rest, **choices)
    shown = tuple(x.transpose(1, 2) for x in found) if isinstance(found, tuple) else found.transpose(1, 2)
    return shown, None if recipe is None else lambda: recipe(heads_first=True)


# Keywords of calls that the C module may know, with their defaults.
_FAST = {name: default for name, default in OF_GRADIENTS.items() if name not in (*UNREPEATED, "pad_head_dim")}
_FAST["deterministic"] = False


def _quickly(checked):
    """Returns `checked` without its recipe, as a fast path."""
    names = ("dout", "q", "k", "v", "o", "lse", "dlse", "gradients", *_FAST)
    checked = profiled(checked, "attention_backward")
    return quick.function(checked, "attention_backward", (names, (None, "qkv", *_FAST.values()), 6, 8), contexts=False)


differentiate, differentiate_heads_first = _quickly(_checked_gradients), _quickly(_checked_heads_first)


def _check_accumulate(accumulate, out, q, k, v):
    if accumulate and out is None:
        raise ValueError("accumulate is True and out is None; out must hold fp32 tensors, which are added to")
    if accumulate and is_between(q, k, v):
        raise ValueError(
            f"accumulate is True and head dims are {q.shape[3]} and {v.shape[3]}; both must be multiples of 8 from 16 "
            f"on")


def _check_alone(lists, graph, gradients, accumulate):
    """Raises if lists of keys are given with what their gradients do not take."""
    if lists["key_indices"] is None:
        raise ValueError("key_counts is given without key_indices; give both")
    if graph is not None:
        raise ValueError(
            "key_indices is given and the call must go through attune's PyTorch op, which takes no lists of keys; call "
            "attention_backward() outside of torch.compile, dispatch modes and tensor subclasses")
    if gradients_asked(gradients) != "qkv" or flag("accumulate", accumulate):
        raise ValueError(
            f"key_indices is given, gradients is {gradients!r} and accumulate is {accumulate}; must be 'qkv' and "
            "False: over lists of keys all gradients are computed")


def check_ranks(q, k, v):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        tensors.check_rank(name, tensor, tensors.DIMENSIONS[tensors.ROWS])


@in_graphs("differentiate")
@untraced
@profiled
@with_keywords(OF_GRADIENTS)
def attention_backward(dout, q, k, v, o, lse, *, dlse=None, gradients="qkv", out=None, accumulate=False,
                       key_indices=None, key_counts=None, **choices):
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

    key_indices, key_counts: the lists of keys that attention_kvcache() was given, with q [batch, seqlen_q, ..] and k
    and v as its k_cache and v_cache [batch, seqlen_kv, ..]. An entry that names no key below seqlen_kv is skipped.
    Other keywords must then be scale, context and deterministic. If v is k[..., :n] itself, dk includes the gradient
    of v, and dv is None.

    Returns (dq, dk, dv), with None for each gradient that `gradients` does not name; or `out`, a tuple of the three.
    Each gradient has its tensor's shape and dtype, and the same memory order of axes, without gaps. Rows that see no
    key, and keys that no row sees, get 0.
    Biases, slopes and sinks take part in the scores; score_gradient() gives their own gradients. There are no second
    derivatives.

    PyTorch's autograd does all this for attention() of tensors that require gradients. Before a CUDA graph's capture,
    call prepare(attention_backward, ...).
    Raises ValueError or TypeError if arguments do not fit, and attune.Error if the library refuses the call."""
    given = dict(dlse=dlse, gradients=gradients, out=out, accumulate=accumulate, **choices)
    lists = dict(key_indices=key_indices, key_places=None, key_counts=key_counts)
    graph = needs_op(dout, q, k, v, o, lse, autocast=False, named=("dout", "q", "k", "v", "o", "lse"))
    if key_indices is not None or key_counts is not None:
        _check_alone(lists, graph, gradients, accumulate)
    elif graph is not None:
        return graph.differentiate(dout, q, k, v, o, lse, **given)
    refuse_gradients(
        (("dout", dout), ("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), ("dlse", dlse), *choices.items()))
    if key_indices is not None:
        return backward_over_lists(dict(dout=dout, q=q, k=k, v=v, o=o, lse=lse), dlse, lists, out, **choices)
    return attention_backward_checked(dout, q, k, v, o, lse, **given)
