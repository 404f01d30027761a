# SPDX-License-Identifier: Apache-2.0
"""What FlashInfer's wrappers with plan() and run() share, on attention_kvcache(). Used by decode.py, prefill.py, attention.py and mla.py."""
from . import _lists as lists
from .._flags import flag
from .._kvcache import attention_kvcache
from .._scores import alibi_slopes


def positions_of(pos_encoding_mode, num_heads, device, looks_ahead, logits_soft_cap):
    """Slopes, where the mode is ALIBI; `looks_ahead`: rows see keys behind their own place, for which FlashInfer's distance has a sign. They count from a
    row's own place, in lse too."""
    if pos_encoding_mode == "NONE":
        return {}
    if pos_encoding_mode == "ALIBI" and logits_soft_cap:
        raise ValueError(f"logits_soft_cap is {logits_soft_cap} and pos_encoding_mode 'ALIBI'; accepted is one of them: attune caps scores before slopes, and "
                         "FlashInfer behind them")
    if pos_encoding_mode != "ALIBI" or looks_ahead:
        raise ValueError(f"pos_encoding_mode is {pos_encoding_mode!r}; accepted are 'NONE', and 'ALIBI' under a causal mask: append_kv(cos=, sin=, q=) turns k "
                         "and q by rotary angles when k is written")
    import torch
    return {"alibi_slopes": torch.tensor(alibi_slopes(num_heads), dtype=torch.float32, device=device)}


def window_of(window_left):
    return None if window_left is None or window_left < 0 else (int(window_left), None)


def _name_of(dtype):
    """torch.float16 and "float16" alike."""
    return str(dtype).rpartition(".")[2]


def refuse_items(**given):
    for name, value in given.items():
        if value is not None:
            raise ValueError(f"{name} is given; accepted is None")


class Wrapper:
    """What wrappers share. Results are those of attention_kvcache(), in FlashInfer's shapes and its base of lse. Workspaces and buffers that a caller
    reserves are not used: attune has its own, of which the wrapper holds lists alone."""

    def __init__(self, workspace, use_cuda_graph, jit_args, most_pages=None):
        if jit_args is not None:
            raise ValueError("jit_args is given; accepted is None: attune.attention_kvcache() takes score_mod and mask_mod")
        self._workspace, self._follows, self._most_pages = workspace, flag("use_cuda_graph", use_cuda_graph), most_pages or 0
        self._held, self._mask, self._choices, self._expected = None, None, None, None

    def __getstate__(self):
        """Without the program, which would go on reading the lists of the wrapper that this is a copy of."""
        return {**self.__dict__, "_mask": None}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self._held is not None and "mask" in self._held:
            self._mask = lists.program_of(self._held)

    def __copy__(self):
        """Of lists of its own, which plan() writes into."""
        made = type(self).__new__(type(self))
        made.__setstate__({**self.__getstate__(), "_held": None if self._held is None else lists.own(self._held)})
        return made

    @property
    def is_cuda_graph_enabled(self):
        return self._follows

    def reset_workspace_buffer(self, float_workspace_buffer=None, int_workspace_buffer=None):
        """Nothing: the wrapper uses none."""

    def end_forward(self):
        """Nothing, as of FlashInfer."""

    def run_return_lse(self, *args, **choices):
        """run() with return_lse=True."""
        return self.run(*args, return_lse=True, **choices)

    def _pages(self, indptr, indices, last_page_len, page_size, seq_lens, device, block_tables=None):
        """Of keys that seq_lens counts, where it is given, and of pages that block_tables has, likewise."""
        if seq_lens is None:
            seq_lens = lists.lengths_of(lists.on_host(indptr), lists.on_host(last_page_len), page_size)
        most = self._most_pages
        if self._follows and not most and self._held is not None:
            most = self._held["page_table"].shape[1]
        if block_tables is not None:
            return lists.tables_of(block_tables, seq_lens, device, page_size, most)
        return lists.pages_of(indptr, indices, seq_lens, device, page_size, most_pages=most)

    def _add_rows(self, made, qo_indptr, device, name="paged_kv_indptr"):
        """Rows of the requests whose pages are made."""
        made.update(lists.rows_of(qo_indptr, device, "qo_indptr", "q_begins", "seqlen_q", (made["kv_lengths"].shape[0], name)))

    def _lists(self):
        """Those that attention_kvcache() takes by name."""
        return {name: value for name, value in self._held.items() if not name.startswith("mask")}

    def _hold(self, made):
        before = self._held
        self._held = lists.taken(before, made, self._follows)
        if "mask" not in self._held:
            self._mask = None
        elif self._held is not before:
            self._mask = lists.program_of(self._held)

    def _choose(self, made, num_qo_heads, num_kv_heads, head_dims, page_size, pos_encoding_mode, looks_ahead, window_left, logits_soft_cap, sm_scale,
                invariant, device, causal=False, o_data_type=None):
        """Takes a plan as a whole, or refuses it and keeps the one before. `made`: its lists."""
        positions = positions_of(pos_encoding_mode, num_qo_heads, device, looks_ahead, logits_soft_cap)
        self._hold(made)
        self._expected = (num_qo_heads, num_kv_heads, *head_dims, page_size)
        self._choices = dict(is_causal=causal, softcap=logits_soft_cap or None, batch_invariant=bool(invariant), **positions)
        self._window, self._sm_scale, self._o_data_type = window_left, sm_scale, o_data_type

    def _check(self, q, k, v, of_jit):
        if self._choices is None:
            raise RuntimeError("run() is called before plan(); accepted is plan() first")
        if of_jit:
            raise ValueError(f"run() is given {len(of_jit)} arguments more than tensors; accepted are none, which programs of jit_args would take")
        found = (q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1], k.shape[1] if k.dim() == 4 else None)
        if found != self._expected:
            names = ("num_qo_heads", "num_kv_heads", "head_dim", "head_dim of v", "page_size")
            raise ValueError(", ".join(f"{name} is {a} and plan() was told {b}" for name, a, b in zip(names, found, self._expected) if a != b) +
                             "; accepted are tensors as planned")
        if self._o_data_type is not None and _name_of(self._o_data_type) != _name_of(q.dtype):
            raise ValueError(f"o_data_type is {_name_of(self._o_data_type)} and q {_name_of(q.dtype)}; accepted are None and q's dtype, which out has")

    def _attend(self, q, k, v, given, scales, *, window_left=None, sinks=None, out=None, lse=None, return_lse=False, sm_scale=None, causal=False):
        """q, out as attention_kvcache() has them. causal: rows that are not so by plan. Returns out and lse in base 2."""
        keywords, factor = lists.scales_of(q, k, self._sm_scale if sm_scale is None else sm_scale, *scales)
        more = {} if self._mask is None else {"mask_mod": self._mask}
        choices = {**self._choices, "is_causal": self._choices["is_causal"] or causal}
        found = attention_kvcache(q, k, v, window=window_of(self._window if window_left is None else window_left), sinks=sinks, out=out,
                                  return_lse=flag("return_lse", return_lse), **given, **choices, **keywords, **more)
        o, natural = found if return_lse else (found, None)
        if factor != 1:
            o.mul_(factor)
        if natural is None:
            return o, None
        made = lists.in_base_2(natural)
        return o, made if lse is None else lse.copy_(made.reshape(lse.shape))
