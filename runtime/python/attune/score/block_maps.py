# SPDX-License-Identifier: Apache-2.0
"""The BlockMap that attention() and Plan.run() take. ../block_map.py makes such maps."""
from ..core import tensors
from ..core.flags import flag
from ..core.library import module
from ..core.problem import whole
from ..core.torch_state import refuse_gradients

GRANULE_ROWS, GRANULE_KEYS = 64, 16
SKIPS, HIDES = 1, 2  # attune_block_map_use


class BlockMap:
    """A map of blocks over rows [0, seqlen_q) and keys [0, seqlen_kv) of a sequence.

    granules: uint8 [batch or 1, num_heads_q or 1, ceil(seqlen_q / 64), ceil(seqlen_kv / 16)], on q's device. An axis of
    1 broadcasts. A granule covers 64 rows and 16 keys. Its value is 0 if no row sees any of the keys, 3 if each row
    sees all of them, and 1 if some are seen or nothing is known. Each call reads the granules, so they may change
    between calls.
    hides: if True, the map is a mask, alone or with others: keys of granules with value 0 are hidden. If False, the map
    describes attention()'s masks, which must be given with it. It then changes results only by rounding; a map of other
    masks gives wrong results.

    A map of masks holds for their current values: if captured tensors change, make a new map.
    Raises ValueError or TypeError if granules do not fit the lengths."""

    def __init__(self, granules, seqlen_q, seqlen_kv, hides=True):
        refuse_gradients([("granules", granules)])
        if not (tensors.is_torch(granules) or tensors.is_numpy(granules)):
            tensors.refuse_kind("granules", granules)
        tensors.check_plain("granules", granules)
        tensors.check_rank("granules", granules, "[batch, num_heads_q, seqlen_q / 64, seqlen_kv / 16]")
        if tensors.dtype_text(granules.dtype) != "uint8":
            raise ValueError(f"granules is {tensors.dtype_text(granules.dtype)}; must be uint8")
        hides = flag("hides", hides)
        lengths = tuple(whole(name, value) for name, value in (("seqlen_q", seqlen_q), ("seqlen_kv", seqlen_kv)))
        wanted = tuple(-(-length // step) for length, step in zip(lengths, (GRANULE_ROWS, GRANULE_KEYS)))
        if min(lengths) < 1 or tuple(granules.shape[2:]) != wanted or 0 in granules.shape:
            raise ValueError(
                f"granules has shape {tuple(granules.shape)}; for seqlen_q {lengths[0]} and seqlen_kv {lengths[1]} it "
                f"must be (batch or 1, num_heads_q or 1, {', '.join(map(str, wanted))})")
        strides = tensors.element_strides("granules", granules)
        if strides[3] != 1 and wanted[1] > 1 or min(strides) < 0:
            raise ValueError(
                f"granules has strides {tuple(strides)}; must be at least 0, and 1 in keys (copy the tensor)")
        self.granules, self.hides, (self.seqlen_q, self.seqlen_kv) = granules, hides, lengths
        self.wants_masks = not hides
        self.struct = module.BlockMapStruct(tensors.address("granules", granules),
                                     *granules.shape[:2], *lengths, *strides[:3])

    def __reduce__(self):
        """Returns how copies and pickles rebuild the map: the address in its struct is valid only in this object."""
        return _again, (self.granules, self.seqlen_q, self.seqlen_kv, self.hides, self.wants_masks)

    def __repr__(self):
        return (
            f"<attune.BlockMap {tuple(self.granules.shape)} on {tensors.target_of(self.granules)} of {self.seqlen_q} "
            f"rows and {self.seqlen_kv} keys{', a mask by itself' if self.hides else ''}>")


def _again(granules, seqlen_q, seqlen_kv, hides, wants_masks):
    made = BlockMap(granules, seqlen_q, seqlen_kv, hides)
    made.wants_masks = wants_masks
    return made


def use_of(block_map, has_masks):
    """Returns attune_problem.block_map for a call with this map. has_masks: the call has masks that a map may describe.
    """
    if not isinstance(block_map, BlockMap):
        raise TypeError(
            f"block_map is of type {type(block_map).__name__}; must be a result of attune.block_map, or None")
    if has_masks:
        return HIDES if block_map.hides else SKIPS
    if block_map.wants_masks:
        raise ValueError(
            "block_map describes masks, and no mask is given; give the masks that it was made from too (mask_mod, "
            "mask_tensor, key_lengths, documents, prefix, chunk)")
    return HIDES
