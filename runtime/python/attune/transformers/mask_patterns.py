# SPDX-License-Identifier: Apache-2.0
"""Recognises the building blocks of a transformers mask function, and returns what is left. Used by
masks.py.

A block is known by the code of the function that transformers' factory makes, in the installed version. Copies under
other names are other functions."""
import types
from dataclasses import dataclass, field

from transformers import masking_utils

_FACTORIES = ("and_masks", "or_masks", "sliding_window_overlay", "sliding_window_bidirectional_overlay",
              "chunked_overlay", "padding_mask_function", "packed_sequence_mask_function",
              "remap_positions_for_packed_sequence", "add_offsets_to_mask_function")
_FUNCTIONS = ("causal_mask_function", "bidirectional_mask_function")


def _names():
    found = {}
    for name in _FACTORIES:
        factory = getattr(masking_utils, name, None)
        inside = factory.__code__.co_consts if factory else ()
        made = [one for one in inside if isinstance(one, types.CodeType) and not one.co_name.startswith("<")]
        if len(made) == 1:
            found[made[0]] = name
    for name in _FUNCTIONS:
        if hasattr(masking_utils, name):
            found[getattr(masking_utils, name).__code__] = name
    return found


_NAMES = _names()  # by code object


def _read(function):
    """Returns the block's name (None if it is not one), and its closure by name."""
    code = getattr(function, "__code__", None)
    name = _NAMES.get(code)
    if name is None:
        return None, {}
    return name, {variable: cell.cell_contents for variable, cell in zip(code.co_freevars, function.__closure__ or ())}


@dataclass
class Pattern:
    """A mask that is the conjunction of these. Positions are those of the sequence."""
    causal: bool = False
    window: int = None  # number of keys that a row sees, up to itself
    distance: int = None  # greatest distance of keys on either side
    # (size, left_padding, function); left_padding as transformers counts it, [batch]
    chunks: list = field(default_factory=list)
    documents: list = field(default_factory=list)  # ids [batch, seqlen]; rows and keys are the same positions
    # functions (batch, head, q_idx, kv_idx) that the score language can take
    rest: list = field(default_factory=list)

    def add(self, other):
        self.causal |= other.causal
        self.window = min((x for x in (self.window, other.window) if x is not None), default=None)
        self.distance = min((x for x in (self.distance, other.distance) if x is not None), default=None)
        self.chunks += other.chunks
        self.documents += other.documents
        self.rest += other.rest


def all_of(functions):
    def mask(batch, head, q_idx, kv_idx):
        seen = functions[0](batch, head, q_idx, kv_idx)
        for one in functions[1:]:
            seen = seen & one(batch, head, q_idx, kv_idx)
        return seen
    return mask


def any_of(functions):
    def mask(batch, head, q_idx, kv_idx):
        seen = functions[0](batch, head, q_idx, kv_idx)
        for one in functions[1:]:
            seen = seen | one(batch, head, q_idx, kv_idx)
        return seen
    return mask


def shifted(function, q_offset, kv_offset):
    def mask(batch, head, q_idx, kv_idx):
        return function(batch, head, q_idx + q_offset, kv_idx + kv_offset)
    return mask


def _remapped(function, position_ids):
    def mask(batch, head, q_idx, kv_idx):
        return function(batch, head, position_ids[batch, q_idx], position_ids[batch, kv_idx])
    return mask


def plain(function):
    """Returns the same mask, from functions that make no tensors of their own (transformers' new_ones), which the
    tracer does not take."""
    name, given = _read(function)
    if name in ("and_masks", "or_masks"):
        parts = tuple(plain(one) for one in next(iter(given.values())))
        return (all_of if name == "and_masks" else any_of)(parts)
    if name == "remap_positions_for_packed_sequence":
        return _remapped(plain(given["mask_function"]), given["position_ids"])
    if name == "add_offsets_to_mask_function":
        return shifted(plain(given["mask_function"]), given["q_offset"], given["kv_offset"])
    return function


def _unpacked(parts):
    """Returns the parts of a conjunction. In packed sequences positions count up by one within a document, so a mask of
    distances alone is the same over the row's positions."""
    read = [_read(one) for one in parts]
    if any(name == "packed_sequence_mask_function" for name, _ in read):
        for at, (name, given) in enumerate(read):
            if name == "remap_positions_for_packed_sequence":
                inner = pattern_of(given["mask_function"])
                if not (inner.chunks or inner.documents or inner.rest):
                    return [one for i, one in enumerate(parts) if i != at], inner
    return list(parts), Pattern()


def pattern_of(function):
    """Returns the Pattern of a mask function."""
    name, given = _read(function)
    if name == "causal_mask_function":
        return Pattern(causal=True)
    if name == "bidirectional_mask_function":
        return Pattern()
    if name == "sliding_window_overlay" and isinstance(given.get("sliding_window"), int):
        return Pattern(window=given["sliding_window"])
    if name == "sliding_window_bidirectional_overlay" and isinstance(given.get("sliding_window"), int):
        return Pattern(distance=given["sliding_window"])
    if name == "chunked_overlay" and isinstance(given.get("chunk_size"), int):
        return Pattern(chunks=[(given["chunk_size"], given["left_padding"], function)])
    if name == "packed_sequence_mask_function":
        return Pattern(documents=[given["packed_sequence_mask"]])
    if name == "and_masks":
        parts, whole = _unpacked(next(iter(given.values())))
        for one in parts:
            whole.add(pattern_of(one))
        return whole
    return Pattern(rest=[plain(function)])
