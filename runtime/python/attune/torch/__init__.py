# SPDX-License-Identifier: Apache-2.0
"""attune's PyTorch ops, torch.ops.attune.*; importing this module defines them. examples/guide/torch.md shows their
use.

The ops are attention, attention_max_logits, attention_out, attention_backward, score_gradient, quantise, block_map and
merge, and from cache_ops.py attention_kvcache, attention_kvcache_out, attention_latent and append_kv. attention()
imports this module itself inside torch.compile, on FakeTensors and below dispatch modes.

One schema serves all features: a text that spec() writes (spec.py) holds all arguments that are not tensors. The ops
return new tensors; o and lse are contiguous whatever strides q has. Only attention has gradients (autograd.py):
attention_backward computes those of q, k and v, score_gradient those of biases, slopes, sinks and the tensors that a
score_mod reads. The other ops raise ValueError under grad mode if a tensor requires gradients. The ops raise
RuntimeError inside torch.func transforms (vmap, grad, jvp). DTensors may be sharded on batch or heads (sharding.py).

This is also the room of all that needs PyTorch's dispatcher or autograd. It may import ops, score and core. graph.py
makes calls of the ops, train.py records calls in eager mode."""
import functools

import torch

from ..core.copies import aligned
from ..core.torch_state import autocast_dtype, in_row, profiler_question, refuse_gradients
from ..score.block_maps import GRANULE_KEYS, GRANULE_ROWS, BlockMap
from ..score.features import MASKS, TENSORS
from .. import block_map as _maps
from ..ops import (attention as _attention, backward as _backward, merge as _merge, quantise as _quantise,
                   score_gradient as _score_gradient)
from . import autograd as _autograd, cache_ops as _cache_ops
from .eager import hidden, shorten, wanted_recipes
from .flash_registry import activate, active, calls, register as _register_flash, restore
from .spec import captures_of, mods_of, parse_spec, spec

__all__ = ["activate", "active", "calls", "captures_of", "restore", "spec"]



def _schema_of(features):
    return ", ".join(f"Tensor? {name}=None" for one in features for name in one.captures)


_MASKS = _schema_of([feature for feature in TENSORS if feature.is_mask])
_FEATURES = f"{_schema_of(TENSORS)}, Tensor? block_map=None"
_SCALES = "Tensor? q_scale=None, Tensor? k_scale=None, Tensor? v_scale=None"
_PROGRAMS = "Tensor[]? captures=None, float[]? scalars=None"
_SEEDS = "SymInt? seed=None, SymInt? offset=None, Tensor? seed_tensor=None, Tensor? offset_tensor=None"
_SCHEMAS = {
    "attention": "(Tensor q, Tensor k, Tensor v, *, str spec='', float? scale=None, bool return_lse=True, "
    f"{_SCALES}, {_FEATURES}, {_PROGRAMS}, {_SEEDS}) -> (Tensor o, Tensor lse)",
    "attention_max_logits": "(Tensor q, Tensor k, Tensor v, *, str spec='', float? scale=None, bool return_lse=True, "
    f"{_FEATURES}, {_PROGRAMS}, {_SEEDS}) -> (Tensor o, Tensor lse, Tensor max_logits)",
    "attention_out": "(Tensor q, Tensor k, Tensor v, *, str spec='', float? scale=None, "
    f"{_SCALES}, {_FEATURES}, {_PROGRAMS}, {_SEEDS}, Tensor(a!) o, Tensor(b!)? lse=None) -> ()",
    "attention_backward": "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, *, Tensor? dlse=None, "
    f"str gradients='qkv', str spec='', float? scale=None, {_FEATURES}, {_PROGRAMS}, {_SEEDS}) "
    "-> (Tensor dq, Tensor dk, Tensor dv)",
    "score_gradient": "(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, *, str of, "
    f"Tensor? dlse=None, str spec='', float? scale=None, {_FEATURES}, {_PROGRAMS}, {_SEEDS}) -> Tensor",
    "quantise": "(Tensor x, *, str dtype='e4m3', int scale_block=0, str rotation='none', str v_layout='rows') "
    "-> (Tensor tensor, Tensor scale)",
    "block_map": f"(Tensor q, Tensor k, *, str spec='', {_MASKS}, {_PROGRAMS}) -> Tensor granules",
    "merge": "(Tensor o, Tensor lse, Tensor other_o, Tensor other_lse) -> (Tensor out, Tensor lse_out)",
    **_cache_ops.SCHEMAS, }
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
_DTYPES = {
    "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2}
_FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


_attend = _attention._attend  # attention() without the part for torch.compile


def _keywords(spec, q, k, captures, scalars, block_map, **given):
    """Returns attention()'s keywords for what an op was given besides q, k and v."""
    parsed = parse_spec(spec)
    for feature in TENSORS:
        if len(feature.captures) > 1:
            parts = tuple(given.pop(name, None) for name in feature.captures)
            if any(part is None for part in parts) and any(part is not None for part in parts):
                raise ValueError(f"one of {' and '.join(feature.captures)} is given; give both or neither")
            given[feature.keyword] = None if parts[0] is None else parts
    if (block_map is None) != (parsed.hides is None):
        raise ValueError("one of block_map and the spec's block_map= is given; give both or neither")
    if parsed.keywords.get("dropout_p") or any(name in given
                                               for name in ("seed", "offset", "seed_tensor", "offset_tensor")):
        given.update(_seeds(given))
    keywords = {**parsed.keywords, **{name: tensor for name, tensor in given.items() if tensor is not None}}
    if block_map is not None:
        keywords["block_map"] = BlockMap(block_map, q.shape[1], k.shape[1], hides=parsed.hides)
    if parsed.programs or captures or scalars:
        keywords.update(mods_of(parsed, captures, scalars))
    return keywords


def _seeds(given):
    """Takes seeds and offsets out of `given`, an op's arguments, and returns them in attention()'s form."""
    found = {}
    for name in ("seed", "offset"):
        number, tensor = given.pop(name, None), given.pop(f"{name}_tensor", None)
        if number is not None and tensor is not None:
            raise ValueError(f"{name} and {name}_tensor are given; give one of them")
        found[name] = number if tensor is None else tensor
    if found["seed"] is None:
        raise ValueError(
            "seed is missing and the spec has dropout_p; give seed, a whole number, or seed_tensor, an int64 tensor of "
            "one element")
    return found


@functools.lru_cache(maxsize=None)
def _no_lse(device):
    """Returns an empty tensor. torch.empty_like() of it takes half the time of torch.empty() with shape, dtype and
    device."""
    return torch.empty((0,), dtype=torch.float32, device=device)


def _attention_impl(q, k, v, *, spec="", scale=None, return_lse=True, captures=None, scalars=None, block_map=None,
                    **given):
    given_q, given_k, given_v = q, k, v
    q, k, v = aligned(q), aligned(k), aligned(v)
    if given or captures or scalars or block_map is not None:
        keywords = _keywords(spec, q, k, captures, scalars, block_map, **given)
    else:
        parsed = parse_spec(spec)
        is_plain = not parsed.programs and parsed.hides is None and "dropout_p" not in parsed.keywords
        keywords = parsed.keywords if is_plain else _keywords(spec, q, k, captures, scalars, None)
    recipes = wanted_recipes()
    if recipes is None:
        result = _attend(q, k, v, scale=scale, return_lse=return_lse, **keywords)
    else:
        result, recipe = _attention._checked(q, k, v, scale=scale, return_lse=return_lse, **keywords)
        if recipe is not None and q is given_q and k is given_k and v is given_v:
            recipes.append(lambda: recipe(empty_lse=True))
    o, lse = result if return_lse else (result, torch.empty_like(_no_lse(q.device)))
    return (o if o.is_contiguous() else o.contiguous()), lse  # o of a padded head dim is a view


def _max_logits_impl(q, k, v, *, return_lse=True, captures=None, scalars=None, block_map=None, spec="", **given):
    q, k, v = aligned(q), aligned(k), aligned(v)
    scale = given.pop("scale", None)
    keywords = _keywords(spec, q, k, captures, scalars, block_map, **given)
    o, *lse, logits = _attend(q, k, v, scale=scale, return_lse=return_lse, return_max_logits=True, **keywords)
    return o.contiguous(), lse[0] if lse else torch.empty_like(_no_lse(q.device)), logits


def _attention_out_impl(q, k, v, *, o, lse=None, spec="", captures=None, scalars=None, block_map=None, **given):
    keywords = _keywords(spec, q, k, captures, scalars, block_map, **given)
    result = _attention.attention(q, k, v, out=o, return_lse=lse is not None, **keywords)
    if lse is not None:
        if lse.shape != result[1].shape or lse.dtype != torch.float32:
            raise ValueError(
                f"lse is {lse.dtype} of shape {tuple(lse.shape)}; must be torch.float32 of shape "
                f"{tuple(result[1].shape)}")
        lse.copy_(result[1])


def _o_and_lse(q, v, spec, return_lse):
    keywords = parse_spec(spec).keywords
    head_dim = v.shape[2 if keywords.get("v_layout") == "transposed" else 3]
    dtype = _DTYPES.get(keywords.get("out_dtype"), torch.bfloat16 if q.dtype in _FP8 else q.dtype)
    o = q.new_empty((q.shape[0], q.shape[1], q.shape[2], head_dim), dtype=dtype)
    return o, q.new_empty((q.shape[0], q.shape[2], q.shape[1]) if return_lse else (0,), dtype=torch.float32)


def _check_fake(q, k, v, given):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"{name} has {tensor.dim()} dimensions; must be 4: [batch, seqlen, num_heads, head_dim]")
    refuse_gradients((("q", q), ("k", k), ("v", v), *given.items()))


def _attention_fake(q, k, v, *, spec="", scale=None, return_lse=True, captures=None, scalars=None, **given):
    _check_fake(q, k, v, given)
    return _o_and_lse(q, v, spec, return_lse)


def _max_logits_fake(q, k, v, **given):
    return *_attention_fake(q, k, v, **given), q.new_empty((q.shape[2],), dtype=torch.float32)


def _attention_out_fake(q, k, v, *, o, lse=None, spec="", scale=None, captures=None, scalars=None, **given):
    _check_fake(q, k, v, {"o": o, "lse": lse, **given})
    wanted, _ = _o_and_lse(q, v, spec, False)
    torch._check(o.dim() == 4 and o.dtype == wanted.dtype,
                 lambda: f"o is {o.dtype} with {o.dim()} dimensions; must be {wanted.dtype} with 4")


def _backward_keywords(q, k, spec="", captures=None, scalars=None, block_map=None, **given):
    keywords = _keywords(spec, q, k, captures, scalars, block_map, **given)
    if block_map is not None and not parse_spec(spec).hides:
        del keywords["block_map"]  # the masks are given too
    keywords.pop("out_dtype", None)
    return keywords


def _score_gradient_impl(dout, q, k, v, o, lse, *, of, dlse=None, **given):
    saved = _backward.readable_saved(dout, q, k, v, o, lse)
    return _score_gradient.score_gradient_checked(of, *saved, dlse=dlse, **_backward_keywords(q, k,
                                                                                              **given)).contiguous()


def _score_gradient_fake(dout, q, k, v, o, lse, *, of, **given):
    captures = {f"captures[{number}]": tensor for number, tensor in enumerate(given.get("captures") or ())}
    given = {**given, **captures}
    if given.get(of) is None:
        raise ValueError(f"of is {of!r}, and {of} is not given; must name a tensor that attention() was given")
    return given[of].new_empty(given[of].shape)


def _backward_impl(dout, q, k, v, o, lse, *, dlse=None, gradients="qkv", **given):
    keywords = _backward_keywords(q, k, **given)
    saved = _backward.readable_saved(dout, q, k, v, o, lse)
    found = _backward.attention_backward_checked(*saved, dlse=dlse, gradients=gradients, **keywords)
    given = zip((q, k, v), saved[1:4], found)
    return tuple(
        x.new_empty((0, )) if gradient is None else gradient if read is x else _in_strides_of(x, gradient)
        for x, read, gradient in given)


def _in_strides_of(x, gradient):
    """Returns the gradient with the strides that the fake kernel reports, for an x that was copied."""
    wanted = _backward.gradient_like(x)
    return gradient if gradient.stride() == wanted.stride() else wanted.copy_(gradient)


def _backward_fake(dout, q, k, v, o, lse, *, gradients="qkv", **given):
    asked = _backward.gradients_asked(gradients)
    return tuple(
        _backward.gradient_like(x) if name in asked else x.new_empty((0, ))
        for name, x in (("q", q), ("k", k), ("v", v)))


def _quantise_impl(x, *, dtype="e4m3", scale_block=0, rotation="none", v_layout="rows"):
    return _quantise.quantise(x, dtype, scale_block, rotation, v_layout)


def _quantise_fake(x, *, dtype="e4m3", scale_block=0, rotation="none", v_layout="rows"):
    refuse_gradients([("x", x)])
    batch, seqlen, heads, head_dim = x.shape
    inner = seqlen if v_layout == "transposed" else head_dim
    padded = (inner + 15) // 16 * 16  # rows of 8-bit tensors begin at 16 bytes
    shape = (batch, heads, head_dim, padded) if v_layout == "transposed" else (batch, seqlen, heads, padded)
    blocks = ((seqlen + scale_block - 1) // scale_block,) if scale_block > 0 else ()
    return x.new_empty(shape, dtype=_DTYPES[dtype])[..., :inner], x.new_empty((batch, heads, *blocks),
                                                                              dtype=torch.float32)


def _map_keywords(spec, q, k, captures, scalars, given):
    keywords = _keywords(spec, q, k, captures, scalars, None, **given)
    other = set(keywords) - {"mask", "context", *MASKS}
    if other:
        raise ValueError(
            f"spec has {', '.join(sorted(other))}; a block map's spec takes only mask, chunk and mask_mod")
    return keywords


def _block_map_impl(q, k, *, spec="", captures=None, scalars=None, **given):
    return _maps.build(q, k, **_map_keywords(spec, q, k, captures, scalars, given)).granules


@functools.lru_cache(maxsize=256)
def _map_axes(spec, names):
    """Returns two flags: True if a map of these masks differs between batch entries, and True if between heads."""
    parsed = parse_spec(spec)
    kinds = {"mask_tensor": torch.bool}
    shapes = {"mask_tensor": (2, 2, 64, 64), "documents_q": (2, 64), "documents_kv": (2, 64)}
    given = {
        name: torch.zeros(shapes.get(name, (2, )), dtype=kinds.get(name, torch.int32), device="cpu")
        for name in names}
    captures = [torch.zeros((1,) * rank, dtype=_MAP_TYPES[type_], device="cpu")
                for one in parsed.programs.values() for type_, rank in one.captures.values()]
    scalars = [0.0 for one in parsed.programs.values() for _ in one.scalars]
    q = torch.empty((2, 64, 2, 64), device="cpu")
    return _maps.axes_of(q, q, **_map_keywords(spec, q, q, captures, scalars, given))


_MAP_TYPES = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int32": torch.int32, "int64": torch.int64,
    "bool": torch.bool, "uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16}


def _block_map_fake(q, k, *, spec="", captures=None, scalars=None, **given):
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    with unset_fake_temporarily():
        batch, heads = _map_axes(spec, tuple(name for name, tensor in given.items() if tensor is not None))
    rows, keys = (q.shape[1] + GRANULE_ROWS - 1) // GRANULE_ROWS, (k.shape[1] + GRANULE_KEYS - 1) // GRANULE_KEYS
    line = (keys + 15) // 16 * 16
    return q.new_empty((q.shape[0] if batch else 1, q.shape[2] if heads else 1, rows, line),
                       dtype=torch.uint8)[..., :keys]


def _merge_impl(o, lse, other_o, other_lse):
    return _merge.merge(o, lse, other_o, other_lse)


def _merge_fake(o, lse, other_o, other_lse):
    refuse_gradients((("o", o), ("lse", lse), ("other_o", other_o), ("other_lse", other_lse)))
    if o.dim() != 4 or lse.dim() != 3:
        raise ValueError(
            f"o has {o.dim()} dimensions and lse {lse.dim()}; must be 4 and 3: [batch, seqlen, num_heads, head_dim] "
            "and [batch, num_heads, seqlen]")
    return o.new_empty(o.shape), lse.new_empty(lse.shape)


def _cast_first(op):
    """Returns the op for autocast: q, k and v are cast to its dtype; bias, scales, sinks and other tensors are not."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA) | torch._C.DispatchKeySet(
        torch._C.DispatchKey.AutocastCPU)

    def cast(keyset, q, k, v, **rest):
        dtype = autocast_dtype(q, k, v)
        with torch._C._ExcludeDispatchKeyGuard(keys):
            if dtype is not None:
                q, k, v = (x if x.dtype in _FP8 or x.dtype == torch.float64 else x.to(dtype) for x in (q, k, v))
            if not profiler_question(torch)():
                return op(q, k, v, **rest)
            with hidden():  # the op once more would be a second row
                return op.redispatch(keyset - keys, q, k, v, **rest)

    return cast


def _refuse_transform(name):
    def refuse(*_, **__):
        raise RuntimeError(
            f"torch.ops.attune.{name} is called inside a torch.func transform (vmap, grad, jvp), for which it has no "
            f"rule; give plain tensors: fold a mapped axis into batch, and take gradients with torch.autograd")
    return refuse


_IMPLS = {
    "attention": (_attention_impl, _attention_fake), "attention_max_logits": (_max_logits_impl, _max_logits_fake),
    "attention_out": (_attention_out_impl, _attention_out_fake),
    "attention_backward": (_backward_impl, _backward_fake),
    "score_gradient": (_score_gradient_impl, _score_gradient_fake), "quantise": (_quantise_impl, _quantise_fake),
    "block_map": (_block_map_impl, _block_map_fake), "merge": (_merge_impl, _merge_fake), **_cache_ops.IMPLS}
_library = torch.library.Library("attune", "DEF")  # the definitions live as long as this object


def _define():
    for name, (run, fake) in _IMPLS.items():
        _library.define(name + _SCHEMAS[name], tags=_TAGS)
        for key in ("CPU", "CUDA"):
            _library.impl(name, in_row(run), key)
        torch.library.register_fake(f"attune::{name}", fake, lib=_library)
        _library.impl(name, _refuse_transform(name), "FuncTorchDynamicLayerFrontMode")
    ops = torch.ops.attune
    for name in ("attention", "attention_max_logits"):
        op = getattr(ops, name).default
        _library.impl(name, _autograd.attention_kernel(op, hidden), "Autograd", with_keyset=True)
        for key in ("AutocastCPU", "AutocastCUDA"):
            _library.impl(name, _cast_first(op), key, with_keyset=True)
    for name in ("attention_backward", "score_gradient"):
        _library.impl(name, _autograd.backward_kernel(getattr(ops, name).default), "Autograd", with_keyset=True)


_define()
shorten(torch.ops.attune.attention.default)
_register_flash()
