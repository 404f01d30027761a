# SPDX-License-Identifier: Apache-2.0
"""torch.nn.attention.flex_attention on attune, with the same signature and meaning. Mods become programs of the score
language, block masks become maps (block_map.py). Tensors are [batch, num_heads, seqlen, head_dim]."""
from collections import namedtuple

from .core.flags import flag
from .core.library import Error
from .core.torch_state import marked_constant
from .score.block_maps import GRANULE_KEYS, GRANULE_ROWS
from .score.programs import mask_mod
from . import block_map as maps
from .ops.attention import attend_heads_first
from .ops.heads_first import refuse_nested
from .adapters.arguments import check_heads, tell_ignored
from .adapters.errors import blamed_heads_first

AuxOutput = namedtuple("AuxOutput", "lse max_scores")
_NAMES = {"q": "query", "k": "key", "v": "value"}  # attention()'s names
_LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")


def _version_of(tensor):
    """Returns the number of writes that a tensor has seen; None if it does not count them."""
    return None if tensor is None or tensor.is_inference() else tensor._version


def _is_of(kept, lists, mask_mod):
    """True if the kept map was made from these very tensors, unchanged. It holds them, because a new tensor may get the
    id of a deleted one."""
    return kept is not None and kept[1] is mask_mod and all(
        one is other and _version_of(one) == version for one, (other, version) in zip(lists, kept[0]))


def _of_small_blocks(block_mask):
    """Returns a mask_mod for blocks too small for a map, combined with the block mask's own; None if all is shown."""
    own, size, shown = block_mask.mask_mod, tuple(block_mask.BLOCK_SIZE), maps.blocks_of(block_mask) != 0
    if shown.all():
        return None if maps.shows_all(own) else own
    if maps.shows_all(own):
        return mask_mod(lambda b, h, q_idx, kv_idx: shown[b, h, q_idx // size[0], kv_idx // size[1]])
    return mask_mod(
        lambda b, h, q_idx, kv_idx: shown[b, h, q_idx // size[0], kv_idx // size[1]] & own(b, h, q_idx, kv_idx))


def _make(block_mask):
    """Returns (lists with their versions, mask_mod, map, mask_mod for attention()). The result is kept on the BlockMask
    until its lists or its mask_mod change.

    If blocks are not multiples of a map's granules there is no map; the mask_mod then reads the lists too."""
    lists = [getattr(block_mask, name) for name in _LISTS]
    own, kept = block_mask.mask_mod, getattr(block_mask, "_attune_map", None)
    if not _is_of(kept, lists, own):
        rows, keys = block_mask.BLOCK_SIZE
        versions = tuple((one, _version_of(one)) for one in lists)
        if rows % GRANULE_ROWS == 0 and keys % GRANULE_KEYS == 0:
            made = maps.from_flex(block_mask), None if maps.shows_all(own) else own
        else:
            made = None, _of_small_blocks(block_mask)
        kept = block_mask._attune_map = (versions, own, *made)
    return kept


def prepare(block_mask):
    """Makes flex_attention()'s map of a BlockMask, before torch.compile or a CUDA graph's capture. Returns the
    BlockMask."""
    _make(block_mask)
    return block_mask


def _refuse_others(query, key, block_mask):
    """Raises if a block mask does not fit query and key."""
    batch, heads = block_mask.kv_num_blocks.shape[:2]
    if batch not in (1, query.shape[0]) or heads not in (1, query.shape[1]):
        raise ValueError(
            f"block_mask is of {batch} batch entries and {heads} heads; must be 1, or those of query: "
            f"{query.shape[0]} and {query.shape[1]}")
    rows, keys = block_mask.seq_lengths
    if rows < query.shape[2] or keys < key.shape[2]:
        raise ValueError(
            f"block_mask is of {rows} rows and {keys} keys; must be at least those of query and key, {query.shape[2]} "
            f"and {key.shape[2]}")


def _masks_of(query, key, block_mask):
    import torch
    if not torch.compiler.is_dynamo_compiling():
        _refuse_others(query, key, block_mask)
        kept = _make(block_mask)
    elif hasattr(block_mask, "_attune_map"):
        kept = block_mask._attune_map
    else:
        raise ValueError(
            "block_mask has no map yet, and torch.compile cannot make one; call attune.flex.prepare(block_mask) "
            "outside the compiled function first")
    return {name: value for name, value in (("block_map", kept[2]), ("mask_mod", kept[3])) if value is not None}


@marked_constant
def _check(return_lse, aux):
    if aux is not None and aux[1]:
        raise ValueError("return_aux has max_scores=True; must be AuxRequest(lse=True), since attune keeps no maxima")
    if aux is not None and return_lse:
        raise ValueError("return_lse is True and return_aux is given; give one of the two")


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False,
                   kernel_options=None, *, return_aux=None):
    """Returns softmax(score_mod(scale * query key^T) where block_mask shows it) value, for FlexAttention's arguments.
    Gradients: of query, key, value and the tensors that score_mod reads.

    query: [batch, num_heads, seqlen_q, head_dim], key: [batch or 1, num_heads_kv, seqlen_kv, head_dim], value: like key
    with head_dim_v. Strides that attention() takes need no copies; others are copied.
    score_mod(score, b, h, q_idx, kv_idx): traced, see attune.score_mod. Tensors of its closure are read anew in each
    call.
    block_mask: a BlockMask. Keys that its mask_mod hides or that its lists leave out are hidden. The first call makes
    its map, and waits for the device; make one call before a CUDA graph's capture. Blocks that are not multiples of 64
    rows and 16 keys have no map: each element looks up its block.
    enable_gqa: num_heads_kv may divide num_heads. kernel_options are ignored with one warning: the tuner chooses them.

    Returns o [batch, num_heads, seqlen_q, head_dim_v]. Its axes have the same order in memory as query's, as with
    PyTorch. With return_lse returns (o, lse), with return_aux=AuxRequest(lse=True) (o, AuxOutput). lse: natural, fp32
    [batch, num_heads, seqlen_q], -inf in rows that see no key.
    Raises ValueError for max_scores, for gradients of tensors that a mask_mod reads, and for what attune.score_mod()
    refuses.

    Inside torch.compile, mods that read tensors must come from attune.score_mod() or attune.mask_mod(), called outside;
    this holds for the mask_mod of a BlockMask too. Call prepare() of the BlockMask outside as well."""
    try:
        if not isinstance(kernel_options, (dict, type(None))):
            raise TypeError(f"kernel_options is of type {type(kernel_options).__name__}; must be a dictionary or None")
        if return_aux is not None and not (hasattr(return_aux, "lse") and hasattr(return_aux, "max_scores")):
            raise TypeError(f"return_aux is of type {type(return_aux).__name__}; must be an AuxRequest or None")
        if block_mask is not None and not hasattr(block_mask, "kv_num_blocks"):
            raise TypeError(f"block_mask is of type {type(block_mask).__name__}; must be a BlockMask or None")
        aux = None if return_aux is None else (return_aux.lse, return_aux.max_scores)
        return_lse, enable_gqa = flag("return_lse", return_lse), flag("enable_gqa", enable_gqa)
        if aux is not None:
            aux = flag("return_aux.lse", aux[0]), flag("return_aux.max_scores", aux[1])
        _check(return_lse, aux)
        if kernel_options:
            tell_ignored("flex_attention", [f"kernel_options={sorted(kernel_options)}"])
        refuse_nested(query, key, value)
        if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
            raise ValueError(
                f"query, key and value have {query.dim()}, {key.dim()} and {value.dim()} dimensions; must be 4: "
                "[batch, num_heads, seqlen, head_dim]")
        check_heads(query, key, enable_gqa)
        if key.shape[0] == 1 and query.shape[0] > 1:
            key, value = key.expand(query.shape[0], -1, -1, -1), value.expand(query.shape[0], -1, -1, -1)
        masks = {} if block_mask is None else _masks_of(query, key, block_mask)
        wants_lse = return_lse or aux is not None and aux[0]
        result = attend_heads_first(query, key, value, scale=scale, return_lse=wants_lse, score_mod=score_mod, **masks)
        o, lse = result if wants_lse else (result, None)
        return (o, AuxOutput(lse, None)) if aux is not None else (o, lse) if return_lse else o
    except (AttributeError, TypeError, ValueError, Error) as error:
        raise blamed_heads_first(error, _NAMES, query, key, value) from None
