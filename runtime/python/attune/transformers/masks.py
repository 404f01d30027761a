# SPDX-License-Identifier: Apache-2.0
"""The mask function of transformers' AttentionMaskInterface. Once per forward pass it turns transformers' description
of a mask into keywords of attune.attention(), in a MaskRule that all layers share. mask_patterns.py recognises mask
functions."""
import functools
import inspect

import torch
from transformers import masking_utils

from ..core.library import Error
from ..score.programs import bind, mask_mod
from .mask_patterns import all_of, pattern_of, plain, shifted
from .mask_rule import MaskRule, of_bound

# Model types whose code takes another path if its mask is a BlockMask.
ASK_FOR_BLOCK_MASKS = {"doge"}
_STARTS = "return kv_idx >= starts[batch];"
_TAKES_CACHE_POSITION = "cache_position" in inspect.signature(masking_utils.sdpa_mask).parameters  # transformers 4.5x


def _may_read(device):
    """True if values may be read from the device now: not while a program is traced or a CUDA graph is captured."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return False
    return device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def _numbers(*values):
    """Returns the values of tensors of one element, after one wait for the device; other values are returned unchanged.
    """
    read = [value for value in values if isinstance(value, torch.Tensor)]
    found = iter(torch.stack([one.reshape(()).to(torch.int64) for one in read]).tolist() if read else ())
    return [next(found) if isinstance(value, torch.Tensor) else value for value in values]


class _Bound:
    """The least (or greatest) of ints and, separately, of tensors [batch]. Ints cut off keys on the host; tensors are
    passed to kernels."""

    def __init__(self, choose, choose_tensors):
        self.number = self.tensor = None
        self._choose, self._choose_tensors = choose, choose_tensors

    def add(self, value):
        if isinstance(value, torch.Tensor):
            self.tensor = value if self.tensor is None else self._choose_tensors(self.tensor, value)
        else:
            self.number = value if self.number is None else self._choose(self.number, value)


class _Mask:
    """Facts about a mask while it is read.

    Rows are row0 to row0 + seqlen_q - 1 and keys key0 to key0 + seqlen_kv - 1 of the sequence; row0 may be a tensor.
    first, end: bounds of the keys that any row sees, counted from key0."""

    def __init__(self, batch, seqlen_q, seqlen_kv, row0, key0, device):
        self.batch, self.seqlen_q, self.seqlen_kv, self.row0, self.key0, self.device = (
            batch, seqlen_q, seqlen_kv, row0, key0, device)
        self.first, self.end = _Bound(max, torch.maximum), _Bound(min, torch.minimum)
        self.rest, self.keywords, self.padding = [], {}, None
        self.may_be_padded_left = False

    def add_padding(self, given, is_whole):
        """Adds padding. given: bool [batch, keys]; keys after its end are hidden. is_whole: True if nothing is padded;
        None if that could not be read."""
        count = given.shape[1]
        if count < self.seqlen_kv:
            self.end.add(count)
        if is_whole:
            return
        self.may_be_padded_left, self.padding = True, given
        if is_whole is None or count == 0:
            return
        kept, numbers = given.sum(1), given.to(torch.int32)
        first, end = numbers.argmax(1), count - numbers.flip(1).argmax(1)
        end = torch.where(kept == 0, 0, end)
        in_one_piece, from_start, to_end = _numbers(((end - first == kept) | (kept == 0)).all(), (first == 0).all(),
                                                    (end == count).all())
        self.may_be_padded_left = self.key0 > 0 or not from_start
        if in_one_piece:
            self.padding = None
            if not from_start:
                self.first.add(first)
            if not to_end:
                self.end.add(end)

    def add_row(self, pattern):
        """Adds the pattern of one row: it sees the keys between two bounds."""
        at = self.row0 - self.key0
        if pattern.causal:
            self.end.add(at + 1)
        if pattern.window is not None:
            self.first.add(at + 1 - pattern.window)
        if pattern.distance is not None:
            self.first.add(at - pattern.distance)
            self.end.add(at + pattern.distance + 1)
        for size, _, function in pattern.chunks:
            if self.may_be_padded_left:
                self.rest.append(function)
            else:
                self.first.add(self.row0 // size * size - self.key0)
                self.end.add((self.row0 // size + 1) * size - self.key0)

    def add_rows(self, pattern):
        """Adds the pattern of several rows, whose first position is known. If the diagonal ends at the last remaining
        key, the pattern becomes keywords; otherwise it becomes a program."""
        last = self.row0 + self.seqlen_q - self.key0
        if pattern.causal:
            self.end.add(last)
        stop = self._stop()
        on_diagonal = last == stop
        if pattern.causal and on_diagonal:
            self.keywords["mask"] = "causal_bottom_right"
        elif pattern.causal:
            self.rest.append(masking_utils.causal_mask_function)
        left = min(
            (x for x in (None if pattern.window is None else pattern.window - 1, pattern.distance) if x is not None),
            default=None)
        self._add_window(left, None if pattern.causal else pattern.distance, stop, on_diagonal)
        for size, _, function in pattern.chunks:
            if self.key0 + stop <= size:
                continue
            if on_diagonal and not self.may_be_padded_left and self.key0 % size == 0 and "chunk" not in self.keywords:
                self.keywords["chunk"] = size
            else:
                self.rest.append(function)

    def _add_window(self, left, right, stop, on_diagonal):
        """Adds a window: keys farther away are hidden. A window as wide as the keys hides nothing."""
        if on_diagonal:
            left, right = (None if side is not None and side >= stop - 1 else side for side in (left, right))
        if left is None and right is None:
            return
        if on_diagonal:
            self.keywords["window"] = (left, right)
        else:
            far = self.row0 + self.seqlen_q + self.key0 + self.seqlen_kv
            self.rest.append(_near(far if left is None else left, far if right is None else right))

    def add_documents(self, ids, may_read):
        if not (may_read and bool((ids == ids[:, :1]).all())):
            self.keywords["documents"] = ids.to(torch.int32)

    def _stop(self):
        return self.seqlen_kv if self.end.number is None else max(min(self.end.number, self.seqlen_kv), 0)

    def rule(self, use_vmap, as_tensor):
        start, stop = 0, self._stop()
        if isinstance(self.row0, torch.Tensor) and self.end.tensor is not None:
            stop = self.seqlen_kv  # a static cache keeps its length, and so its plan
            self.end.tensor = self.end.tensor.clamp(0, self._stop())
        if self.first.number is not None:  # only one row has this
            start = min(max(self.first.number, 0), stop)
        keywords, functions = self.keywords, []
        if self.end.tensor is not None:
            keywords["key_lengths"] = self._of_batch((self.end.tensor - start).clamp(0, stop - start))
        if self.padding is not None:
            padding = self.padding[:, start:stop]
            hidden = stop - start - padding.shape[1]
            keywords["mask_tensor"] = (torch.nn.functional.pad(padding, (0, hidden)) if hidden else padding)[:, None,
                                                                                                             None, :]
        starts = None if self.first.tensor is None else self._of_batch(self.first.tensor - start)
        if self.rest:
            functions = [shifted(all_of(tuple(self.rest)), self.row0, self.key0 + start)]
        if self.rest and starts is not None:
            functions.append(_from(starts))
        if functions:
            self._add_program(all_of(tuple(functions)), stop - start, use_vmap)
        elif starts is not None:
            keywords["mask_mod"] = mask_mod(_STARTS, starts=starts)
        keys = None if stop - start == self.seqlen_kv else (start, stop)
        return MaskRule((self.batch, 1, self.seqlen_q, self.seqlen_kv), self.device, keys, keywords, as_tensor)

    def _of_batch(self, bound):
        return bound.to(torch.int32).expand(self.batch).contiguous()

    def _add_program(self, function, count, use_vmap):
        """Adds a mask function as a program or, if it cannot be traced, as a tensor."""
        if not torch.compiler.is_compiling():
            try:
                self.keywords["mask_mod"] = of_bound(bind("mask_mod", function))
                return
            except (TypeError, ValueError, AttributeError, RuntimeError, Error):
                pass  # it uses something that the score language lacks
        seen = _tensor(function, self.batch, self.seqlen_q, count, self.device, use_vmap)
        padding = self.keywords.get("mask_tensor")
        self.keywords["mask_tensor"] = seen if padding is None else seen & padding


def _near(left, right):
    def mask(batch, head, q_idx, kv_idx):
        return (q_idx - kv_idx <= left) & (kv_idx - q_idx <= right)
    return mask


def _from(starts):
    def mask(batch, head, q_idx, kv_idx):
        return kv_idx >= starts[batch]
    return mask


def _tensor(function, batch, seqlen_q, seqlen_kv, device, use_vmap, **more):
    """Returns transformers' own mask, bool [batch, 1, seqlen_q, seqlen_kv]."""
    sizes = {"cache_position": torch.arange(seqlen_q, device=device)} if _TAKES_CACHE_POSITION else {
        "q_length": seqlen_q, "device": device}
    return masking_utils.sdpa_mask(
        **{
            "batch_size": batch, "kv_length": seqlen_kv, "mask_function": function, "attention_mask": None,
            "use_vmap": use_vmap, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False, **sizes, **more})


def _extent(number):
    """Returns a length as an int. torch.jit.trace gives lengths as tensors without axes."""
    return int(number) if isinstance(number, torch.Tensor) and number.dim() == 0 else number


def attune_mask(batch_size, q_length=None, kv_length=None, q_offset=0, kv_offset=0,
                mask_function=masking_utils.causal_mask_function, attention_mask=None, cache_position=None, device=None,
                use_vmap=False, config=None, **_):
    """Returns a MaskRule to transformers' create_causal_mask() and similar functions. For models that would mistake it
    for a BlockMask, returns a tensor.

    transformers 4.5x gives cache_position, later versions q_length and q_offset. A static cache has these on the
    device: they are read for several rows, and never for one."""
    batch_size, kv_length, q_length = _extent(batch_size), _extent(kv_length), _extent(q_length)
    if isinstance(q_length, torch.Tensor):
        cache_position = q_length
    row0 = q_offset
    if cache_position is not None:
        q_length, row0, device = cache_position.shape[0], cache_position[0], cache_position.device
    device = torch.device(device if device is not None else "cpu" if attention_mask is None else attention_mask.device)
    place = {
        "cache_position": cache_position
    } if _TAKES_CACHE_POSITION and cache_position is not None else {} if _TAKES_CACHE_POSITION else {"q_offset": row0}
    as_tensor = functools.partial(_tensor, mask_function, batch_size, q_length, kv_length, device, use_vmap,
                                  attention_mask=attention_mask, kv_offset=kv_offset, **place)
    if getattr(config, "model_type", None) in ASK_FOR_BLOCK_MASKS:
        return as_tensor()
    may_read, is_whole = _may_read(device), None
    if may_read:
        wanted = row0 if cache_position is not None or q_length > 1 else None
        whole = None if attention_mask is None else attention_mask[:, :kv_offset + kv_length].all()
        wanted, is_whole = _numbers(wanted, whole)
        row0 = row0 if wanted is None else wanted
    mask = _Mask(batch_size, q_length, kv_length, row0, kv_offset, device)
    if attention_mask is not None:
        mask.add_padding(attention_mask[:, kv_offset:kv_offset + kv_length].to(torch.bool), is_whole)
    if q_length > 1 and isinstance(row0, torch.Tensor):
        mask.rest.append(plain(mask_function))
        return mask.rule(use_vmap, as_tensor)
    pattern = pattern_of(mask_function)
    mask.add_row(pattern) if q_length == 1 else mask.add_rows(pattern)
    mask.rest += pattern.rest
    for ids in pattern.documents:
        mask.add_documents(ids, may_read)
    return mask.rule(use_vmap, as_tensor)
