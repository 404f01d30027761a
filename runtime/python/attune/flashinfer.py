# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's cascade on attune: MultiLevelCascadeAttentionWrapper with plan() and run(). What attune alone has is attune.cascade()."""
from ._cascade import cascade, prepare_cascade

LAYOUTS = ("NHD", "HND")


def _level(qo_indptr, kv_indptr, kv_indices, last_page_len, page_size, device):
    """What cascade() takes of a level but its cache: FlashInfer's lists of pages as a table."""
    import torch
    begins, pages, indices, last = (torch.as_tensor(x).cpu().long() for x in (qo_indptr, kv_indptr, kv_indices, last_page_len))
    groups = begins.numel() - 1
    if groups < 0 or pages.numel() != groups + 1 or last.numel() != groups:
        raise ValueError(f"qo_indptr has {begins.numel()} numbers, paged_kv_indptr {pages.numel()} and paged_kv_last_page_len {last.numel()}; accepted are "
                         "n + 1, n + 1 and n of n groups")
    counts = pages[1:] - pages[:-1]
    if groups and (pages[0] != 0 or counts.min() < 0 or int(pages[-1]) > indices.numel()):
        raise ValueError(f"paged_kv_indptr goes from {int(pages[0])} to {int(pages[-1])} and there are {indices.numel()} indices; accepted are numbers from 0 on "
                         "that do not fall, up to as many")
    width = max(int(counts.max()) if groups else 0, 1)
    table = torch.full((groups, width), -1, dtype=torch.int32)
    places = torch.arange(width)[None] < counts[:, None]
    table[places] = indices[:int(pages[-1])].int()
    lengths = torch.where(counts > 0, (counts - 1) * page_size + last, torch.zeros_like(counts))
    rows = int((begins[1:] - begins[:-1]).max()) if groups else 0
    return dict(q_begins=begins.int().to(device), seqlen_q=rows, kv_lengths=lengths.int().to(device), page_table=table.to(device))


class MultiLevelCascadeAttentionWrapper:
    """FlashInfer's wrapper of the same name. plan() turns lists of pages into tables on the device, once for all layers of a step; run() may be captured
    into a CUDA graph, which then follows later plans of no more pages and rows (they are copied into the tensors of the first). Lists on the CPU
    are for caches on the CPU: one of them at least is on the GPU else.

    num_levels: 1 and more, from the widest prefix to each request. float_workspace_buffer is not used. kv_layout: NHD or HND."""

    def __init__(self, num_levels, float_workspace_buffer=None, kv_layout="NHD", **unused):
        if kv_layout not in LAYOUTS:
            raise ValueError(f"kv_layout is {kv_layout!r}; accepted are {' and '.join(LAYOUTS)}")
        if num_levels < 1:
            raise ValueError(f"num_levels is {num_levels}; accepted are 1 and more")
        self._num_levels, self._layout, self._levels, self._choices = num_levels, kv_layout, None, None

    def plan(self, qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
             causal=False, sm_scale=None, logits_soft_cap=None, **unused):
        """Lists of tensors, one a level, as FlashInfer has them: qo_indptr [groups + 1], paged_kv_indptr [groups + 1], paged_kv_indices [pages],
        paged_kv_last_page_len [groups]. causal counts in the last level."""
        lists = (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len)
        if any(len(one) != self._num_levels for one in lists):
            raise ValueError(f"there are {[len(one) for one in lists]} lists; accepted are {self._num_levels} of each, one a level")
        devices = [one.device for of_levels in lists for one in of_levels if hasattr(one, "device")]
        device = next((device for device in devices if device.type == "cuda"), "cpu")
        levels = [_level(*of_level, page_size, device) for of_level in zip(*lists)]
        self._levels = levels if self._levels is None else [self._taken(*pair) for pair in zip(self._levels, levels)]
        self._choices = dict(is_causal=bool(causal), scale=sm_scale, softcap=logits_soft_cap or None)

    @staticmethod
    def _taken(held, level):
        """The level in the tensors that graphs have captured, where it fits them."""
        table, new = held["page_table"], level["page_table"]
        fits = table.shape[0] == new.shape[0] and table.shape[1] >= new.shape[1] and held["seqlen_q"] >= level["seqlen_q"]
        if not fits or table.device != new.device:
            return level
        table[:, :new.shape[1]].copy_(new)
        for name in ("q_begins", "kv_lengths"):
            held[name].copy_(level[name])
        return held

    def _given(self, paged_kv_cache):
        if self._levels is None:
            raise RuntimeError("run() is called before plan(); accepted is plan() first")
        k, v = paged_kv_cache if isinstance(paged_kv_cache, (tuple, list)) else (paged_kv_cache[:, 0], paged_kv_cache[:, 1])
        if self._layout == "HND":
            k, v = k.transpose(1, 2), v.transpose(1, 2)
        return [dict(level, k_cache=k, v_cache=v) for level in self._levels]

    def run(self, q, paged_kv_cache):
        """q: [rows, num_qo_heads, head_dim]. paged_kv_cache: [pages, 2, page_size, num_kv_heads, head_dim] (HND: [pages, 2, num_kv_heads, page_size,
        head_dim]), or a pair of K and V without the second axis. Returns [rows, num_qo_heads, head_dim]."""
        return cascade(q, self._given(paged_kv_cache), **self._choices)

    def prepare(self, q, paged_kv_cache):
        """Before run() is captured into a CUDA graph."""
        return prepare_cascade(q, self._given(paged_kv_cache), **self._choices)

    begin_forward = plan
    forward = run
