# SPDX-License-Identifier: Apache-2.0
"""torch.ops.attune.attention_kvcache, attention_kvcache_out, attention_latent and append_kv: attention over caches, and
writes into them. __init__.py defines them with the other ops.

The functions that the ops call check the values of lists on a CPU. While torch.compile traces, there are no values to
check."""
import torch

from ..core.torch_state import refuse_gradients
from ..score.features import TENSORS
from ..ops.append import append_kv
from ..ops.kvcache import attention_kvcache
from ..ops.latent import attend_latent
from .spec import mods_of, parse_spec

_LISTS = ("Tensor? kv_lengths=None, Tensor? page_table=None, Tensor? slots=None, Tensor? q_begins=None, "
          "SymInt? seqlen_q=None")
_LISTS_OF_KEYS = "Tensor? key_indices=None, Tensor? key_places=None, Tensor? key_counts=None"
_SCALES = "Tensor? k_scale=None, Tensor? v_scale=None"
_GROUPS = "Tensor? k_factors=None, Tensor? v_factors=None"
_FEATURES = ", ".join(f"Tensor? {name}=None" for one in TENSORS if one.over_caches for name in one.captures)
_CHOICES = (
    f"str spec='', float? scale=None, {_LISTS}, Tensor? kv_begins=None, SymInt? seqlen_kv=None, {_LISTS_OF_KEYS}, "
    f"{_SCALES}, "
    f"{_FEATURES}, Tensor[]? captures=None, float[]? scalars=None")
SCHEMAS = {
    "attention_kvcache": f"(Tensor q, Tensor k_cache, Tensor v_cache, *, {_CHOICES}, bool return_lse=True, {_GROUPS}) "
    "-> (Tensor o, Tensor lse)",
    "attention_kvcache_out": f"(Tensor q, Tensor k_cache, Tensor v_cache, *, {_CHOICES}, Tensor(a!) o, "
    f"Tensor(b!)? lse=None, {_GROUPS}) -> ()",
    "attention_latent": "(Tensor q_nope, Tensor q_pe, Tensor ckv_cache, Tensor kpe_cache, *, "
    f"{_CHOICES}) -> (Tensor o, Tensor lse)",
    "append_kv": "(Tensor k, Tensor v, Tensor(a!) k_cache, Tensor(b!) v_cache, *, str spec='', "
    f"{_LISTS}, Tensor? row_slots=None, Tensor? positions=None, Tensor? cos=None, Tensor? sin=None, {_SCALES}, "
    "Tensor(c!)? made_k_scale=None, Tensor(d!)? made_v_scale=None, Tensor? q=None, Tensor(e!)? q_out=None, "
    "Tensor(f!)? k_factors=None, Tensor(g!)? v_factors=None) -> ()", }


def _given(spec, captures, scalars, given):
    parsed = parse_spec(spec, "attention_kvcache")
    return {**parsed.keywords, **mods_of(parsed, captures, scalars), **given}


def _attend_impl(q, k_cache, v_cache, *, spec="", return_lse=True, captures=None, scalars=None, **given):
    found = attention_kvcache(q, k_cache, v_cache, return_lse=return_lse, **_given(spec, captures, scalars, given))
    o, lse = found if return_lse else (found, q.new_empty((0,)).float())
    # The lse of packed rows is a view, and so is an o of head dims that are computed in wider copies.
    return o.contiguous(), lse.contiguous()


def _attend_out_impl(q, k_cache, v_cache, *, o, lse=None, spec="", captures=None, scalars=None, **given):
    found = attention_kvcache(q, k_cache, v_cache, out=o, return_lse=lse is not None,
                              **_given(spec, captures, scalars, given))
    if lse is not None:
        if lse.shape != found[1].shape or lse.dtype != found[1].dtype:
            raise ValueError(
                f"lse is {lse.dtype} of shape {tuple(lse.shape)}; must be {found[1].dtype} of shape "
                f"{tuple(found[1].shape)}")
        lse.copy_(found[1])


def new_lse(q, is_packed):
    """Returns a tensor for the lse of these rows, without values."""
    shape = (q.shape[1], q.shape[0]) if is_packed else (q.shape[0], q.shape[2], q.shape[1])
    return q.new_empty(shape).float()


def _check_fake(q, k_cache, v_cache, q_begins, given):
    refuse_gradients((("q", q), ("k_cache", k_cache), ("v_cache", v_cache), *given.items()))
    wanted = 4 if q_begins is None else 3
    if q.dim() != wanted:
        raise ValueError(
            f"q has {q.dim()} dimensions; must be 4, [batch, seqlen_q, num_heads, head_dim], or with q_begins 3, [rows "
            "of all requests, num_heads, head_dim]")


def _attend_fake(q, k_cache, v_cache, *, spec="", return_lse=True, q_begins=None, captures=None, scalars=None, **given):
    _check_fake(q, k_cache, v_cache, q_begins, given)
    codes = 1 if given.get("k_factors") is None else 2  # in an element of v_cache
    o = q.new_empty((*q.shape[:-1], codes * v_cache.shape[-1]))
    return o, new_lse(q, q_begins is not None) if return_lse else q.new_empty((0,)).float()


def _attend_out_fake(q, k_cache, v_cache, *, o, lse=None, spec="", q_begins=None, captures=None, scalars=None, **given):
    _check_fake(q, k_cache, v_cache, q_begins, {"o": o, "lse": lse, **given})
    dtypes = dict.fromkeys((q.dtype, torch.float32))
    if o.dim() != q.dim() or o.dtype not in dtypes:
        raise ValueError(f"o is {o.dtype} with {o.dim()} dimensions; must be {' or '.join(map(str, dtypes))} with "
                         f"{q.dim()}")


def _latent_impl(q_nope, q_pe, ckv_cache, kpe_cache, *, spec="", captures=None, scalars=None, **given):
    o, lse = attend_latent(q_nope, q_pe, ckv_cache, kpe_cache, **_given(spec, captures, scalars, given))
    return o, lse.contiguous()


def _latent_fake(q_nope, q_pe, ckv_cache, kpe_cache, *, spec="", q_begins=None, captures=None, scalars=None, **given):
    refuse_gradients(
        (("q_nope", q_nope), ("q_pe", q_pe), ("ckv_cache", ckv_cache), ("kpe_cache", kpe_cache), *given.items()))
    return q_nope.new_empty(q_nope.shape), new_lse(q_nope, q_begins is not None)


def _append_impl(k, v, k_cache, v_cache, *, spec="", made_k_scale=None, made_v_scale=None, **given):
    makes = made_k_scale is not None or made_v_scale is not None
    if makes:
        given.update(k_scale=made_k_scale, v_scale=made_v_scale, make_scales=True)
    append_kv(k, v, k_cache, v_cache, **parse_spec(spec, "append_kv").keywords, **given)


def _append_fake(k, v, k_cache, v_cache, *, spec="", **given):
    refuse_gradients((("k", k), ("v", v), ("k_cache", k_cache), ("v_cache", v_cache), *given.items()))


IMPLS = {
    "attention_kvcache": (_attend_impl, _attend_fake), "attention_kvcache_out": (_attend_out_impl, _attend_out_fake),
    "attention_latent": (_latent_impl, _latent_fake), "append_kv": (_append_impl, _append_fake)}
