# SPDX-License-Identifier: Apache-2.0
"""CacheLayout: the keys of requests that each rank holds in its cache. Step: the lists that all layers of one decoding
step share. Group.cache_layout() makes layouts. Used by decode.py."""
import sys

from ..core.problem import whole
from ..score.programs import mask_mod


def joins_of(world):
    """Returns the joins of the states of `world` ranks: triples (first, other, count). Each joins `count` states from
    `other` on into those from `first` on. The last one leaves the sum in state 0."""
    joins, left = [], world
    while left > 1:
        half = left // 2
        joins.append((0, half, half))
        if left % 2:
            joins.append((0, 2 * half, 1))
        left = half
    return joins


class CacheLayout:
    """Deals the keys of each request to the ranks of a group, in blocks of `block` keys, in turn. Key p is on rank
    p // block % world, at place p // (block * world) * block + p % block of that rank's keys.

    A block as large as a rank's room gives each rank one range. Layouts do not change, and keep their group alive."""

    def __init__(self, group, block):
        self.group, self.block = group, whole("block", block)
        if self.block < 1:
            raise ValueError(f"block is {block}; must be at least 1")
        self.period = self.block * group.world

    def _rank(self, rank):
        rank = self.group.rank if rank is None else whole("rank", rank)
        if not 0 <= rank < self.group.world:
            raise ValueError(f"rank is {rank}; must be 0 to {self.group.world - 1}")
        return rank

    def count(self, keys, rank=None):
        """Returns how many of a request's first `keys` keys a rank holds. keys: a number, or an int tensor. rank: by
        default this one."""
        rank, keys = self._rank(rank), keys if hasattr(keys, "clamp") else whole("keys", keys)
        rest = keys % self.period - rank * self.block
        rest = min(max(rest, 0), self.block) if isinstance(keys, int) else rest.clamp(0, self.block)
        return keys // self.period * self.block + rest

    def rank_of(self, position):
        """Returns the rank that holds a key. position: a number, or an int tensor; so for place_of()."""
        return position // self.block % self.group.world

    def place_of(self, position):
        """Returns the place of a key among the request's keys on its rank."""
        return position // self.period * self.block + position % self.block

    def position_of(self, place, rank=None):
        """Returns the position of the key at a place of a rank, by default this one."""
        rank = self._rank(rank)
        return place // self.block * self.period + rank * self.block + place % self.block

    def position_text(self):
        """Returns position_of() of this rank's keys in the score language, with the numbers that it names."""
        text = f"kv_idx / {self.block} * {self.period} + kv_idx % {self.block} + first_position"
        return text, {"first_position": self.group.rank * self.block}

    def most(self, keys):
        """Returns the most keys that a rank holds of any `keys` successive ones: a number."""
        keys = whole("keys", keys)
        return keys // self.period * self.block + min(keys % self.period, self.block)

    def step(self, kv_lengths, *, page_table=None, slots=None, q_begins=None, seqlen_q=None):
        """Returns a Step. Every rank must give the same kv_lengths and q_begins.

        kv_lengths: int32 [batch], keys of each request on all ranks together, including its newest tokens. page_table
        (int32 [batch, pages]) and slots (int32 [batch]): the places of this rank's keys, as in
        attune.attention_kvcache(). q_begins (int32 [batch + 1]) and seqlen_q: for packed rows, as there.
        All lists are on the device of the caches. Nothing waits for the host: make the step inside a CUDA graph's
        capture, and the replayed graph follows new values of the lists."""
        return Step(self, kv_lengths, page_table, slots, q_begins, seqlen_q)

    def __repr__(self):
        return f"CacheLayout(rank={self.group.rank}, world={self.group.world}, block={self.block})"


class Step:
    """The lists of one decoding step. lengths: int32 [batch], keys of each request that this rank holds."""

    def __init__(self, layout, kv_lengths, page_table, slots, q_begins, seqlen_q):
        torch = sys.modules["torch"]
        if not isinstance(kv_lengths, torch.Tensor) or kv_lengths.dtype != torch.int32 or kv_lengths.dim() != 1:
            found = f"{kv_lengths.dtype} {tuple(kv_lengths.shape)}" if isinstance(kv_lengths, torch.Tensor) else type(
                kv_lengths).__name__
            raise TypeError(f"kv_lengths is {found}; must be an int32 PyTorch tensor [batch]")
        if page_table is not None and slots is not None:
            raise ValueError("page_table and slots are given; give at most one")
        if (q_begins is None) != (seqlen_q is None):
            raise ValueError("q_begins and seqlen_q must both be given, or neither")
        self.layout, self.kv_lengths, self.page_table, self.slots = layout, kv_lengths, page_table, slots
        self.q_begins, self.seqlen_q = q_begins, None if seqlen_q is None else whole("seqlen_q", seqlen_q)
        self.lengths = kv_lengths if layout.group.world == 1 else layout.count(kv_lengths)
        self.lists = dict(page_table=page_table, slots=slots, q_begins=q_begins, seqlen_q=self.seqlen_q)
        # what calls of all ranks must have in common, beside values on the device
        self.told = f"block {layout.block}, requests {kv_lengths.shape[0]}, seqlen_q {self.seqlen_q}"
        self._kept = {}

    def _rows(self, count):
        """Returns (request, position) of each new row, int tensors of equal shape; position is below 0 for rows that no
        request holds. count: rows of a request, or packed rows of all."""
        torch, lengths = sys.modules["torch"], self.kv_lengths
        row = torch.arange(count, device=lengths.device, dtype=torch.int32)
        if self.q_begins is None:
            request = torch.arange(lengths.shape[0], device=lengths.device)[:, None].expand(-1, count)
            return request, lengths[:, None] - count + row
        request = torch.bucketize(row, self.q_begins[1:].contiguous(), right=True)
        known = (request < lengths.shape[0]) & (row >= self.q_begins[0])
        request = request.clamp(max=lengths.shape[0] - 1)
        return request, torch.where(known, lengths[request] - self.q_begins[request + 1] + row, -1)

    def places(self, count, page_size):
        """Returns (row_slots, positions) of append_kv() for new rows, int32. Rows of other ranks have the slot -1.
        page_size: keys of a page, or of a slot."""
        found = self._kept.get((count, page_size))
        if found is not None:
            return found
        torch, layout = sys.modules["torch"], self.layout
        request, position = self._rows(count)
        mine = (position >= 0) & (layout.rank_of(position) == layout.group.rank)
        place = layout.place_of(position.clamp(min=0))
        page = place // page_size
        if self.page_table is not None:
            mine = mine & (page < self.page_table.shape[1])
            at = self.page_table[request, page.clamp(max=self.page_table.shape[1] - 1)]
        else:
            mine = mine & (page == 0)
            at = request if self.slots is None else self.slots[request]
        slots = torch.where(mine, at * page_size + place % page_size, -1).to(torch.int32)
        self._kept[count, page_size] = found = slots, position.to(torch.int32)
        return found

    def mask(self, left, right):
        """Returns a program that shows the keys of this rank from `left` before to `right` after a row's position; a
        negative side is open."""
        found = self._kept.get((left, right, "mask"))
        if found is None:
            position, given = self.layout.position_text()
            sides = ["position <= row + right"] * (right >= 0) + ["position >= row - left"] * (left >= 0)
            text = (f"int row = whole_lengths[batch] - seqlen_kv + q_idx;\nint position = {position};\n"
                    f"return {' && '.join(sides)};")
            given.update((name, side) for name, side in (("left", left), ("right", right)) if side >= 0)
            found = mask_mod(text, whole_lengths=self.kv_lengths, **given)
            self._kept[left, right, "mask"] = found
        return found
