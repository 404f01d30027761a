# SPDX-License-Identifier: Apache-2.0
"""attention(): what most programs call. It finds the plan for its operands, which is made once for all of the same shapes, strides and
choices, and runs it."""
import sys
from collections import namedtuple

from . import _quick as quick
from . import _tensors as tensors
from ._context import SCALES, context_of, refuse_capture
from ._copies import in_order_of, order_of, readable, strides_in_order
from ._dropout import seed_for
from ._flags import flag, flag_or_none, is_deterministic
from ._habits import explained, explains
from ._library import module
from ._operands import Layout
from ._padding import cut, is_between, widened_arguments
from ._problem import (causal_flag, check_beside, mask_name, problem_text, scale_blocks, softmax_scale, v_layout_of,
                       window_sides, word)
from ._scores import scores_of
from ._sdpa_operands import fitted, refuse_nested, subclass_of
from ._torch import capturing, in_graphs, needs_op, ordinal_of, records_gradients, refuse_gradients, stream_address, tell_written, untraced

# What is settled for operands of the same shapes, strides and choices.
_Call = namedtuple("_Call", "plan layout out_shape out_strides out_dtype lse_shape lse_dtype")


def _refuse_op(context, **operands):
    """Of a call that only the op can make, which takes no Context."""
    of_a_kind = [
        f"{name} is a {type(x).__name__}, " for name, x in operands.items()
        if type(x).__name__ not in ("Tensor", "Parameter")]
    raise ValueError(
        f"{''.join(of_a_kind[:1])}context is {context!r} and the call goes through attune's op; accepted there are "
        f"targets such as 'cpu:4', and None"
    )


def choices_of(mask, window, scale, is_causal, dtype=None, dtype_kv=None, out_dtype=None, accuracy="accurate",
               v_layout="rows", scale_block=0):
    """The keywords of problem_text() in one form each, which can be compared; what is not understood is refused."""
    return (mask if mask is None or type(mask) is str else mask_name(mask, False, 0, 0),
            None if window is None else window_sides(window), softmax_scale(scale), causal_flag(is_causal),
            None if dtype is None else tensors.dtype_text(dtype),
            None if dtype_kv is None else tensors.dtype_text(dtype_kv),
            None if out_dtype is None else tensors.dtype_text(out_dtype), word(
                "accuracy", accuracy), v_layout_of(v_layout), scale_blocks(scale_block))


def _check_out(out, q, out_dtype):
    """The dtype of out, which the problem gets for 8-bit operands."""
    check_beside("out", out, q)
    tensors.check_rank("out", out, tensors.DIMENSIONS[tensors.ROWS])
    found, own = tensors.dtype_text(out.dtype), tensors.dtype_text(q.dtype)
    if own in tensors.FP8_NAMES or own == "uint8":
        accepted = ("bf16", "fp16", "fp32") if out_dtype is None else (tensors.dtype_text(out_dtype),)
    else:
        accepted = (own,)
    if found not in accepted:
        raise ValueError(f"out is {found} and q is {own}; must be an out of {' or '.join(accepted)}")
    return found


def _strides_like(q, v):
    """Strides of a new o [batch, seqlen_q, num_heads, head_dim_v] whose axes stand in memory as q's do; None where that is the order of its shape."""
    shape = (q.shape[0], q.shape[2], q.shape[1], v.shape[3])
    batch, heads, rows, columns = strides_in_order(shape, order_of(q.transpose(1, 2)))
    found = batch, rows, heads, columns
    of_shape = strides_in_order((*q.shape[:3], v.shape[3]), range(4))
    return None if all(one == other or extent == 1 for one, other, extent in zip(found, of_shape, q.shape)) else found


def _empty(q, shape, strides, dtype):
    """A new o; strides: None, or those that it has."""
    return tensors.empty(q, shape, dtype) if strides is None else sys.modules["torch"].empty_strided(
        shape, strides, dtype=dtype, device=q.device)


def _make_call(context, q, k, v, out, o_strides, keywords, scores):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_beside(name, tensor, q)
        tensors.check_plain(name, tensor)
    refuse_capture(ordinal_of(tensors.target_of(q)), "attention")
    features = "" if scores is None else scores.text
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


def _call_of(context, q, k, v, out, o_strides, choices, keywords, scores):
    """The call that is kept, or a new one. o_strides: those of a new o, None for rows one after the other."""
    key = (tensors.signature("q", q), tensors.signature("k", k), tensors.signature("v", v),
           None if out is None else tensors.signature("out", out), choices, None if scores is None else scores.key)
    target = tensors.check_device("q", q)
    context = context_of(context, target)
    recent = context.recent  # reload() puts another in its place
    ordered = key if o_strides is None else (*key, o_strides)
    call = recent.find(ordered)
    if call is None and o_strides is not None and capturing(ordinal_of(target), stream_address(
            None, ordinal_of(target))):
        call = recent.find(key)  # what prepare() made: its o is copied into its order
    if call is None:
        call = _make_call(context, q, k, v, out, o_strides, keywords, scores)
        recent.keep(ordered, call)
    return call


def _checked(q, k, v, mask=None, window=None, scale=None, out=None, return_lse=False, *, is_causal=False, q_scale=None,
             k_scale=None, v_scale=None, scale_block=0, accuracy="accurate", v_layout="rows", out_dtype=None,
             dtype=None, dtype_kv=None, context=None, softcap=None, bias=None, relative_bias=None, alibi_slopes=None,
             mask_tensor=None, key_lengths=None, documents=None, prefix=None, chunk=None, score_mod=None, mask_mod=None,
             sinks=None, block_map=None, pad_head_dim=None, dropout_p=0.0, seed=None, offset=0, deterministic=None):
    """attention(), and how the C module may repeat it: see _quick.py."""
    return _computed(False, **locals())


def _computed(follows_q, q, k, v, mask, window, scale, out, return_lse, is_causal, q_scale, k_scale, v_scale,
              scale_block, accuracy, v_layout, out_dtype, dtype, dtype_kv, context, softcap, bias, relative_bias,
              alibi_slopes, mask_tensor, key_lengths, documents, prefix, chunk, score_mod, mask_mod, sinks, block_map,
              pad_head_dim, dropout_p, seed, offset, deterministic):
    """As _checked(). follows_q: a new o has its axes in memory as q has, wherever this function makes it."""
    given = locals()
    del given["follows_q"]
    if deterministic is not None:
        is_deterministic(deterministic)  # refuses what is no answer; gradients alone ask
    flag_or_none("pad_head_dim", pad_head_dim)
    return_lse = flag("return_lse", return_lse)
    graph = needs_op(q, k, v)
    if graph is not None:
        if context is not None and not isinstance(context, str):
            _refuse_op(context, q=q, k=k, v=v)
        return graph.attend(**given), None
    keywords = dict(mask=mask, window=window, scale=scale, is_causal=is_causal, dtype=dtype, dtype_kv=dtype_kv,
                    out_dtype=out_dtype, accuracy=accuracy, v_layout=v_layout, scale_block=scale_block)
    scales = (q_scale, k_scale, v_scale)
    if out is None and records_gradients(q, k, v, bias, relative_bias, alibi_slopes, sinks):
        from ._train import train
        return train({**given, "return_lse": return_lse}), None
    refuse_gradients(zip(("q", "k", "v", "out", *SCALES, "bias", "relative_bias", "alibi_slopes", "sinks"),
                         (q, k, v, out, *scales, bias, relative_bias, alibi_slopes, sinks)))
    if is_between(q, k, v):
        return cut(attention(**widened_arguments(given)), v, out, return_lse), None
    scores = scores_of(softcap=softcap, bias=bias, relative_bias=relative_bias, alibi_slopes=alibi_slopes,
                       mask_tensor=mask_tensor, key_lengths=key_lengths, documents=documents, prefix=prefix,
                       chunk=chunk, score_mod=score_mod, mask_mod=mask_mod, sinks=sinks, block_map=block_map,
                       dropout_p=dropout_p, seed=seed_for(q, dropout_p, seed) if dropout_p else None, offset=offset)
    if out is None and scores is not None and scores.learned():
        from ._train import train
        return train({**given, "return_lse": return_lse}), None
    o_strides = _strides_like(q, v) if follows_q and len(q.shape) == len(v.shape) == 4 else None
    call = _call_of(context, q, k, v, out, o_strides, choices_of(**keywords), keywords, scores)
    o = _empty(q, call.out_shape, call.out_strides, call.out_dtype) if out is None else out
    lse = tensors.empty(q, call.lse_shape, call.lse_dtype) if return_lse else None
    stream = stream_address(None, call.plan.ordinal)
    operands = call.plan.bind(call.layout, q, k, v, o, lse, scales, stream, fresh=out is None)
    kept = None if scores is None else scores.give(operands, call.plan)  # lives until the call is enqueued
    call.plan.enqueue(operands, stream)
    result = (o, lse) if return_lse else o
    if score_mod is not None or mask_mod is not None or block_map is not None or (dropout_p and
                                                                                  not tensors.is_torch(seed)):
        return result, None  # a seed that is a number is seldom the same again
    return result, lambda **shown: quick.recipe_of_attention(call, operands, given, scores, kept, stream, **shown)


@in_graphs("attend")
def attention(q, k, v, mask=None, window=None, scale=None, out=None, return_lse=False, **choices):
    """softmax(scale * q k^T + mask) v, on the device that holds the tensors. PyTorch's autograd gets gradients of q, k,
    v, bias, relative_bias, alibi_slopes, sinks and what score_mod reads, once.

    q: [batch, seqlen_q, num_heads_q, head_dim], k: [batch, seqlen_kv, num_heads_kv, head_dim], v: [batch, seqlen_kv, num_heads_kv,
    head_dim_v], of PyTorch or NumPy and one dtype: bf16, fp16 or fp32. num_heads_kv divides num_heads_q. PyTorch's own
    scaled_dot_product_attention has [batch, num_heads, seqlen, head_dim]: give x.transpose(1, 2) of such tensors, which copies nothing.
    Head dims are multiples of 8 from 16 to 576, of v to 512 (8 bits: to 256). Others below that are computed in copies with columns of zeros,
    and o is a view of a wider tensor: a warning says so once, pad_head_dim=True says that you know, False refuses.
    Tensors begin at multiples of 16 bytes, are contiguous in head_dim, and their other strides are multiples of 16 bytes, or 0.

    mask: None or "none"; "causal_top_left": query i sees keys 0 to i, as PyTorch's is_causal; "causal_bottom_right": the last query sees
    all keys, as in FlashAttention; "causal" or is_causal=True: either, for as many queries as keys alone.
    window: (left, right), keys visible on each side of the diagonal, None for all: (1023, 0) is a causal sliding window of 1024 keys.
    The diagonal is that of the mask; without one it ends at the last key. scale: a number, by default 1 / sqrt(head_dim).

    Returns o [batch, seqlen_q, num_heads_q, head_dim_v], or `out`; with return_lse (o, lse), lse the natural logarithm of each row's sum,
    fp32 [batch, num_heads_q, seqlen_q]. A row that sees no key has o = 0 and lse = -inf.

    8-bit tensors (quantise() makes them): q of e4m3, k and v of e4m3 or e5m2; NumPy's are uint8 with dtype (and dtype_kv) by name.
    q_scale, k_scale, v_scale: their factors, required: a number (1.0: values as they stand) or float32 of shape [], [batch, heads] or, with
    scale_block rows sharing one, [batch, heads, blocks]; scale_block may be a pair (of q, of k and v). accuracy: accurate or fast.
    v_layout: transposed for v of shape [batch, num_heads_kv, head_dim_v, seqlen_kv]. out_dtype: bf16 (default with PyTorch) or fp16.

    fp32 on a GPU: accuracy="fast" multiplies in tf32 (errors of about 3e-4), "split" takes each number as two of tf32 (about 1e-6; NaN
    where an operand is infinite), "accurate" is fp32 arithmetic by the slow reference kernel. CPUs compute in fp32 whatever it says.

    Score features, applied in this order, on tensors beside q; an axis of 1, and missing axes in front, repeat:
    softcap: scores become softcap * tanh(score / softcap). bias: fp32, bf16 or fp16 [batch, num_heads_q, seqlen_q, seqlen_kv] is added; at
    or below -1e30 it hides the key. relative_bias: [num_heads_q, seqlen_q + seqlen_kv - 1] is added by key - row + seqlen_q - 1.
    alibi_slopes: fp32 [batch, num_heads_q] (alibi_slopes() makes them): less slope * distance from the diagonal. mask_tensor: bool [batch,
    num_heads_q, seqlen_q, seqlen_kv], False hides. key_lengths: int32 [batch], later keys are hidden. documents: int32 ids [batch, seqlen],
    or a pair (of rows, of keys): keys of other documents are hidden. prefix: int32 [batch], causal, but all rows see so many first keys.
    chunk: keys of other chunks of so many positions are hidden. sinks: [num_heads_q], logits that join the denominator and lse.
    block_map: what attune.block_map makes: of these masks, built once for many calls, or a mask by itself, of blocks (block-sparse).
    score_mod, mask_mod: a function as of torch.nn.attention.flex_attention, (score, b, h, q_idx, kv_idx) or (b, h, q_idx, kv_idx), text of
    the score language, or what attune.score_mod() and attune.mask_mod() made of them; score_mod stands between softcap and bias.

    dropout_p: of the softmax's weights so many are dropped, the others multiplied by 1 / (1 - dropout_p), of dropout_p to the nearest 1/256
    (dropout_rate()). lse is that without dropout. seed: a whole number, or an int64 tensor of one element on q's device, which a replayed graph
    reads anew; None: PyTorch's generator of that device draws one for each call. offset: likewise, of calls that share a seed: any
    other drops other places. Equal seeds and offsets drop the same in every kernel and on every device; dropout_mask() says what.

    deterministic: of gradients, as of attention_backward(): None does as torch.use_deterministic_algorithms() says when the backward runs. What this
    function returns has the same bits in every run.

    context: an attune.Context, or its target: "cpu:4" takes 4 threads, where by default all cores that the process may use are taken
    (torch.set_num_threads and OMP_NUM_THREADS have no effect). Inside a CUDA graph's capture: call prepare() before."""
    if out is not None or choices:
        try:
            result = _attend(q, k, v, mask, window, scale, out, return_lse, **choices)
        except TypeError as error:
            raise explained(error, choices) from None
        if out is not None:
            tell_written(out)
        return result
    return _attend(q, k, v, mask, window, scale, out, return_lse)


_attend = quick.behind(attention, _checked)


_NAMES, _DEFAULTS, _REQUIRED, _ = quick.parameters_of(_checked)
_FILLED = dict(zip(_NAMES[_REQUIRED:], _DEFAULTS))


def _of_adapter(follows_q, q, k, v, *rest, **choices):
    """As _checked(), of [batch, num_heads, seqlen, head_dim] that kernels read as they stand. Returns o [batch, seqlen_q, num_heads, head_dim_v]."""
    given = {**_FILLED, **dict(zip(_NAMES[_REQUIRED:], rest)), **choices}
    return _computed(follows_q, *(x.transpose(1, 2) for x in (q, k, v)), **given)


def _shown(result, change):
    """What attention() returned, with the o that change() makes of its own."""
    return (change(result[0]), result[1]) if isinstance(result, tuple) else change(result)


def _heads_first(*arguments, **choices):
    """As _checked(), of operands and o that have their heads before their rows, and may be any that PyTorch's SDPA takes. o's memory has the order of
    query's axes."""
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
    from ._train import train_heads_first
    result = train_heads_first(*fitted(q, k, v), *rest, **choices)
    return _shown(result, lambda o: in_order_of(q, o))


def _from_heads_first(*arguments, **choices):
    """As _checked(), of operands that have their heads before their rows and lie in memory in any way; o has its rows first and no gaps."""
    q, k, v, *rest = arguments
    refuse_nested(q, k, v)
    fit = [readable(x) if x.dim() == 4 else x for x in (q, k, v)]
    result, recipe = _of_adapter(False, *fit, *rest, **choices)
    is_known = recipe is not None and all(one is other for one, other in zip(fit, (q, k, v)))
    return _shown(result, lambda o: o.contiguous()), recipe if is_known else None


def _entry(checked, name, train=None):
    """For adapters, whose tensors of PyTorch are [batch, num_heads, seqlen, head_dim]: arguments of attention(), q, k and v by place,
    without out. Of tensors of known calls no views are made. torch.compile traces _graph.<name>(). train: what
    calls that autograd records take at once."""
    call = quick.without_recipe(checked)
    if module is not None:
        call = quick.function(checked, "attention", quick.parameters_of(_checked), contexts=False)

    @in_graphs(name)
    def entry(q, k, v, mask=None, scale=None, **choices):
        if train is not None and q.requires_grad and records_gradients(q):
            return train(q, k, v, mask, scale=scale, **choices)
        if choices:
            return call(q, k, v, mask, scale=scale, **choices)
        return call(q, k, v, mask, None, scale)

    entry._torchdynamo_disable = True
    return entry


attend_heads_first = _entry(_heads_first, "attend_heads_first", untraced(_train_heads_first))
attend_from_heads_first = _entry(_from_heads_first, "attend_from_heads_first")


@explains
def prepare(q, k, v, mask=None, window=None, scale=None, out=None, return_lse=False, *, is_causal=False, q_scale=None,
            k_scale=None, v_scale=None, scale_block=0, accuracy="accurate", v_layout="rows", out_dtype=None, dtype=None,
            dtype_kv=None, context=None, softcap=None, bias=None, relative_bias=None, alibi_slopes=None,
            mask_tensor=None, key_lengths=None, documents=None, prefix=None, chunk=None, score_mod=None, mask_mod=None,
            sinks=None, block_map=None, pad_head_dim=None, dropout_p=0.0, seed=None, offset=0, deterministic=None):
    """All that attention() needs with these arguments, made ahead: the kernel is compiled and loaded, and the workspace is there that
    runs inside a CUDA graph's capture use. Computes nothing. Returns the Plan; calls that graphs replay at the same time need
    Plan.run() with workspaces of their own."""
    given = locals()
    flag("return_lse", return_lse)
    if is_between(q, k, v):
        return prepare(**widened_arguments(given))
    keywords = dict(mask=mask, window=window, scale=scale, is_causal=is_causal, dtype=dtype, dtype_kv=dtype_kv,
                    out_dtype=out_dtype, accuracy=accuracy, v_layout=v_layout, scale_block=scale_block)
    scores = scores_of(softcap=softcap, bias=bias, relative_bias=relative_bias, alibi_slopes=alibi_slopes,
                       mask_tensor=mask_tensor, key_lengths=key_lengths, documents=documents, prefix=prefix,
                       chunk=chunk, score_mod=score_mod, mask_mod=mask_mod, sinks=sinks, block_map=block_map,
                       dropout_p=dropout_p, seed=0)
    call = _call_of(context, q, k, v, out, None, choices_of(**keywords), keywords, scores)
    call.plan.prepare()
    return call.plan
