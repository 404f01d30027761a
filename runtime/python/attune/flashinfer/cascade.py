# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's wrappers for prefixes that requests share, on cascade(), and its functions that merge states. See
__init__.py."""
from ..core.preparing import copied
from ..core.torch_state import refuse_gradients
from ..ops.cascade import cascade
from ..ops.merge import merge, merge_all
from ..ops.prepare import prepare
from ..adapters.errors import named
from . import arguments
from . import lists
from .wrapper import features_of

_VALUES, _LSES = "[rows, num_heads, head_dim]", "[rows, num_heads]"


def _check_state(v, s, names, like=None):
    """Raises if a state has another shape or type. like: (the v that this one must match, its name)."""
    name_v, name_s = names
    arguments.floats(name_v, v, _VALUES)
    arguments.floats(name_s, s, _LSES)
    if tuple(s.shape) != tuple(v.shape[:2]) or s.device != v.device:
        raise ValueError(
            f"{name_s} has shape {tuple(s.shape)} on {s.device} and {name_v} {tuple(v.shape)} on {v.device}; must be "
            f"{_LSES} and {_VALUES}")
    if like is not None and (v.shape, v.device) != (like[0].shape, like[0].device):
        raise ValueError(
            f"{name_v} has shape {tuple(v.shape)} on {v.device} and {like[1]} {tuple(like[0].shape)} on "
            f"{like[0].device}; must be equal")


def _merged(names, v_a, s_a, v_b, s_b):
    """Implements merge_state(). names: the caller's names of the four tensors."""
    _check_state(v_a, s_a, names[:2])
    _check_state(v_b, s_b, names[2:], (v_a, names[0]))
    refuse_gradients(zip(names, (v_a, s_a, v_b, s_b)))
    o, lse = named(dict(zip(("o", "lse", "other_o", "other_lse"), names)), merge, v_a[None], lists.natural(s_a),
                   v_b[None], lists.natural(s_b))
    return o[0], lists.in_base_2(lse)[0]


def merge_state(v_a, s_a, v_b, s_b):
    """Returns attention over the keys of two calls together, (v, s). v_a, v_b: [rows, num_heads, head_dim]; s_a, s_b:
    fp32 [rows, num_heads], their lse in base 2."""
    return _merged(("v_a", "s_a", "v_b", "s_b"), v_a, s_a, v_b, s_b)


def merge_state_in_place(v, s, v_other, s_other, mask=None):
    """Writes merge_state()'s result into v and s. mask: bool [rows], the rows to merge; None: all. Returns None."""
    import torch
    merged_v, merged_s = _merged(("v", "s", "v_other", "s_other"), v, s, v_other, s_other)
    for name, buffer in (("v", v), ("s", s)):
        arguments.buffer(name, buffer, buffer.shape, None, buffer.device)
    if mask is not None:
        mask = arguments.bools("mask", mask, v.device)
        if tuple(mask.shape) != (v.shape[0],):
            raise ValueError(f"mask has shape {tuple(mask.shape)}; must be [rows] = ({v.shape[0]},)")
        merged_v, merged_s = torch.where(mask[:, None, None], merged_v, v), torch.where(mask[:, None], merged_s, s)
    copied(v, merged_v)
    copied(s, merged_s)


def merge_states(v, s):
    """Returns merge_state() of several states, (v, s). v: [rows, states, num_heads, head_dim], s: fp32 [rows, states,
    num_heads]. Sums are fp32, rounded once."""
    arguments.floats("v", v, "[rows, states, num_heads, head_dim]")
    arguments.floats("s", s, "[rows, states, num_heads]")
    if v.shape[1] == 0 or tuple(s.shape) != tuple(v.shape[:3]) or s.device != v.device:
        raise ValueError(
            f"v has shape {tuple(v.shape)} on {v.device} and s {tuple(s.shape)} on {s.device}; must be [rows, states, "
            "num_heads, head_dim] and [rows, states, num_heads], with at least 1 state")
    refuse_gradients([("v", v), ("s", s)])
    o, lse = named({"o": "v", "other_o": "v", "lse": "s", "other_lse": "s"}, merge_all, v.transpose(0, 1)[:, None],
                   (s.float() * lists.LN_2).permute(1, 2, 0)[:, None].contiguous())
    return o[0].to(v.dtype), lists.in_base_2(lse)[0]


def _level(qo_indptr, kv_indptr, kv_indices, last_page_len, page_size, device, names):
    """Returns a level's arguments for cascade() without its cache, and the least rows and pages that its lists need.
    names: those of the four lists."""
    begins, pages_begin, indices = (arguments.integers(name, given, wanted) for name, given, wanted in zip(
        names, (qo_indptr, kv_indptr, kv_indices), ("[groups + 1]", "[groups + 1]", "[pages of all groups]")))
    lengths = lists.keys_of(pages_begin, last_page_len, None, page_size, (names[1], names[3], None))
    made, pages = lists.pages_of(pages_begin, indices, lengths, device, page_size, names[1:3])
    made.update(lists.rows_of(begins, device, names[0], "q_begins", "seqlen_q",
                              (made["kv_lengths"].shape[0], names[1])))
    return made, int(begins[-1]), pages


_OF_LEVELS = ("qo_indptr_arr", "paged_kv_indptr_arr", "paged_kv_indices_arr", "paged_kv_last_page_len")


class MultiLevelCascadeAttentionWrapper:
    """FlashInfer's wrapper of the same name. plan() converts lists of pages to tables on the device, once for all
    layers of a step.

    run() may be captured into a CUDA graph, which follows later plans with no more pages and rows: they are copied into
    the tensors of the first plan. If all lists are on the CPU, the cache is too; for a cache on a GPU at least one list
    must be there.
    num_levels: at least 1, from the widest prefix to each request. The workspace is not used. plan() writes its lists
    into buffers that are given. kv_layout: NHD or HND. use_cuda_graph: True refuses a plan that does not fit the first
    one's tensors; False gives it new tensors."""
    def __init__(self, num_levels, float_workspace_buffer=None, kv_layout="NHD", use_cuda_graph=False,
                 qo_indptr_buf_arr=None, paged_kv_indptr_buf_arr=None, paged_kv_indices_buf_arr=None,
                 paged_kv_last_page_len_buf_arr=None):
        self._layout, self._num_levels = lists.check_layout(kv_layout), arguments.count("num_levels", num_levels)
        self._workspace, self._follows = arguments.workspace("float_workspace_buffer",
                                                             float_workspace_buffer), arguments.flag(
                                                                 "use_cuda_graph", use_cuda_graph)
        self._levels, self._choices = None, None
        given = dict(qo_indptr_buf_arr=qo_indptr_buf_arr, paged_kv_indptr_buf_arr=paged_kv_indptr_buf_arr,
                     paged_kv_indices_buf_arr=paged_kv_indices_buf_arr,
                     paged_kv_last_page_len_buf_arr=paged_kv_last_page_len_buf_arr)
        self._buffers = [(name, self._of_levels(name, buffers)) for name, buffers in given.items()]
        for name, buffers in self._buffers:
            for buffer in buffers:
                if buffer is not None:
                    arguments.list_buffer(name, buffer)

    def _of_levels(self, name, given):
        """Returns a list with an element per level."""
        if given is None:
            return [None] * self._num_levels
        if not isinstance(given, (tuple, list)) or len(given) != self._num_levels:
            found = f"of {len(given)} tensors" if isinstance(given, (tuple, list)) else given
            raise ValueError(f"{name} is {found}; must be a list of {self._num_levels}, one per level")
        return list(given)

    @property
    def is_cuda_graph_enabled(self):
        return self._follows

    def reset_workspace_buffer(self, float_workspace_buffer=None, int_workspace_buffers=None):
        """Takes another workspace, for its device in later plans; None keeps the current one."""
        for buffer in self._of_levels("int_workspace_buffers", int_workspace_buffers):
            arguments.workspace("int_workspace_buffers", buffer)
        if arguments.workspace("float_workspace_buffer", float_workspace_buffer) is not None:
            self._workspace = float_workspace_buffer

    def plan(self, qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len, num_qo_heads,
             num_kv_heads, head_dim, page_size, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
             sm_scale=None, window_left=-1, logits_soft_cap=None, rope_scale=None, rope_theta=None, q_data_type=None,
             kv_data_type=None):
        """Sets the lists and choices of later runs, from lists of tensors, one per level.

        The lists are FlashInfer's: qo_indptr [groups + 1], paged_kv_indptr [groups + 1], paged_kv_indices [pages],
        paged_kv_last_page_len [groups]. causal applies to the last level. Windows and position encodings raise, because
        the levels before the last do not know a row's distance to their keys."""
        arguments.hints(flags=(("use_fp16_qk_reduction", use_fp16_qk_reduction),))
        arguments.rotary(rope_scale, rope_theta)
        arguments.heads(num_qo_heads, num_kv_heads)
        if pos_encoding_mode != "NONE" or arguments.window("window_left", window_left) >= 0:
            raise ValueError(
                f"pos_encoding_mode is {pos_encoding_mode!r} and window_left {window_left}; must be 'NONE' and -1 over "
                f"shared prefixes")
        of_levels = [self._of_levels(name, given) for name, given in zip(
            _OF_LEVELS, (qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len))]
        expected = (num_qo_heads, num_kv_heads, arguments.count("head_dim",
                                                                head_dim), arguments.count("page_size", page_size))
        types = arguments.dtype_of("q_data_type", q_data_type), arguments.dtype_of("kv_data_type", kv_data_type)
        choices = dict(is_causal=arguments.flag("causal", causal), scale=arguments.scale_of("sm_scale", sm_scale),
                       **features_of("NONE", num_qo_heads, None, False, logits_soft_cap))
        device = lists.device_of(self._workspace, *(one for of_level in of_levels for one in of_level))
        made = [_level(*of_level, page_size, device, _OF_LEVELS) for of_level in zip(*of_levels)]
        pairs = list(zip(self._levels or [None] * self._num_levels, (level for level, *_ in made)))
        for pair in pairs:  # all lists are checked before one is written
            lists.goes_into(*pair, self._follows)
        self._write_buffers(of_levels)
        self._levels = [lists.taken(*pair, self._follows) for pair in pairs]
        self._choices, self._expected, self._types = choices, expected, types
        self._least = max(rows for _, rows, _ in made), max(pages for *_, pages in made)

    def _write_buffers(self, of_levels):
        places = [(name, buffer, values) for (name, buffers), given in zip(self._buffers, of_levels)
                  for buffer, values in zip(buffers, given) if buffer is not None]
        for name, buffer, values in places:
            if len(values) > buffer.shape[0]:
                raise ValueError(
                    f"{name} has a tensor of {buffer.shape[0]} elements and plan() writes {len(values)} into it; must "
                    f"have at least as many")
        lists.write_buffers((buffer[:len(values)], values) for _, buffer, values in places)

    def _given(self, q, paged_kv_cache):
        if self._levels is None:
            raise RuntimeError("run() is called before plan(); call plan() first")
        k, v = lists.caches_of(paged_kv_cache, self._layout)
        arguments.floats("q", q, "[rows, num_qo_heads, head_dim]")
        arguments.check_dtype("q", q, "q_data_type", self._types[0])
        arguments.check_dtype("paged_kv_cache", k, "kv_data_type", self._types[1])
        _check_expected(q, k, self._expected, "paged_kv_cache", "plan()")
        arguments.refuse_short(self, q, k, "paged_kv_cache")
        return [dict(level, k_cache=k, v_cache=v) for level in self._levels]

    def run(self, q, paged_kv_cache):
        """Returns out [rows, num_qo_heads, head_dim]. q: [rows, num_qo_heads, head_dim]. paged_kv_cache: [pages, 2,
        page_size, num_kv_heads, head_dim] (HND: [pages, 2, num_kv_heads, page_size, head_dim]), or a pair of K and V
        without the second axis."""
        return cascade(q, self._given(q, paged_kv_cache), **self._choices)

    def prepare(self, q, paged_kv_cache):
        """Prepares run() for a CUDA graph's capture. Returns the plans."""
        return prepare(cascade, q, self._given(q, paged_kv_cache), **self._choices)

    begin_forward = plan
    forward = run


def _check_expected(q, k, expected, name, of):
    """Raises if tensors have other extents than plan() was told."""
    found = (q.shape[1], k.shape[2], q.shape[2], k.shape[1])
    if found != expected:
        raise ValueError(
            f"q has shape {tuple(q.shape)} and {name} pages {tuple(k.shape[1:])}; must be {expected[0]} heads over "
            f"{expected[1]} of {expected[2]} columns in pages of {expected[3]}, as {of} was told")


class _SharedPrefix:
    """The base of wrappers for keys that all requests share. The shared keys are separate tensors, and come before each
    request's own pages."""

    def __init__(self, float_workspace_buffer=None, kv_layout="NHD"):
        self._layout, self._levels = lists.check_layout(kv_layout), None
        self._workspace = arguments.workspace("float_workspace_buffer", float_workspace_buffer)

    def reset_workspace_buffer(self, float_workspace_buffer=None, int_workspace_buffer=None):
        """Takes another workspace, for its device in later plans; None keeps the current one."""
        arguments.workspace("int_workspace_buffer", int_workspace_buffer)
        if arguments.workspace("float_workspace_buffer", float_workspace_buffer) is not None:
            self._workspace = float_workspace_buffer

    def end_forward(self):
        """Does nothing, as in FlashInfer."""

    def _plan(self, qo_indptr, kv_indptr, kv_indices, last_page_len, page_size, num_qo_heads, num_kv_heads, head_dim,
              names, dtype=None):
        arguments.heads(num_qo_heads, num_kv_heads)
        expected = (num_qo_heads, num_kv_heads, arguments.count("head_dim",
                                                                head_dim), arguments.count("page_size", page_size))
        device = lists.device_of(self._workspace, qo_indptr, kv_indptr, kv_indices)
        unique, rows, pages = _level(qo_indptr, kv_indptr, kv_indices, last_page_len, page_size, device, names)
        shared = lists.rows_of(lists.on_host([0, rows]), device, "rows", "q_begins", "seqlen_q")
        self._levels, self._heads, self._least, self._dtype = (shared, unique), expected, (rows, pages), dtype

    def _run(self, q, k_shared, v_shared, unique_kv_cache, causal, use_fp16_qk_reduction, sm_scale, rope_scale,
             rope_theta):
        arguments.hints(flags=(("use_fp16_qk_reduction", use_fp16_qk_reduction),))
        arguments.rotary(rope_scale, rope_theta)
        if self._levels is None:
            raise RuntimeError("forward() is called before begin_forward(); call begin_forward() first")
        arguments.floats("q", q, "[rows, num_qo_heads, head_dim]")
        arguments.check_dtype("q", q, "data_type", self._dtype)
        k, v = lists.heads_last(k_shared, v_shared, self._layout, ("k_shared", "v_shared"))
        k_unique, v_unique = lists.caches_of(unique_kv_cache, self._layout, "unique_kv_cache")
        _check_expected(q, k_unique, self._heads, "unique_kv_cache", "begin_forward()")
        arguments.refuse_short(self, q, k_unique, "unique_kv_cache")
        if (k.shape[1:], k.dtype) != (k_unique.shape[2:], k_unique.dtype) or v.shape[1:] != v_unique.shape[2:]:
            raise ValueError(
                f"k_shared is {k.dtype} of {tuple(k.shape[1:])} and v_shared of {tuple(v.shape[1:])}; must match "
                f"unique_kv_cache, {k_unique.dtype} of {tuple(k_unique.shape[2:])} (heads and columns)")
        shared, unique = self._levels
        levels = [dict(shared, k_cache=k[None], v_cache=v[None])] if k.shape[0] else []
        return cascade(q, [*levels, dict(unique, k_cache=k_unique, v_cache=v_unique)], is_causal=causal,
                       scale=arguments.scale_of("sm_scale", sm_scale))


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """FlashInfer's wrapper of the same name: one token per request."""

    def begin_forward(self, unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, num_qo_heads, num_kv_heads,
                      head_dim, page_size, data_type=None):
        """Sets the lists of pages that are a request's own, as in BatchDecodeWithPagedKVCacheWrapper. data_type: None,
        or q's dtype."""
        each = list(range(max(arguments.integers("unique_kv_indptr", unique_kv_indptr).numel(), 1)))
        self._plan(each, unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, page_size, num_qo_heads,
                   num_kv_heads, head_dim, ("rows", "unique_kv_indptr", "unique_kv_indices", "unique_kv_last_page_len"),
                   arguments.dtype_of("data_type", data_type))

    def forward(self, q, k_shared, v_shared, unique_kv_cache, use_fp16_qk_reduction=False, sm_scale=None,
                rope_scale=None, rope_theta=None):
        """Returns out, like q [batch, num_qo_heads, head_dim]. k_shared, v_shared: [keys, num_kv_heads, head_dim] (HND:
        [num_kv_heads, keys, head_dim])."""
        return self._run(q, k_shared, v_shared, unique_kv_cache, False, use_fp16_qk_reduction, sm_scale, rope_scale,
                         rope_theta)

    plan, run = begin_forward, forward


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """FlashInfer's wrapper of the same name: packed rows of requests, all of which see the shared keys."""

    def begin_forward(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads,
                      num_kv_heads, head_dim, page_size):
        """Sets the lists of pages that are a request's own, as in BatchPrefillWithPagedKVCacheWrapper."""
        self._plan(qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size, num_qo_heads,
                   num_kv_heads, head_dim,
                   ("qo_indptr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len"))

    def forward(self, q, k_shared, v_shared, unique_kv_cache, causal=False, use_fp16_qk_reduction=False, sm_scale=None,
                rope_scale=None, rope_theta=None):
        """Returns out, like q [rows, num_qo_heads, head_dim]; other arguments as in
        BatchDecodeWithSharedPrefixPagedKVCacheWrapper. causal applies to a request's own keys."""
        return self._run(q, k_shared, v_shared, unique_kv_cache, arguments.flag("causal", causal),
                         use_fp16_qk_reduction, sm_scale, rope_scale, rope_theta)

    plan, run = begin_forward, forward
