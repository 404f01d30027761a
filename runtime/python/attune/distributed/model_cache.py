# SPDX-License-Identifier: Apache-2.0
"""SpreadCache: the keys that a rank holds of a transformers model's layers. A prompt's keys stay on the ranks that
computed them, and new tokens are dealt to the ranks in turn. Used by models.py; imports transformers."""
import functools

import torch
from transformers.cache_utils import Cache, DynamicLayer

from .cache_layout import CacheLayout, Step
from .layout import Layout

_ROOM = 256  # keys by which memory grows, so that calls of many steps share a plan


class _Listed(CacheLayout):
    """A layout that lists the position of each key of this rank, int32 [keys]. Positions rise."""

    def __init__(self, group, positions):
        self.group, self.block, self.positions = group, "listed", positions

    def count(self, keys, rank=None):
        return torch.full_like(keys, self.positions.shape[0])

    def most(self, keys):
        return keys

    def position_text(self):
        held = self.positions if self.positions.shape[0] else self.positions.new_zeros(1)
        return "positions[kv_idx]", {"positions": held}


class _Layer(DynamicLayer):
    """The keys of one layer: [batch, room, num_heads_kv, head_dim], of which the first `held` are written."""

    def __init__(self, cache):
        super().__init__()
        self.cache, self.held, self.whole, self.stored = cache, 0, 0, None

    def update(self, key_states, value_states, *args, **kwargs):
        mine, rows = self.cache.mine, (key_states, value_states)
        new = [x.transpose(1, 2) if mine is None else x.transpose(1, 2)[:, mine] for x in rows]
        self._grow(new)
        for stored, x in zip(self.stored, new):
            stored[:, self.held:self.held + x.shape[1]] = x
        self.held += new[0].shape[1]
        self.whole = self.cache.whole
        self.is_initialized = True
        return rows if mine is None else tuple(x.transpose(1, 2) for x in self.stored)

    def _grow(self, new):
        wanted = -(-max(self.held + new[0].shape[1], 1) // _ROOM) * _ROOM
        if self.stored is None or self.stored[0].shape[1] < wanted:
            before, self.stored = self.stored, [x.new_empty((x.shape[0], wanted, *x.shape[2:])) for x in new]
            for old, stored in zip(before or (), self.stored):
                stored[:, :self.held] = old[:, :self.held]

    def get_seq_length(self):
        return self.whole

    def get_mask_sizes(self, query_length):
        return self.whole + query_length, 0

    def reorder_cache(self, beam_idx):
        self.stored = [x.index_select(0, beam_idx.to(x.device)) for x in self.stored]

    def _refused(self, *args, **kwargs):
        raise ValueError("caches of a group can be neither cropped, repeated nor offloaded")

    crop = batch_repeat_interleave = batch_select_indices = offload = reset = _refused


class SpreadCache(Cache):
    """The caches of all layers. whole: tokens of the sequence, with those of the forward that runs. mine: places of its
    tokens that this rank keeps; None: all that the layers give."""

    def __init__(self, group):
        super().__init__(layer_class_to_replicate=functools.partial(_Layer, self))
        self.group, self.whole, self.mine, self.positions = group, 0, None, []

    def get_seq_length(self, layer_idx=0):
        return self.layers[layer_idx].whole if layer_idx < len(self.layers) else 0

    def begin_with(self, layout: Layout):
        """Begins the forward of a prompt that is spread by the layout."""
        self.whole, self.mine = layout.seqlen, None
        self.positions = [token for first, end in layout.mine for token in range(first, end)]

    def begin(self, batch, rows, device):
        """Begins a forward of new tokens that every rank has. Returns its Step."""
        first, world = self.whole, self.group.world
        self.mine = [i for i in range(rows) if (first + i) % world == self.group.rank]
        self.positions += [first + i for i in self.mine]
        self.whole = first + rows
        layout = _Listed(self.group, torch.tensor(self.positions, dtype=torch.int32).to(device))
        return Step(layout, torch.full((batch,), self.whole, dtype=torch.int32, device=device), None, None, None, None)
