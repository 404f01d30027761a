# SPDX-License-Identifier: Apache-2.0
"""torch.nn.attention.flex_attention's signature and meaning, on attune: mods become programs of the score language, block masks become maps
(block_map.py). Tensors are [batch, num_heads, seqlen, head_dim]."""
import sys
from collections import namedtuple

from . import block_map as maps
from ._attention import attention
from ._block_map import GRANULE_KEYS, GRANULE_ROWS
from ._known import check_heads, marked_constant, tell_ignored

AuxOutput = namedtuple("AuxOutput", "lse max_scores")
_LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")


def _version(tensor):
    return None if tensor is None else (id(tensor), tensor._version)


def _make(block_mask):
    """(versions of its lists, its map or None, whether its mask_mod hides anything), kept with a BlockMask as long as the lists are as they
    were. There is no map where blocks are no multiples of a map's granules: then the mask_mod says it all."""
    found = tuple(_version(getattr(block_mask, name)) for name in _LISTS)
    kept = getattr(block_mask, "_attune_map", None)
    if kept is None or kept[0] != found:
        rows, keys = block_mask.BLOCK_SIZE
        fits = rows % GRANULE_ROWS == 0 and keys % GRANULE_KEYS == 0
        flex = sys.modules.get("torch.nn.attention.flex_attention")
        hides = block_mask.mask_mod is not None and block_mask.mask_mod is not getattr(flex, "noop_mask", None)
        kept = block_mask._attune_map = (found, maps.from_flex(block_mask) if fits else None, hides)
    return kept


def prepare(block_mask):
    """The BlockMask itself, with the map that flex_attention() makes of it: what torch.compile and a CUDA graph's capture need ahead."""
    _make(block_mask)
    return block_mask


def _masks_of(block_mask):
    import torch
    if not torch.compiler.is_dynamo_compiling():
        _, block_map, hides = _make(block_mask)
    elif hasattr(block_mask, "_attune_map"):
        _, block_map, hides = block_mask._attune_map
    else:
        raise ValueError("block_mask has no map yet, and torch.compile traces; accepted is what attune.flex.prepare() returns, called outside")
    return {"block_map": block_map, "mask_mod": block_mask.mask_mod} if hides else {"block_map": block_map}


@marked_constant
def _check(return_lse, aux):
    if aux is not None and aux[1]:
        raise ValueError("return_aux asks for max_scores; accepted is AuxRequest(lse=True): attune keeps no maxima")
    if aux is not None and return_lse:
        raise ValueError("return_lse is True and return_aux is given; accepted is one of the two")


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None, *,
                   return_aux=None):
    """softmax(score_mod(scale * query key^T) where block_mask shows it) value, of FlexAttention's arguments. Gradients of query, key, value and
    of what score_mod reads.

    query: [batch, num_heads, seqlen_q, head_dim], key: [batch or 1, num_heads_kv, seqlen_kv, head_dim], value: as key with head_dim_v; any
    strides that attention() takes, without copies. score_mod(score, b, h, q_idx, kv_idx): traced, see attune.score_mod; what it reads
    around it comes with each call. block_mask: a BlockMask; what its mask_mod hides and what it does not list is hidden. Its map is made at
    the first call and waits for the device then; before a CUDA graph's capture, call once. Blocks that are no multiples of 64 rows
    and 16 keys are left to its mask_mod. enable_gqa: num_heads_kv may divide num_heads.

    Returns o [batch, num_heads, seqlen_q, head_dim_v], a view as of PyTorch's; with return_lse (o, lse), with return_aux=AuxRequest(lse=True)
    (o, AuxOutput). lse: natural, fp32 [batch, num_heads, seqlen_q], -inf in rows that see nothing. kernel_options are ignored, with one
    warning: the tuner owns them. Refused with a sentence: gradients of what a mask_mod reads, max_scores, what attune.score_mod() refuses.

    Inside torch.compile use mods that attune.score_mod() or attune.mask_mod() made outside where they read tensors, also as the mask_mod of
    a BlockMask, and call prepare() of that outside."""
    aux = None if return_aux is None else (return_aux.lse, return_aux.max_scores)
    _check(return_lse, aux)
    if kernel_options:
        tell_ignored("flex_attention", [f"kernel_options={sorted(kernel_options)}"])
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise ValueError(f"query, key and value have {query.dim()}, {key.dim()} and {value.dim()} dimensions; accepted are 4: [batch, num_heads, "
                         "seqlen, head_dim]")
    check_heads(query, key, enable_gqa)
    if key.shape[0] == 1 and query.shape[0] > 1:
        key, value = key.expand(query.shape[0], -1, -1, -1), value.expand(query.shape[0], -1, -1, -1)
    masks = {} if block_mask is None else _masks_of(block_mask)
    wants_lse = return_lse or aux is not None and aux[0]
    result = attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), scale=scale, return_lse=wants_lse, score_mod=score_mod, **masks)
    o, lse = result if wants_lse else (result, None)
    o = o.transpose(1, 2)
    return (o, AuxOutput(lse, None)) if aux is not None else (o, lse) if return_lse else o
