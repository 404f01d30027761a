# SPDX-License-Identifier: Apache-2.0
"""Maps of blocks: which granules of 64 rows and 16 keys a mask shows, independent of a kernel's tiles.

A map is built once on the device from masks, or made from other libraries' lists. Any number of layers and steps give
it to attention(..., block_map=).

    block_map = attune.block_map.build(q, k, mask_mod=mask)                     # once
    o = attune.attention(q, k, v, mask_mod=mask, block_map=block_map)           # in each layer
    block_map = attune.block_map.from_blocks(blocks, 128, 128, seqlen, seqlen)  # block-sparse: a mask by itself
    o = attune.attention(q, k, v, mask="causal", block_map=block_map)
"""
import sys
from collections import namedtuple

from .core import tensors
from .core.library import module
from .core.problem import check_beside, whole, word
from .core.torch_state import ordinal_of, refuse_recording, stream_address
from .score.block_maps import GRANULE_KEYS, GRANULE_ROWS, BlockMap
from .score.scores import scores_of
from .ops.context import context_of, parse

_PART, _WHOLE = 1, 3  # values of a map's bytes
_FLEX = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "BLOCK_SIZE", "seq_lengths")
_Reader = namedtuple("_Reader", "problem target")  # the attributes of a plan that Scores.operands() reads


def _asked(q, k, mask, **masks):
    """Returns the problem of a map, its layout, and the masks' scores."""
    for name, tensor in (("q", q), ("k", k)):
        check_beside(name, tensor, q)
        tensors.check_rank(name, tensor, tensors.DIMENSIONS[tensors.ROWS])
    scores = scores_of(**masks)
    if scores is None:
        raise ValueError(
            "no mask is given; must be mask_mod, mask_tensor, key_lengths, documents, prefix or chunk (mask and window "
            "need no map)")
    head_dim = max(16, -(-q.shape[3] // 8) * 8)
    diagonal = word("mask", {None: "none", "causal": "causal_bottom_right"}.get(mask, mask))
    problem = parse(
        f"head_dim={head_dim},heads={q.shape[2]}/{k.shape[2]},batch={q.shape[0]},seqlen_q={q.shape[1]},"
        f"seqlen_kv={k.shape[1]},mask={diagonal}{scores.text}", scores.programs())
    return problem, module.block_map_layout(problem), scores


def axes_of(q, k, *, mask=None, context=None, **masks):
    """Returns two flags: True if build()'s map with these arguments has an axis of batch entries, and True if it has an
    axis of heads. q and k must have more than one of each."""
    _, layout, _ = _asked(q, k, mask, **masks)
    return layout.batch > 1, layout.num_heads > 1


def build(q, k, *, mask=None, mask_mod=None, mask_tensor=None, key_lengths=None, documents=None, prefix=None,
          chunk=None, context=None):
    """Builds the BlockMap of masks, for calls of attention() with the same masks. Returns it.

    q: [batch, seqlen_q, num_heads_q, head_dim], k: [batch, seqlen_kv, num_heads_kv, head_dim]: tensors with the calls'
    shapes and device; their values are not read. mask: as in attention(); it moves prefix and chunk, and is not part of
    the map. Masks that are equal for all batch entries or heads get one map for all.
    Enqueues one launch on PyTorch's current stream; on the CPU it returns when the work is done. It may compile a
    kernel, so call it before the capture of a CUDA graph.
    Raises ValueError if no mask is given, ValueError or TypeError if arguments do not fit, and attune.Error if the
    library refuses."""
    refuse_recording("block_map.build()")
    target = tensors.check_device("q", q)
    problem, layout, scores = _asked(q, k, mask, mask_mod=mask_mod, mask_tensor=mask_tensor, key_lengths=key_lengths,
                                     documents=documents, prefix=prefix, chunk=chunk)
    rows, keys = -(-layout.seqlen_q // GRANULE_ROWS), -(-layout.seqlen_kv // GRANULE_KEYS)
    memory = tensors.empty(q, (layout.batch, layout.num_heads, rows, layout.row_stride), _uint8(q))
    made = BlockMap(memory[..., :keys], layout.seqlen_q, layout.seqlen_kv, hides=False)
    module.block_map_build(
        context_of(context, target)._handle, problem, scores.operands(_Reader(problem, target)), made.struct,
        stream_address(None, ordinal_of(target)))
    return made


def from_blocks(blocks, block_rows, block_keys, seqlen_q, seqlen_kv):
    """Returns the BlockMap that shows blocks of block_rows rows and block_keys keys, as a mask by itself.

    blocks: bool (or uint8: 0 is False) [batch or 1, num_heads_q or 1, ceil(seqlen_q / block_rows), ceil(seqlen_kv /
    block_keys)]: True shows a block. block_rows must be a multiple of 64, block_keys of 16. Raises ValueError or
    TypeError if arguments do not fit."""
    if not (tensors.is_torch(blocks) or tensors.is_numpy(blocks)):
        tensors.refuse_kind("blocks", blocks)
    tensors.check_rank("blocks", blocks, "[batch, num_heads_q, blocks of rows, blocks of keys]")
    if tensors.dtype_text(blocks.dtype) not in ("bool", "uint8"):
        raise ValueError(f"blocks is {tensors.dtype_text(blocks.dtype)}; must be bool or uint8")
    return _of_blocks("blocks", (blocks != 0) * _like(blocks, _WHOLE), block_rows, block_keys, seqlen_q, seqlen_kv,
                      True)


def shows_all(mask_mod):
    """True if the mask_mod shows all keys: None, or the default of a BlockMask that was made from lists alone."""
    return mask_mod is None or mask_mod is getattr(sys.modules.get("torch.nn.attention.flex_attention"), "noop_mask",
                                                   None)


def from_flex(block_mask, hides=True):
    """Returns the BlockMap of a torch.nn.attention.flex_attention.BlockMask whose BLOCK_SIZE has multiples of 64 and
    16.

    Blocks in no list are hidden. Those of full_kv_indices must be blocks that the mask_mod shows whole, as
    create_block_mask() finds them. Those of kv_indices are seen in part, so give attention() the mask_mod too:
    attention(q, k, v, mask_mod=block_mask.mask_mod, block_map=from_flex(block_mask)). A mask with only full blocks
    needs no mask_mod. Neither does one made from lists alone (BlockMask.from_kv_blocks() without a mask_mod), which
    shows all blocks in its lists.
    hides: True is right for all lists. False is faster, but right only if the lists were made from attention()'s
    mask_mod, which then hides all unlisted blocks and shows all full blocks.

    Waits for the device once. Raises ValueError for other block sizes, and for lists that name a missing block."""
    missing = [name for name in _FLEX if not hasattr(block_mask, name)]
    if missing:
        raise TypeError(
            f"block_mask is of type {type(block_mask).__name__} without {', '.join(missing)}; must be a BlockMask of "
            f"flex_attention")
    rows, keys = block_mask.BLOCK_SIZE
    seqlen_q, seqlen_kv = (int(length) for length in block_mask.seq_lengths)
    blocks = blocks_of(block_mask)
    made = _of_blocks("block_mask", blocks, rows, keys, seqlen_q, seqlen_kv, hides)
    made.wants_masks = bool((blocks == _PART).any())
    return made


def blocks_of(block_mask):
    """Returns uint8 [batch or 1, num_heads or 1, blocks of rows, blocks of keys]: each block's value in a map, from a
    BlockMask's lists."""
    count = -(-int(block_mask.seq_lengths[1]) // block_mask.BLOCK_SIZE[1])
    blocks = _listed("kv", block_mask.kv_num_blocks, block_mask.kv_indices,
                     count) * (_WHOLE if shows_all(getattr(block_mask, "mask_mod", block_mask)) else _PART)
    if block_mask.full_kv_num_blocks is not None:
        blocks = blocks | _listed("full_kv", block_mask.full_kv_num_blocks, block_mask.full_kv_indices, count) * _WHOLE
    return blocks


def from_cudnn(block_mask, seqlen_q, seqlen_kv, bit_order="little"):
    """Returns the BlockMap of cuDNN's block mask.

    block_mask: uint8 [batch, num_heads_q, ceil(seqlen_q / 128), ceil(seqlen_kv / 1024)], a bit per tile of 128 rows and
    keys, 8 tiles of keys per byte; 1: seen. bit_order: "little" if a byte's first tile is its lowest bit, else "big".
    Raises ValueError or TypeError if arguments do not fit."""
    if not (tensors.is_torch(block_mask) or tensors.is_numpy(block_mask)):
        tensors.refuse_kind("block_mask", block_mask)
    tensors.check_rank("block_mask", block_mask, "[batch, num_heads_q, seqlen_q / 128, seqlen_kv / 1024]")
    if tensors.dtype_text(block_mask.dtype) != "uint8":
        raise ValueError(f"block_mask is {tensors.dtype_text(block_mask.dtype)}; must be uint8")
    if bit_order not in ("little", "big"):
        raise ValueError(f"bit_order is {bit_order!r}; must be 'little' or 'big'")
    seqlen_kv, bytes_ = whole("seqlen_kv", seqlen_kv), block_mask.shape[3]
    if bytes_ != -(-seqlen_kv // 1024):
        raise ValueError(
            f"block_mask has {bytes_} bytes of keys; for seqlen_kv {seqlen_kv} it must have {-(-seqlen_kv // 1024)}")
    bits = [(block_mask >> (place if bit_order == "little" else 7 - place)) & 1 for place in range(8)]
    stack = sys.modules["torch"].stack if tensors.is_torch(block_mask) else sys.modules["numpy"].stack
    blocks = stack(bits, -1).reshape(*block_mask.shape[:3], bytes_ * 8)[..., :-(-seqlen_kv // 128)]
    return from_blocks(blocks, 128, 128, seqlen_q, seqlen_kv)


def _uint8(like):
    return sys.modules["torch"].uint8 if tensors.is_torch(like) else "uint8"


def _like(tensor, number):
    """Returns a number that keeps products with the tensor at uint8."""
    return sys.modules["torch"].tensor(number, dtype=_uint8(tensor), device=tensor.device) if tensors.is_torch(
        tensor) else sys.modules["numpy"].uint8(number)


def _repeated(blocks, times, axis):
    return blocks.repeat_interleave(times, axis) if tensors.is_torch(blocks) else blocks.repeat(times, axis)


def _of_blocks(name, blocks, block_rows, block_keys, seqlen_q, seqlen_kv, hides):
    sizes = whole("block_rows", block_rows), whole("block_keys", block_keys)
    lengths = whole("seqlen_q", seqlen_q), whole("seqlen_kv", seqlen_kv)
    for what, size, granule in zip(("block_rows", "block_keys"), sizes, (GRANULE_ROWS, GRANULE_KEYS)):
        if size < 1 or size % granule:
            raise ValueError(f"{what} is {size}; must be a multiple of {granule}, a map's granule")
    wanted = tuple(-(-length // size) for length, size in zip(lengths, sizes))
    if tuple(blocks.shape[2:]) != wanted:
        raise ValueError(
            f"{name} has {tuple(blocks.shape[2:])} blocks; for seqlen_q {lengths[0]} and seqlen_kv {lengths[1]} in "
            f"blocks of {sizes} it must have {wanted}")
    granules = _repeated(_repeated(blocks, sizes[0] // GRANULE_ROWS, 2), sizes[1] // GRANULE_KEYS, 3)
    granules = granules[:, :, :-(-lengths[0] // GRANULE_ROWS), :-(-lengths[1] // GRANULE_KEYS)]
    return BlockMap(granules.contiguous() if tensors.is_torch(granules) else granules.copy(), *lengths, hides=hides)


def _listed(name, counts, indices, count):
    """Returns uint8 [batch, num_heads, blocks of rows, `count`]: 1 where a list has the block."""
    torch = sys.modules["torch"]
    places = torch.arange(indices.shape[-1], device=indices.device) < counts[..., None]
    outside = places & ((indices < 0) | (indices >= count))
    if bool(outside.any()):
        raise ValueError(f"{name}_indices names block {int(indices[outside][0])}; must be 0 to {count - 1}")
    found = torch.zeros((*indices.shape[:-1], count + 1), dtype=torch.uint8, device=indices.device)
    found.scatter_(-1, torch.where(places, indices, count).long(), 1)
    return found[..., :count]
