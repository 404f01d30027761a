# SPDX-License-Identifier: Apache-2.0
"""attention(): finds the plan for its operands, and runs it. Calls with equal shapes, strides and choices share one
plan."""
import sys
from collections import namedtuple

from ..core import tensors, torch_state
from ..core.copies import in_order_of, order_of, readable, strides_in_order
from ..core.flags import flag, flag_or_none, is_deterministic
from ..core.library import module
from ..core.operands import Layout
from ..core.preparing import note
from ..core.problem import (causal_flag, check_beside, mask_name, problem_text, scale_blocks, softmax_scale,
                            v_layout_of, window_sides, word)
from ..core.torch_state import (capturing, in_graphs, needs_op, ordinal_of, profiled, records_gradients,
                                refuse_gradients, stream_address, untraced)
from ..score.dropout import rate_of, seed_for
from ..score.features import LEARNED
from ..score.scores import scores_of
from . import quick
from .call import check_new, key_of
from .context import SCALES, context_of
from .heads_first import fitted, refuse_nested, subclass_of
from .padding import cut, is_between, widened_arguments
from .public import defaults_of, public

# Keywords of problem_text().
OF_PROBLEM = ("mask", "window", "scale", "is_causal", "dtype", "dtype_kv", "out_dtype", "accuracy", "v_layout",
               "scale_block")
# Everything that depends only on the operands' shapes, strides and choices.
_Call = namedtuple("_Call", "plan layout out_shape out_strides out_dtype lse_shape lse_dtype")


def _refuse_op(context, **operands):
    """Raises for a call that must go through attune's PyTorch op, because the op takes no Context."""
    of_a_kind = [
        f"{name} is a {type(x).__name__}, " for name, x in operands.items()
        if type(x).__name__ not in ("Tensor", "Parameter")]
    raise ValueError(
        f"{''.join(of_a_kind[:1])}context is {context!r} and the call goes through attune's op; context must be None "
        f"or a target such as 'cpu:4'"
    )


def choices_of(mask, window, scale, is_causal, dtype=None, dtype_kv=None, out_dtype=None, accuracy="accurate",
               v_layout="rows", scale_block=0):
    """Returns the keywords of problem_text() in a normal form, so that they can be compared. Raises if a value is not
    valid."""
    return (mask if mask is None or type(mask) is str else mask_name(mask, False, 0, 0),
            None if window is None else window_sides(window), softmax_scale(scale), causal_flag(is_causal),
            *[None if each is None else tensors.dtype_text(each) for each in (dtype, dtype_kv, out_dtype)],
            word("accuracy", accuracy), v_layout_of(v_layout), scale_blocks(scale_block))


def _check_out(out, q, out_dtype):
    """Returns the dtype of out, which becomes the problem's dtype_o. Raises if it does not fit q and out_dtype."""
    check_beside("out", out, q)
    tensors.check_rank("out", out, tensors.DIMENSIONS[tensors.ROWS])
    found, own = tensors.dtype_text(out.dtype), tensors.dtype_text(q.dtype)
    if own in tensors.FP8_NAMES or own == "uint8":
        accepted = ("bf16", "fp16", "fp32") if out_dtype is None else (tensors.dtype_text(out_dtype),)
    else:
        accepted = (own,)
    if found not in accepted:
        raise ValueError(f"out is {found} and q is {own}; out must be {' or '.join(accepted)}")
    return found


def _strides_like(q, v):
    """Returns strides for a new o [batch, seqlen_q, num_heads, head_dim_v] whose axes have the same order in memory as
    q's. None if a contiguous o has that order."""
    shape = (q.shape[0], q.shape[2], q.shape[1], v.shape[3])
    batch, heads, rows, columns = strides_in_order(shape, order_of(q.transpose(1, 2)))
    found = batch, rows, heads, columns
    of_shape = strides_in_order((*q.shape[:3], v.shape[3]), range(4))
    return None if all(one == other or extent == 1 for one, other, extent in zip(found, of_shape, q.shape)) else found


def _empty(q, shape, strides, dtype):
    """Returns a new o with these strides; None: contiguous."""
    return tensors.empty(q, shape, dtype) if strides is None else sys.modules["torch"].empty_strided(
        shape, strides, dtype=dtype, device=q.device)


def _make_call(context, q, k, v, out, o_strides, keywords, scores, wants_logits):
    check_new("attention", dict(q=q, k=k, v=v))
    features = ("" if scores is None else scores.text) + (",max_logits=1" if wants_logits else "")
    text = problem_text(q, k, v, **keywords) + features
    if out is not None:
        keywords = {**keywords, "out_dtype": _check_out(out, q, keywords["out_dtype"])}
        text = problem_text(q, k, v, **keywords) + features
    order = v_layout_of(keywords["v_layout"])
    out_dtype = text.partition(",dtype_o=")[2].partition(",")[0] or tensors.dtype_text(q.dtype)
    o_shape = (*q.shape[:3], v.shape[3 if order == tensors.ROWS else 2])
    o_dtype, lse_dtype = tensors.native_dtype(q, out_dtype), tensors.native_dtype(q, "fp32")
    o = _empty(q, o_shape, o_strides, o_dtype) if out is None else out
    lse = tensors.empty(q, (q.shape[0], q.shape[2], q.shape[1]), lse_dtype)
    named = (("q", q, tensors.ROWS), ("k", k, tensors.ROWS), ("v", v, order), ("out", o, tensors.ROWS))
    programs = () if scores is None else scores.programs()
    plan = context.plan_with_strides(text, [tensors.layout_strides(*of) for of in named], programs)
    layout = Layout(plan.problem, plan.target, q, k, v, o, lse, "out")
    return _Call(plan, layout, o_shape, o_strides, o_dtype, tuple(lse.shape), lse_dtype)


def _call_of(context, q, k, v, out, o_strides, choices, keywords, scores, wants_logits):
    """Returns the kept call for these operands, or makes one. o_strides: strides of a new o; None: contiguous."""
    key = *key_of(dict(q=q, k=k, v=v, out=out)), choices, wants_logits, None if scores is None else scores.key
    target = tensors.check_device("q", q)
    context = context_of(context, target)
    recent = context.recent  # reload() replaces it
    ordered = key if o_strides is None else (*key, o_strides)
    call = recent.find(ordered)
    if call is None and o_strides is not None and capturing(ordinal_of(target), stream_address(
            None, ordinal_of(target))):
        call = recent.find(key)  # made by prepare(): its o is copied into the wanted order
    if call is None:
        call = _make_call(context, q, k, v, out, o_strides, keywords, scores, wants_logits)
        recent.keep(ordered, call)
    note(call.plan)
    return call


def _computed(follows_q, given):
    """Returns attention()'s result for `given`, all of its arguments by name, and the recipe by which the C module can
    repeat the call (see quick.py), or None. follows_q: a new o has the same order of axes in memory as q, if this
    function makes it."""
    q, k, v, out, context, dropout_p = (given[name] for name in ("q", "k", "v", "out", "context", "dropout_p"))
    if given["deterministic"] is not None:
        is_deterministic(given["deterministic"])  # refuses other values; only gradients use it
    flag_or_none("pad_head_dim", given["pad_head_dim"])
    return_lse, wants_logits = (flag(name, given[name]) for name in ("return_lse", "return_max_logits"))
    if type(dropout_p) is not float and dropout_p is not None:
        given["dropout_p"] = dropout_p = rate_of(dropout_p)
    graph = needs_op(q, k, v)
    if graph is not None:
        if context is not None and not isinstance(context, str):
            _refuse_op(context, q=q, k=k, v=v)
        return graph.attend(**given), None
    learned = {name: given[name] for name in LEARNED}
    if out is None and records_gradients(q, k, v, *learned.values()):
        return torch_state.load_train().train({**given, "return_lse": return_lse}), None
    scales = tuple(given[name] for name in SCALES)
    refuse_gradients((("q", q), ("k", k), ("v", v), ("out", out), *zip(SCALES, scales), *learned.items()))
    if is_between(q, k, v):
        return cut(attention(**widened_arguments(given)), v, out), None
    scores = scores_of({**given, "seed": seed_for(q, dropout_p, given["seed"])} if dropout_p else given)
    if out is None and scores is not None and scores.learned():
        return torch_state.load_train().train({**given, "return_lse": return_lse}), None
    keywords = {name: given[name] for name in OF_PROBLEM}
    o_strides = _strides_like(q, v) if follows_q and len(q.shape) == len(v.shape) == 4 else None
    call = _call_of(context, q, k, v, out, o_strides, choices_of(**keywords), keywords, scores, wants_logits)
    o = _empty(q, call.out_shape, call.out_strides, call.out_dtype) if out is None else out
    lse = tensors.empty(q, call.lse_shape, call.lse_dtype) if return_lse else None
    stream = stream_address(None, call.plan.ordinal)
    operands = call.plan.bind(call.layout, q, k, v, o, lse, scales, stream, fresh=out is None)
    kept = None if scores is None else scores.give(operands, call.plan)  # lives until the call is enqueued
    logits = None
    if wants_logits:
        logits = tensors.empty(q, (q.shape[2],), call.lse_dtype)
        operands.o_scale = module.Scale(tensors.address("max_logits", logits, True), 0, 1, 0, 1)
    call.plan.enqueue(operands, stream)
    result = (o, *(x for x in (lse, logits) if x is not None)) if return_lse or wants_logits else o
    if scores is not None and not scores.may_be_repeated() or dropout_p and not tensors.is_torch(given["seed"]):
        return result, None  # a number as seed rarely repeats
    return result, lambda **shown: quick.recipe_of_attention(call, operands, given, scores, kept, stream, **shown)


@public("attend")
def attention(q, k, v, mask=None, window=None, scale=None, out=None, return_lse=False, *, is_causal=False, q_scale=None,
              k_scale=None, v_scale=None, scale_block=0, accuracy="accurate", v_layout="rows", out_dtype=None,
              dtype=None, dtype_kv=None, context=None, softcap=None, bias=None, relative_bias=None, alibi_slopes=None,
              mask_tensor=None, key_lengths=None, documents=None, prefix=None, chunk=None, score_mod=None,
              mask_mod=None, sinks=None, block_map=None, pad_head_dim=None, dropout_p=0.0, seed=None, offset=0,
              deterministic=None, return_max_logits=False):
    """Returns softmax(scale * q k^T + mask) v, computed on the tensors' device.

    PyTorch's autograd gets first derivatives with respect to q, k, v, bias, relative_bias, alibi_slopes, sinks and the
    tensors that score_mod reads.

    q: [batch, seqlen_q, num_heads_q, head_dim], k: [batch, seqlen_kv, num_heads_kv, head_dim], v: [batch, seqlen_kv,
    num_heads_kv, head_dim_v], of PyTorch or NumPy. All have one dtype: bf16, fp16 or fp32. num_heads_kv divides
    num_heads_q.
    PyTorch's own scaled_dot_product_attention has [batch, num_heads, seqlen, head_dim]: give x.transpose(1, 2) of such
    tensors, which copies nothing.
    Head dims are multiples of 8 from 16 to 576; v's at most 512 (8 bits: at most 256). Other head dims below these
    limits are computed in copies padded with zero columns, and o is a view of a wider tensor. A warning says so once;
    pad_head_dim=True silences it, False refuses such calls.
    Tensors begin at multiples of 16 bytes and are contiguous in head_dim. Their other strides are multiples of 16
    bytes, or 0.

    mask: None or "none": all keys are visible. "causal_top_left": query i sees keys 0 to i, as with PyTorch's
    is_causal. "causal_bottom_right": the last query sees all keys, as in FlashAttention. "causal" or is_causal=True:
    either of the two; needs as many queries as keys.
    window: (left, right), the number of keys visible on each side of the diagonal, None for all. (1023, 0) is a causal
    sliding window of 1024 keys. The diagonal is the mask's; without a mask it ends at the last key.
    scale: a number, by default 1 / sqrt(head_dim).

    Returns o [batch, seqlen_q, num_heads_q, head_dim_v], or `out`. With return_lse returns (o, lse); lse is the natural
    logarithm of each row's sum of exponentials, fp32 [batch, num_heads_q, seqlen_q]. A row that sees no key has o = 0
    and lse = -inf.
    return_max_logits: the result has one more tensor at its end: max_logits, fp32 [num_heads_q], for QK-Clip. It is
    the maximum of scale * q k^T over all rows of all batch entries and the keys that they see, without sinks; -inf if
    they see none. Refused with 8-bit tensors, and with softcap, score_mod, biases and slopes, which change scores. It
    has no gradient.
    Raises ValueError or TypeError if arguments do not fit, and attune.Error if the library refuses the call.

    8-bit tensors (quantise() makes them): q is e4m3; k and v are e4m3 or e5m2. NumPy arrays are uint8, with dtype (and
    dtype_kv) by name.
    q_scale, k_scale, v_scale: their factors, required. Each is a number (1.0: values are used unchanged) or float32 of
    shape [] or [batch, heads], or [batch, heads, blocks] if scale_block rows share a factor. scale_block may be a pair
    (for q, for k and v). accuracy: "accurate" or "fast".
    v_layout: "transposed" if v has shape [batch, num_heads_kv, head_dim_v, seqlen_kv]. out_dtype: bf16 (PyTorch's
    default) or fp16.

    fp32 on a GPU: accuracy="fast" multiplies in tf32 (errors of about 3e-4). "split" writes each number as the sum of
    two tf32 numbers (errors of about 1e-6; NaN where an operand is infinite). "accurate" computes in fp32 with the slow
    reference kernel. CPUs always compute in fp32.

    Score features apply in this order. Their tensors are on q's device. Axes of size 1 and missing leading axes
    broadcast.
    softcap: scores become softcap * tanh(score / softcap).
    score_mod, mask_mod: a function as for torch.nn.attention.flex_attention, (score, b, h, q_idx, kv_idx) or (b, h,
    q_idx, kv_idx), or text of the score language, or a result of attune.score_mod() or attune.mask_mod(). score_mod
    applies between softcap and bias.
    bias: fp32, bf16 or fp16 [batch, num_heads_q, seqlen_q, seqlen_kv], is added. A bias of -1e30 or below hides the
    key.
    relative_bias: [num_heads_q, seqlen_q + seqlen_kv - 1], is added; the last index is key - row + seqlen_q - 1.
    alibi_slopes: fp32 [batch, num_heads_q] (alibi_slopes() makes them); slope * distance from the diagonal is
    subtracted.
    mask_tensor: bool [batch, num_heads_q, seqlen_q, seqlen_kv]; False hides the key.
    key_lengths: int32 [batch]; keys from this index on are hidden.
    documents: int32 ids [batch, seqlen], or a pair (of rows, of keys); keys of other documents are hidden.
    prefix: int32 [batch]; a causal mask, except that all rows see this many first keys.
    chunk: positions per chunk; keys of other chunks are hidden.
    sinks: [num_heads_q], logits that are added to the denominator and to lse.
    block_map: a result of attune.block_map: either these masks' map, built once for many calls, or a block-sparse mask
    itself.

    dropout_p: the share of softmax weights that are dropped, to the nearest 1/256 (dropout_rate()). The others are
    multiplied by 1 / (1 - dropout_p). lse is the value without dropout.
    seed: a whole number, or an int64 tensor of one element on q's device, which a replayed graph reads anew. None:
    PyTorch's generator of that device draws one per call. offset: likewise, for calls that share a seed; another offset
    drops other weights. Equal seeds and offsets drop the same weights in every kernel and on every device;
    dropout_mask() returns them.

    deterministic: for the gradients, as in attention_backward(). None follows torch.use_deterministic_algorithms() at
    the time of the backward. The result of this function has the same bits in every run.

    context: an attune.Context or its target. "cpu:4" takes 4 threads. By default a CPU call takes all cores that the
    process may use (torch.set_num_threads and OMP_NUM_THREADS have no effect).
    Before a CUDA graph's capture, call prepare(attention, ...) with the same arguments."""
    return _computed(False, locals())


_checked, _attend, DEFAULTS = attention.__wrapped__, attention.quick, defaults_of(attention)
# Keywords of the gradients' functions, with their defaults: these give the same values as in the forward call.
OF_GRADIENTS = {
    name: default
    for name, default in DEFAULTS.items()
    if name not in ("out", "return_lse", "return_max_logits", "dtype", "dtype_kv", "out_dtype", "v_layout",
                    "scale_block", *SCALES)}


def _of_adapter(follows_q, q, k, v, *rest, **choices):
    """Implements _checked() for [batch, num_heads, seqlen, head_dim] that kernels can read in place. Returns o [batch,
    seqlen_q, num_heads, head_dim_v] and the recipe."""
    rows = {name: x.transpose(1, 2) for name, x in zip("qkv", (q, k, v))}
    return _computed(follows_q, {**rows, **DEFAULTS, **dict(zip(DEFAULTS, rest)), **choices})


def _shown(result, change):
    """Returns attention()'s result with change(o) in place of o."""
    return (change(result[0]), *result[1:]) if isinstance(result, tuple) else change(result)


def _heads_first(*arguments, **choices):
    """Implements _checked() for q, k, v and o [batch, num_heads, seqlen, head_dim], for all operands that PyTorch's
    SDPA takes. The axes of o have the same order in memory as query's."""
    q, k, v, *rest = arguments
    if records_gradients(q, k, v):
        return _train_heads_first(q, k, v, *rest, **choices), None
    fit = fitted(q, k, v)
    result, recipe = _of_adapter(True, *fit, *rest, **choices)
    shown = _shown(result, lambda o: in_order_of(q, o.transpose(1, 2)))
    kind = subclass_of(q, k, v, choices.get("bias"), choices.get("mask_tensor"))
    if kind is not None and not isinstance(shown, tuple):
        shown = shown.as_subclass(kind)
    is_known = recipe is not None and all(one is other for one, other in zip(fit, (q, k, v)))
    return shown, (lambda: recipe(heads_first=True)) if is_known else None


def _train_heads_first(q, k, v, *rest, **choices):
    result = torch_state.load_train().train_heads_first(*fitted(q, k, v), *rest, **choices)
    return _shown(result, lambda o: in_order_of(q, o))


def _from_heads_first(*arguments, **choices):
    """Implements _checked() for q, k and v [batch, num_heads, seqlen, head_dim] in any memory order. Returns a
    contiguous o [batch, seqlen_q, num_heads, head_dim_v]."""
    q, k, v, *rest = arguments
    refuse_nested(q, k, v)
    fit = [readable(x) if x.dim() == 4 else x for x in (q, k, v)]
    result, recipe = _of_adapter(False, *fit, *rest, **choices)
    is_known = recipe is not None and all(one is other for one, other in zip(fit, (q, k, v)))
    return _shown(result, lambda o: o.contiguous()), recipe if is_known else None


def _entry(checked, name, train=None):
    """Returns the function that adapters call with PyTorch tensors [batch, num_heads, seqlen, head_dim].

    It takes attention()'s arguments without out; q, k and v are positional. Known calls make no views of the tensors.
    torch.compile traces torch/graph.py's <name>(). train: called directly if autograd records the call."""
    call = quick.function(profiled(checked, "attention"), "attention", quick.parameters_of(_checked), contexts=False)

    @in_graphs(name)
    def entry(q, k, v, mask=None, scale=None, **choices):
        if train is not None and q.requires_grad and records_gradients(q):
            return train(q, k, v, mask, scale=scale, **choices)
        if choices:
            return call(q, k, v, mask, scale=scale, **choices)
        return call(q, k, v, mask, None, scale)

    entry._torchdynamo_disable = True
    return entry


attend_heads_first = _entry(_heads_first, "attend_heads_first", untraced(profiled(_train_heads_first, "attention")))
attend_from_heads_first = _entry(_from_heads_first, "attend_from_heads_first")
