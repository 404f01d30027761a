# SPDX-License-Identifier: Apache-2.0
"""The base of FlashInfer's wrappers with plan() and run(), on attention_kvcache(). Used by decode.py, prefill.py,
attention.py and mla.py."""
import functools

from ..core.preparing import copied, preparing
from ..score.scores import alibi_slopes
from ..ops.kvcache import attention_kvcache
from ..adapters.errors import named
from . import arguments
from . import lists
from . import masks


CAP = "softcap"  # attention_kvcache()'s name of logits_soft_cap


def features_of(pos_encoding_mode, num_heads, device, looks_ahead, logits_soft_cap):
    """Returns logits_soft_cap, and ALiBi slopes if the mode is 'ALIBI', under attention_kvcache()'s names. looks_ahead:
    True if rows see keys after their own position, where FlashInfer's distance is signed; this raises. Distances count
    from the row's position, in lse too."""
    found = {CAP: arguments.soft_cap(logits_soft_cap)}
    if not isinstance(pos_encoding_mode, str):
        raise ValueError(f"pos_encoding_mode is {pos_encoding_mode!r}; must be 'NONE' or 'ALIBI'")
    if pos_encoding_mode == "NONE":
        return found
    if pos_encoding_mode == "ALIBI" and found[CAP]:
        raise ValueError(
            f"logits_soft_cap is {found[CAP]} and pos_encoding_mode 'ALIBI'; give one of them: attune applies the "
            "cap before the slopes, FlashInfer after them")
    if pos_encoding_mode == "ALIBI" and looks_ahead:
        raise ValueError(
            "pos_encoding_mode is 'ALIBI' without a causal mask; must be 'NONE' there: for keys after a row's position "
            "FlashInfer's distances are signed, and attune's are not")
    if pos_encoding_mode != "ALIBI":
        raise ValueError(
            f"pos_encoding_mode is {pos_encoding_mode!r}; must be 'NONE' or 'ALIBI': append_kv(cos=, sin=, q=) rotates "
            "k and q when k is written")
    import torch
    return {**found, "alibi_slopes": torch.tensor(alibi_slopes(num_heads), dtype=torch.float32, device=device)}


def window_of(window_left):
    left = arguments.window("window_left", window_left)
    return None if left < 0 else (left, None)


def _name_of(dtype):
    return str(dtype).rpartition(".")[2]


def with_lse(run):
    """Returns run() with return_lse=True. It shows run()'s signature."""
    @functools.wraps(run)
    def run_return_lse(self, *args, **keywords):
        return run(self, *args, return_lse=True, **keywords)
    return run_return_lse


class Wrapper:
    """The base of wrappers. Results are attention_kvcache()'s, in FlashInfer's shapes and its base of lse.

    The caller's workspace is not used, because attune has its own. plan() also writes its lists into the caller's
    buffers, but run() reads the wrapper's own tensors."""
    _name_of_cache = "paged_kv_cache"  # run()'s argument

    def __init__(self, workspace, use_cuda_graph, jit_args, most_pages=None, buffers=(), backend="auto"):
        arguments.nothing(jit_args=jit_args)
        arguments.hints(words=(("backend", backend),))
        self._workspace, self._follows = arguments.workspace("float_workspace_buffer", workspace), arguments.flag(
            "use_cuda_graph", use_cuda_graph)
        self._most_pages = 0 if most_pages is None else arguments.count("most_pages", most_pages)
        self._held, self._mask, self._choices, self._expected = None, None, None, None
        self._buffers = {
            name: arguments.list_buffer(name, buffer)
            for name, buffer in dict(buffers).items() if buffer is not None}

    def __getstate__(self):
        """Returns the state without the program, which would read the lists of the original wrapper, and without its
        buffers."""
        return {**self.__dict__, "_mask": None, "_buffers": {}}

    def __setstate__(self, state):
        self.__dict__.update(state)
        if self._held is not None and "mask" in self._held:
            self._mask = masks.program_of(self._held)

    def __copy__(self):
        """Returns a copy with its own lists, which its plan() writes into."""
        made = type(self).__new__(type(self))
        made.__setstate__({**self.__getstate__(), "_held": None if self._held is None else lists.own(self._held)})
        return made

    @property
    def is_cuda_graph_enabled(self):
        return self._follows

    def reset_workspace_buffer(self, float_workspace_buffer=None, int_workspace_buffer=None):
        """Sets the workspace, whose device later plans use; None keeps the current one."""
        arguments.workspace("int_workspace_buffer", int_workspace_buffer)
        if arguments.workspace("float_workspace_buffer", float_workspace_buffer) is not None:
            self._workspace = float_workspace_buffer

    def end_forward(self):
        """Does nothing, as in FlashInfer."""

    def __init_subclass__(cls):
        if "run" in vars(cls):
            cls.run_return_lse = with_lse(cls.run)

    def _pages(self, indptr, indices, last_page_len, page_size, seq_lens, device, block_tables=None,
               names=("paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len", "seq_lens")):
        """Returns the lists of keys and of pages, and the least number of pages of a cache. If seq_lens or block_tables
        is given, it is used instead of the lists of pages. names: the caller's names of indptr, indices, last_page_len
        and seq_lens."""
        arguments.count("page_size", page_size)
        indptr, indices = arguments.integers(names[0], indptr), arguments.integers(names[1], indices,
                                                                                   "[pages of all requests]")
        seq_lens = lists.keys_of(indptr, last_page_len, seq_lens, page_size, (names[0], *names[2:]))
        most = self._most_pages
        if self._follows and not most and self._held is not None:
            most = self._held["page_table"].shape[1]
        if block_tables is not None:
            return lists.tables_of(block_tables, seq_lens, device, page_size, most)
        return lists.pages_of(indptr, indices, seq_lens, device, page_size, names, most)

    def _room_in_buffers(self, **given):
        """Returns pairs (place in a caller's buffer, list that goes there). They are written after the plan is
        accepted."""
        pairs = []
        for name, buffer in self._buffers.items():
            values = given.get(name)
            if values is None:
                continue
            if len(values) > buffer.shape[0]:
                raise ValueError(
                    f"{name} has {buffer.shape[0]} elements and plan() writes {len(values)} into it; must have at "
                    f"least as many")
            pairs.append((buffer[:len(values)], values))
        return pairs

    def _lists(self):
        """Returns the lists that attention_kvcache() takes by name."""
        return {name: value for name, value in self._held.items() if not name.startswith("mask")}

    def _hold(self, made):
        before = self._held
        self._held = lists.taken(before, made, self._follows)
        if "mask" not in self._held:
            self._mask = None
        elif self._held is not before:
            self._mask = masks.program_of(self._held)

    def _choose(self, made, num_qo_heads, num_kv_heads, head_dims, page_size, *, pos_encoding_mode="NONE",
                looks_ahead=False, window_left=-1, logits_soft_cap=None, sm_scale=None, invariant=False, device,
                causal=False, types=(None, None, None), least=(0, 0), buffers=()):
        """Sets a plan after all its arguments are checked. If one is not valid, raises and keeps the earlier plan.

        made: its lists. types: the dtypes of q, caches and out. least: the least number of rows of q, and of pages or
        keys. buffers: the pairs of _room_in_buffers()."""
        arguments.heads(num_qo_heads, num_kv_heads)
        for name, head_dim in zip(("head_dim_qk", "head_dim_vo") if len(head_dims) == 2 else ("head_dim",), head_dims):
            arguments.count(name, head_dim)
        choices = self._choices_of(pos_encoding_mode, looks_ahead, window_left, logits_soft_cap, sm_scale, num_qo_heads,
                                   device)
        made_types = [
            arguments.dtype_of(name, given)
            for name, given in zip(("q_data_type", "kv_data_type", "o_data_type"), types)]
        self._hold(made)
        self._expected = (num_qo_heads, num_kv_heads, head_dims[0], head_dims[-1], page_size)
        self._types, self._least, self._device = made_types, least, device
        self._window, self._sm_scale = choices.pop("window"), choices.pop("scale")
        self._choices = dict(choices, is_causal=causal, batch_invariant=invariant)
        lists.write_buffers(buffers)

    def _choices_of(self, pos_encoding_mode, looks_ahead, window_left, logits_soft_cap, sm_scale, num_qo_heads, device):
        """Returns the choices of plan() and forward() under attention_kvcache()'s names."""
        features = features_of(pos_encoding_mode, num_qo_heads, device, looks_ahead, logits_soft_cap)
        return dict(window=arguments.window("window_left", window_left),
                    scale=arguments.scale_of("sm_scale", sm_scale), **features)

    def _rechoose(self, causal, pos_encoding_mode, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta,
                  looks_ahead=False):
        """Replaces plan()'s choices with those of forward(), as FlashInfer does. causal: None keeps the plan's."""
        self._refuse_unplanned()
        arguments.rotary(rope_scale, rope_theta)
        choices = self._choices_of(pos_encoding_mode, looks_ahead, window_left, logits_soft_cap, sm_scale,
                                   self._expected[0], self._device)
        self._window, self._sm_scale = choices.pop("window"), choices.pop("scale")
        kept = {name: self._choices[name] for name in ("is_causal", "batch_invariant")}
        self._choices = {**choices, **kept} if causal is None else {**choices, **kept, "is_causal": causal}

    def _refuse_unplanned(self):
        if self._choices is None:
            raise RuntimeError("run() is called before plan(); call plan() first")

    def _check(self, q, k, v, of_jit=(), out=None, lse=None, name_of_caches="paged_kv_cache", groups=None):
        """Raises if tensors are not as planned, or buffers do not fit. groups: factors of a cache of 4 bits."""
        self._refuse_unplanned()
        if of_jit:
            raise ValueError(
                f"run() has {len(of_jit)} more positional arguments than it takes; must be none (FlashInfer's programs "
                f"of jit_args would read them)")
        arguments.floats("q", q, "[rows, num_qo_heads, head_dim]")
        head_dim_v = v.shape[-1] * (1 if groups is None else 2)
        found = (q.shape[-2], k.shape[-2], q.shape[-1], head_dim_v, k.shape[1] if k.dim() == 4 else None)
        if found != self._expected:
            names = ("num_qo_heads", "num_kv_heads", "head_dim", "head_dim of v", "page_size")
            raise ValueError(", ".join(f"{name} is {a} and plan() was told {b}"
                                       for name, a, b in zip(names, found, self._expected) if a != b) +
                             "; must be as planned")
        self._check_types(q, k, name_of_caches)
        arguments.refuse_short(self, q, k, name_of_caches)
        if out is not None:
            arguments.buffer("out", out, (*q.shape[:2], head_dim_v), q.dtype, q.device)
        if lse is not None:
            arguments.buffer("lse", lse, q.shape[:2], arguments.fp32(), q.device)

    def _check_types(self, q, k, name_of_caches):
        of_q, of_caches, of_out = self._types
        arguments.check_dtype("q", q, "q_data_type", of_q)
        arguments.check_dtype(name_of_caches, k, "kv_data_type", of_caches)
        if of_out is not None and of_out != q.dtype:
            raise ValueError(
                f"o_data_type is {_name_of(of_out)} and q {_name_of(q.dtype)}; must be None or q's dtype, which is "
                f"out's")
        lists_are_on = self._held["kv_lengths" if "kv_lengths" in self._held else "q_begins"].device
        if q.device != lists_are_on:
            raise ValueError(
                f"q is on {q.device} and the lists of plan() on {lists_are_on}; both must be on one device (that of "
                "float_workspace_buffer, or without it that of the lists)")

    def _attend(self, q, k, v, given, scales, *, window_left=None, sinks=None, out=None, lse=None, return_lse=False,
                sm_scale=None, causal=False, groups=None):
        """Returns (out, lse in base 2). lse is None unless it is returned or written. q, out: in attention_kvcache()'s
        form. causal: True for rows that are causal although the plan is not."""
        return_lse = arguments.flag("return_lse", return_lse) or lse is not None
        keywords, factor = lists.scales_of(q, k, self._sm_scale if sm_scale is None else sm_scale, *scales)
        more = {} if self._mask is None else {"mask_mod": self._mask}
        choices = {**self._choices, "is_causal": self._choices["is_causal"] or causal}
        of_k, of_v = ("k", "v") if "kv_begins" in given else (self._name_of_cache,) * 2
        names = {"scale": "sm_scale", CAP: "logits_soft_cap", "k_cache": of_k, "v_cache": of_v,
                 "k_factors": "kv_cache_sf", "v_factors": "kv_cache_sf"}
        keywords.update(groups or {})
        window = window_of(self._window if window_left is None else window_left)
        found = named(names, attention_kvcache, q, k, v, window=window, sinks=sinks, out=out, return_lse=return_lse,
                      **given, **choices, **keywords, **more)
        o, natural = found if return_lse else (found, None)
        if factor != 1 and not preparing():
            o.mul_(factor)
        if natural is None:
            return o, None
        made = lists.in_base_2(natural)
        return o, made if lse is None else copied(lse, made.reshape(lse.shape))
