# SPDX-License-Identifier: Apache-2.0
"""attune's functions as calls of its PyTorch ops: torch.compile traces these instead, and FakeTensors and dispatch
modes get them. Written in code that torch.compile can trace. Called through core/torch_state.py. Importing it defines
the ops, as importing any module of this room does.

The functions are attention(), attention_backward(), quantise(), merge(), attention_kvcache(), append_kv() and
cascade()."""
import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..core import tensors
from ..core.copies import in_order_of, readable
from ..core.flags import flag, flag_or_none, refuse_flag
from ..core.preparing import copied
from ..core.problem import cache_mask, causal_flag, check_beside, softmax_scale, v_layout_of
from ..core.torch_state import marked_constant, settled as settled_here
from ..score.block_maps import use_of
from ..score.dropout import drawn_seed, rate_of, signed
from ..score.programs import BoundMod, Mod, bind, refuse_stop
from ..score.features import MASKS, NUMBERS, OVER_CACHES, TENSORS
from ..score.scores import scores_of
from ..ops.append import kind_of_factors
from ..ops.cache_factors import columns_of_factor
from ..ops.attention import DEFAULTS
from ..ops.backward import gradients_asked
from ..ops.cascade import calls_of, check_levels
from ..ops.context import SCALES
from ..ops.heads_first import fitted, refuse_nested
from .cache_ops import new_lse
from .spec import spec

_NUMBERS = tuple(feature.keyword for feature in NUMBERS)
_MASKS = tuple(name for name in MASKS if name != "mask_mod")


def _text(has_masks, hides, wants_masks, dtype, dtype_kv, score_mod, mask_mod, **given):
    """Returns the spec, a constant of the graph."""
    if dtype is not None or dtype_kv is not None:
        raise ValueError("dtype and dtype_kv name the types of uint8 arrays; in a graph give PyTorch's float8 tensors")
    if hides is not None and not has_masks and mask_mod is None:
        if wants_masks:
            raise ValueError(
                "block_map describes masks, and no mask is given; give the masks that it was made from too")
        hides = True
    return _spec_of(score_mod, mask_mod, hides=hides, **given)


def _spec_of(score_mod, mask_mod, **given):
    for kind, program in (("score_mod", score_mod), ("mask_mod", mask_mod)):
        if program is None or isinstance(program, str):
            continue
        bound = bind(kind, program)
        if bound.captures or bound.scalars:
            raise ValueError(
                f"{kind} is a function that reads "
                f"{', '.join(label for label, _ in (*bound.captures.values(), *bound.scalars.values()))}; "
                f"in a graph it must be a result of attune.{kind}(), called outside")
    return spec(score_mod=score_mod, mask_mod=mask_mod, **given)


_text._dynamo_marked_constant = _spec_of._dynamo_marked_constant = True  # torch.compiler.assume_constant_result


@marked_constant
def _stops_score(function):
    return "score" in bind("score_mod", function).stopped


def _now(kind, program):
    """Returns the program with its current tensors and numbers. Inside torch.compile returns the given Mod: a graph
    keeps the tensors and numbers from the time when the Mod was made."""
    if program is None or isinstance(program, BoundMod) or torch.compiler.is_dynamo_compiling():
        return program
    if torch._C._len_torch_dispatch_stack() == 0:
        return BoundMod(bind(kind, program))
    with _disable_current_modes():  # modes shall see only the op
        return BoundMod(bind(kind, program))


def _refuse_stopped_score(score_mod):
    """Raises if the function stops the score's gradient and gradients of q or k are asked for."""
    if score_mod is None or isinstance(score_mod, str):
        return
    if score_mod.graph_stops_score if isinstance(score_mod, Mod) else _stops_score(score_mod):
        refuse_stop("the score", "q and k")


def _refuse_stops(q, k, score_mod):
    """Raises if the function stops gradients that a recorded call needs."""
    if not torch.is_grad_enabled():
        return
    if q.requires_grad or k.requires_grad:
        _refuse_stopped_score(score_mod)
    for label, tensor in score_mod.graph_stops if isinstance(score_mod, Mod) else ():
        if tensor.requires_grad:
            refuse_stop(label, label)


def _parts(score_mod, mask_mod):
    """Returns the programs' texts for the spec, their tensors and their numbers."""
    captures, scalars = [], []
    if isinstance(score_mod, Mod):
        captures, scalars, score_mod = (
            captures + score_mod.graph_captures, scalars + score_mod.graph_scalars, score_mod.graph_text)
    if isinstance(mask_mod, Mod):
        captures, scalars, mask_mod = (
            captures + mask_mod.graph_captures, scalars + mask_mod.graph_scalars, mask_mod.graph_text)
    return score_mod, mask_mod, captures, scalars


def _factor(q, value):
    """Returns a number in the op's form: a tensor."""
    return value if value is None or isinstance(value, torch.Tensor) else torch.full(
        (), float(value), dtype=torch.float32, device=q.device)


def _keywords(q, k, **given):
    """Returns the ops' keywords for attention()'s."""
    for name in given:
        if name not in DEFAULTS:
            raise TypeError(f"attention() got an unexpected keyword argument {name!r}")
    given = {**DEFAULTS, **given}
    block_map, has_masks = given["block_map"], any([given[name] is not None for name in _MASKS])
    hides, wants_masks = (None, False) if block_map is None else (block_map.hides, block_map.wants_masks)
    score_mod, mask_mod = _now("score_mod", given["score_mod"]), _now("mask_mod", given["mask_mod"])
    _refuse_stops(q, k, score_mod)
    score_mod, mask_mod, captures, scalars = _parts(score_mod, mask_mod)
    dropout_p = settled_here(given["dropout_p"])
    words = {name: given[name] for name in ("mask", "accuracy", "v_layout", "out_dtype", "context")}
    words.update({name: settled_here(given[name]) for name in ("window", "scale_block", *_NUMBERS)})
    words.update({name: flag_or_none(name, given[name]) for name in ("pad_head_dim", "deterministic")})
    text = _text(has_masks, hides, wants_masks, given["dtype"], given["dtype_kv"], score_mod, mask_mod,
                 is_causal=causal_flag(given["is_causal"]), dropout_p=dropout_p, **words)
    found = dict(spec=text, scale=given["scale"],
                 block_map=None if block_map is None else block_map.granules, captures=captures or None,
                 scalars=scalars or None, **(_seeds(q, given["seed"], given["offset"]) if dropout_p else {}))
    found.update({name: _factor(q, given[name]) for name in SCALES})
    found.update(_captures(given, TENSORS))
    return {name: value for name, value in found.items() if value is not None}


def _captures(given, features):
    """Returns the tensors of features by the names of the ops' keywords."""
    found = {}
    for feature in features:
        value = given.get(feature.keyword)
        if value is not None:
            parts = value if isinstance(value, (tuple, list)) else (value,) * len(feature.captures)
            found.update(zip(feature.captures, parts))
    return found


def _is_symbol(number):
    """True for a symbol. Inside torch.compile, also for any number within int64, because it may be a symbol."""
    if torch.compiler.is_dynamo_compiling():
        return -2 ** 63 <= number < 2 ** 63
    return isinstance(number, torch.SymInt)


def _seeds(q, seed, offset):
    """Returns seed and offset in the ops' form. A drawn seed is one node of the graph, so that recomputation and
    backward use the same."""
    seed = drawn_seed(q) if seed is None else seed
    found = {}
    for name, value in (("seed", seed), ("offset", offset)):
        if isinstance(value, torch.Tensor):
            found[f"{name}_tensor"] = value
        else:
            found[name] = value if value is None or _is_symbol(value) else signed(name, value)
    return found


def _with_tensors(given):
    """Returns attention()'s keywords with tensors in place of NumPy arrays. They are copies, so that the backward reads
    the forward's values.

    Raises for score features that attention() refuses, with the same messages. torch.compile itself converts arrays to
    tensors."""
    if torch.compiler.is_dynamo_compiling():
        return given
    for feature in TENSORS:
        value = given.get(feature.keyword)
        if value is None or isinstance(value, torch.Tensor):
            continue
        parts = value if isinstance(value, (tuple, list)) else (value,) * len(feature.captures)
        if not len(parts) == len(feature.captures) == 2 or not all(isinstance(part, torch.Tensor) for part in parts):
            scores_of({feature.keyword: value})
            parts = [_tensor_of(name, part) for name, part in zip(feature.captures, parts)]
        given = {**given, feature.keyword: parts[0] if len(parts) == 1 else tuple(parts)}
    arrays = [name for name in ("seed", "offset") if tensors.is_numpy(given.get(name))]
    return {**given, **{name: _tensor_of(name, given[name]) for name in arrays}} if arrays else given


def _tensor_of(name, part):
    if isinstance(part, torch.Tensor):
        return part
    if any(stride < 0 for stride in part.strides):
        raise ValueError(f"{name} has strides of {part.strides} bytes; strides must be at least 0 (copy the array)")
    if tensors.dtype_text(part.dtype) == "bf16":  # ml_dtypes' bfloat16, which PyTorch does not know
        return torch.from_numpy(part.copy().view("int16")).view(torch.bfloat16)
    return torch.from_numpy(part.copy())


def traced_flag(name, value, words="True or False"):
    """Returns the result of core/flags.py's flag() inside torch.compile. A symbol becomes its current value, with a
    guard. A tensor has no value yet, and raises."""
    if isinstance(value, bool):
        return True if value else False
    if hasattr(value, "dtype"):  # NumPy's bools are tensors here too
        raise TypeError(f"{name} is a tensor of the graph; must be {words}")
    return refuse_flag(name, value, words)


def settled(number):
    """Returns the result of core/torch_state.py's settled() inside torch.compile. A symbol becomes its current value,
    with a guard."""
    from torch.fx.experimental.symbolic_shapes import guard_scalar
    if isinstance(number, (tuple, list)):
        return tuple([settled(one) for one in number])
    return guard_scalar(number) if isinstance(number, (int, float)) else number


def _check_dense(**operands):
    for name, x in operands.items():
        tensors.check_dense(name, x)


def attend(q, k, v, mask=None, window=None, scale=None, out=None, return_lse=False, return_max_logits=False, **choices):
    """Implements attention() through the op."""
    return_lse = flag("return_lse", return_lse)
    if flag("return_max_logits", return_max_logits):
        return _with_logits(q, k, v, out, return_lse, mask=mask, window=window, scale=scale, **choices)
    _check_dense(q=q, k=k, v=v)
    given = _keywords(q, k, mask=mask, window=window, scale=scale, **_with_tensors(choices))
    if out is None:
        o, lse = torch.ops.attune.attention(q, k, v, return_lse=return_lse, **given)
    else:
        o, lse = out, q.new_empty((q.shape[0], q.shape[2], q.shape[1]), dtype=torch.float32) if return_lse else None
        torch.ops.attune.attention_out(q, k, v, o=o, lse=lse, **given)
    return (o, lse) if return_lse else o


def _with_logits(q, k, v, out, return_lse, **choices):
    _check_dense(q=q, k=k, v=v)
    for name in SCALES:
        if choices.get(name) is not None:
            raise ValueError(f"{name} is given and return_max_logits is True; 8-bit tensors have no max_logits")
    given = _keywords(q, k, **_with_tensors(choices))
    o, lse, logits = torch.ops.attune.attention_max_logits(q, k, v, return_lse=return_lse, **given)
    o = o if out is None else copied(out, o)
    return (o, lse, logits) if return_lse else (o, logits)


def train(**arguments):
    """Implements attention() through the op, in eager mode, for tensors that autograd records."""
    q, k, v = arguments["q"], arguments["k"], arguments["v"]
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        check_beside(name, tensor, q)
        tensors.check_device(name, tensor)
        tensors.signature(name, tensor)
        tensors.check_plain(name, tensor)
        argument = "dtype" if name == "q" else "dtype_kv"
        tensors.dtype_name(tensor, arguments[argument], name, argument)
        if tensors.is_numpy(arguments[f"{name}_scale"]):
            check_beside(f"{name}_scale", arguments[f"{name}_scale"], q)
    v_layout_of(arguments["v_layout"])
    if arguments["block_map"] is not None:
        use_of(arguments["block_map"], True)
    return attend(**{**arguments, "dtype": None, "dtype_kv": None, "scale": softmax_scale(arguments["scale"]),
                     "dropout_p": rate_of(arguments["dropout_p"] or 0.0)})


def differentiate(dout, q, k, v, o, lse, *, dlse=None, gradients="qkv", out=None, accumulate=False, **choices):
    """Implements attention_backward() through the op."""
    if flag("accumulate", accumulate):
        raise ValueError("accumulate is True in a graph; must be False (add the op's result yourself)")
    if choices.get("dropout_p") and choices.get("seed") is None:
        raise ValueError("seed is missing; with dropout_p it must be the forward call's")
    asked = gradients_asked(gradients)
    choices["score_mod"] = score_mod = _now("score_mod", choices.get("score_mod"))
    if asked != "v":
        _refuse_stopped_score(score_mod)
    given = _keywords(q, k, **_with_tensors(choices))
    found = torch.ops.attune.attention_backward(dout, q, k, v, o, lse, dlse=dlse, gradients=asked, **given)
    found = [gradient if name in asked else None for name, gradient in zip("qkv", found)]
    if out is not None:
        found = [
            None if gradient is None else _into(name, target, gradient)
            for name, target, gradient in zip(("dq", "dk", "dv"), out, found)]
    return tuple(found)


def _into(name, target, made):
    """Copies into the target. Raises if copy_() would broadcast or round."""
    if target.shape != made.shape or target.dtype != made.dtype:
        raise ValueError(
            f"{name} is {target.dtype} of shape {tuple(target.shape)}; must be {made.dtype} of shape "
            f"{tuple(made.shape)}")
    return copied(target, made)


def differentiate_scores(of, dout, q, k, v, o, lse, *, dlse=None, **choices):
    """Implements score_gradient() through the op."""
    if choices.get("dropout_p") and choices.get("seed") is None:
        raise ValueError("seed is missing; with dropout_p it must be the forward call's")
    choices["score_mod"] = score_mod = _now("score_mod", choices.get("score_mod"))
    if isinstance(score_mod, Mod) and of in score_mod.graph_labels and choices.get(of) is None:
        of = f"captures[{score_mod.graph_labels.index(of)}]"
    return torch.ops.attune.score_gradient(dout, q, k, v, o, lse, of=of, dlse=dlse,
                                           **_keywords(q, k, **_with_tensors(choices)))


def attend_from_heads_first(q, k, v, mask=None, scale=None, **choices):
    """Implements the function of ops/attention.py through the op."""
    refuse_nested(q, k, v)
    q, k, v = (readable(x) if x.dim() == 4 else x for x in (q, k, v))
    return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask, scale=scale, **choices)


def attend_heads_first(q, k, v, mask=None, scale=None, **choices):
    """Implements the function of ops/attention.py through the op."""
    fit_q, fit_k, fit_v = fitted(q, k, v)
    result = attend(fit_q.transpose(1, 2), fit_k.transpose(1, 2), fit_v.transpose(1, 2), mask, scale=scale, **choices)
    o, *rest = result if isinstance(result, tuple) else (result,)
    o = in_order_of(q, o.transpose(1, 2))
    return (o, *rest) if rest else o


def quantise(x, dtype="e4m3", scale_block=0, rotation="none", v_layout="rows", *, context=None):
    """Implements attune.quantise() through the op."""
    _check_dense(x=x)
    if context is not None:
        raise ValueError(f"context is {context!r}; in a graph it must be None (the op uses x's device)")
    return torch.ops.attune.quantise(x, dtype=_name(dtype), scale_block=scale_block, rotation=rotation,
                                     v_layout=v_layout)


def merge(o, lse, other_o, other_lse, out=None, lse_out=None, *, context=None):
    """Implements attune.merge() through the op."""
    _check_dense(o=o, lse=lse, other_o=other_o, other_lse=other_lse)
    if context is not None:
        raise ValueError(f"context is {context!r}; in a graph it must be None (the op uses o's device)")
    new_out, new_lse = torch.ops.attune.merge(o, lse, other_o, other_lse)
    return new_out if out is None else copied(out, new_out), new_lse if lse_out is None else copied(lse_out, new_lse)


def _of_caches(q, *, mask=None, is_causal=False, window=None, context=None, k_scale=None, v_scale=None, dtype_kv=None,
               batch_invariant=False, **given):
    """Returns the ops' arguments for those of attention_kvcache(). given: score features, and arguments that the ops
    take unchanged."""
    features = {name: given.pop(name) for name in OVER_CACHES if name in given}
    score_mod, mask_mod, captures, scalars = _parts(_now("score_mod", features.get("score_mod")),
                                                    _now("mask_mod", features.get("mask_mod")))
    numbers = {name: settled_here(features[name]) for name in _NUMBERS if name in features}
    text = _spec_of(score_mod, mask_mod, mask=cache_mask(mask, causal_flag(is_causal)), window=settled_here(window),
                    context=context, dtype_kv=dtype_kv, batch_invariant=flag("batch_invariant", batch_invariant),
                    **numbers)
    return dict(given, spec=text, k_scale=_factor(q, k_scale), v_scale=_factor(q, v_scale), captures=captures or None,
                scalars=scalars or None, **_captures(_with_tensors(features), TENSORS))


def attend_cache(q, k_cache, v_cache, kv_lengths=None, *, q_begins=None, return_lse=False, out=None, **choices):
    """Implements attention_kvcache() through the op."""
    return_lse = flag("return_lse", return_lse)
    _check_dense(q=q, k_cache=k_cache, v_cache=v_cache)
    given = _of_caches(q, kv_lengths=kv_lengths, q_begins=q_begins, **choices)
    if out is None:
        o, lse = torch.ops.attune.attention_kvcache(q, k_cache, v_cache, return_lse=return_lse, **given)
    else:
        o, lse = out, new_lse(q, q_begins is not None) if return_lse else None
        torch.ops.attune.attention_kvcache_out(q, k_cache, v_cache, o=o, lse=lse, **given)
    return (o, lse) if return_lse else o


def attend_latent(q_nope, q_pe, ckv_cache, kpe_cache, out=None, **choices):
    """Implements the function of ops/latent.py through the op."""
    o, lse = torch.ops.attune.attention_latent(q_nope, q_pe, ckv_cache, kpe_cache, **_of_caches(q_nope, **choices))
    return o if out is None else copied(out, o), lse


def cascade(q, levels, *, return_lse=False, out=None, **choices):
    """Implements attune.cascade() through the ops. Sums are fp32 here too, rounded once."""
    levels, state, return_lse = check_levels(q, levels), None, flag("return_lse", return_lse)
    for given, keywords in calls_of(q, levels, out if len(levels) == 1 else None, **choices):
        found = attend_cache(*given, **keywords)
        if state is not None:
            o, lse = torch.ops.attune.merge(state[0].float()[None], state[1][None], found[0][None], found[1][None])
            found = o[0], lse[0]
        state = found
    o, lse = state
    if len(levels) > 1:
        o = o.to(q.dtype) if out is None else copied(out, o)
    return (o, lse) if return_lse else o


def append(k, v, k_cache, v_cache, kv_lengths=None, *, interleaved=False, q=None, q_out=None, k_scale=None,
           v_scale=None, make_scales=False, dtype_kv=None, context=None, **given):
    """Implements append_kv() through the op."""
    make_scales = flag("make_scales", make_scales)
    _check_dense(k=k, v=v, k_cache=k_cache, v_cache=v_cache)
    columns = columns_of_factor({name: given.get(name) for name in ("k_factors", "v_factors")}, k)
    kind_of_factors(dict(k_scale=k_scale, v_scale=v_scale), make_scales, columns)
    scales = dict(made_k_scale=k_scale, made_v_scale=v_scale) if make_scales else dict(
        k_scale=_factor(k, k_scale), v_scale=_factor(k, v_scale))
    if q is not None and q_out is None:
        q_out = q.new_empty(q.shape)
    torch.ops.attune.append_kv(
        k, v, k_cache, v_cache, spec=_spec_of(None, None, context=context, dtype_kv=dtype_kv, interleaved=flag(
            "interleaved", interleaved)), kv_lengths=kv_lengths, q=q, q_out=q_out, **given, **scales)
    return q_out


def _name(dtype):
    return tensors.dtype_text(dtype)


_name._dynamo_marked_constant = True
