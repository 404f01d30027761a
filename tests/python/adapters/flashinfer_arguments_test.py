#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each argument of each public function of attune.flashinfer is used or refused. The tests walk the signatures with a
valid call of each function; meaningless values must be refused by the argument's name. With PyTorch on the device named
by the first argument; skips aloud (status 77) without it."""
import functools
import inspect
import math
import re
import unittest

from library_and_device import DEVICE, np, torch
from skips import skip

if torch is None:
    skip("of PyTorch, on the device named by the first argument")

from attune import flashinfer
from flashinfer_test import DTYPE, Cache, D, begins_of, drawn, ints

NONE_ONLY = dict.fromkeys(("jit_args", "jit_kwargs", "kv_cache_sf", "skip_softmax_threshold_scale_factor",
                           "prefix_len_ptr", "token_pos_in_items_ptr", "max_item_len_ptr", "profiler_buffer", "kv_len",
                           "page_table", "ckv_scale_arr", "v_indptr", "o_indptr", "kv_block_lens", "q2k_indices",
                           "q2k_num", "kv_splits", "use_clc"))


class Junk:
    """A value that is valid for no argument."""


def workspace():
    return torch.empty(16, dtype=torch.uint8, device=DEVICE)


def room(n=64, dtype=torch.int32):
    return torch.empty(n, dtype=dtype, device=DEVICE)


class Calls:
    """Valid calls (function, keywords) per public name. A method's name is Class.method."""

    def __init__(self):
        self.cache = cache = Cache(51, [9, 4], 4)
        self.rows = [3, 2]
        self.q, self.one = drawn(cache.random, 5, 4, D), drawn(cache.random, 2, 4, D)
        self.k, self.v = (torch.cat([keys[part] for keys in cache.keys]) for part in (0, 1))
        self.latent, self.parts = drawn(cache.random, cache.pages.shape[0], 4, 192), drawn(cache.random, 5, 4, 192)
        self.begins, self.lengths = begins_of(self.rows), ints(cache.lengths)
        self.choices = dict(pos_encoding_mode="NONE", window_left=7, logits_soft_cap=5.0, sm_scale=0.2, rope_scale=1.0,
                            rope_theta=1e4)
        self.types = dict(q_data_type=DTYPE, kv_data_type=DTYPE, o_data_type=DTYPE)
        self.scales = dict(q_scale=0.5, k_scale=2.0, v_scale=0.5)

    def lists(self, *names):
        return dict(zip(names, self.cache.lists()))

    def buffers(self, rows, heads=4, columns=D):
        return dict(out=torch.empty(rows, heads, columns, dtype=DTYPE, device=DEVICE), lse=torch.empty(
            rows, heads, device=DEVICE))

    def decode_plan(self, **more):
        return dict(self.lists("indptr", "indices", "last_page_len"), num_qo_heads=4, num_kv_heads=2, head_dim=D,
                    page_size=4, **self.choices, data_type=None, non_blocking=True, fixed_split_size=None,
                    disable_split_kv=False, q_len_per_req=1, **more)

    def decode(self):
        made = flashinfer.BatchDecodeWithPagedKVCacheWrapper()
        made.plan(**self.decode_plan())
        return made

    def prefill_plan(self):
        return dict(qo_indptr=self.begins, **self.lists("paged_kv_indptr", "paged_kv_indices",
                                                        "paged_kv_last_page_len"), num_qo_heads=4, num_kv_heads=2,
                    head_dim_qk=D, page_size=4, head_dim_vo=D, causal=True, **self.choices, **self.types,
                    **self.bounds(), seq_lens=self.lengths)

    def bounds(self):
        return dict(use_fp16_qk_reduction=False, non_blocking=True, token_pos_in_items_len=0, seq_lens_q=ints(
            self.rows), max_token_per_sequence=3, max_sequence_kv=9, fixed_split_size=2, disable_split_kv=True)

    def prefill(self, kind=None):
        made = (kind or flashinfer.BatchPrefillWithPagedKVCacheWrapper)()
        made.plan(**self.prefill_plan())
        return made

    def ragged_plan(self):
        return dict(qo_indptr=self.begins, kv_indptr=begins_of(self.cache.lengths), num_qo_heads=4,
                    num_kv_heads=2, head_dim_qk=D, head_dim_vo=D, causal=True, **self.choices, **self.types,
                    **self.bounds(), seq_lens=self.lengths)

    def ragged(self):
        made = flashinfer.BatchPrefillWithRaggedKVCacheWrapper()
        made.plan(**self.ragged_plan())
        return made

    def mixed_plan(self):
        return dict(qo_indptr=self.begins, kv_indptr=self.cache.indptr, kv_indices=self.cache.indices,
                    kv_len_arr=self.lengths, num_qo_heads=4, num_kv_heads=2, head_dim_qk=D, head_dim_vo=D, page_size=4,
                    causal=True, sm_scale=0.2, logits_soft_cap=5.0, q_data_type=DTYPE, kv_data_type=DTYPE,
                    use_profiler=False)

    def mixed(self):
        made = flashinfer.BatchAttention(device=DEVICE)
        made.plan(**self.mixed_plan())
        return made

    def mla_plan(self):
        return dict(qo_indptr=self.begins, kv_indptr=self.cache.indptr, kv_indices=self.cache.indices,
                    kv_len_arr=self.lengths, num_heads=4, head_dim_ckv=128, head_dim_kpe=64, page_size=4, causal=True,
                    sm_scale=0.1, q_data_type=DTYPE, kv_data_type=DTYPE, use_profiler=False)

    def mla(self):
        made = flashinfer.BatchMLAPagedAttentionWrapper()
        made.plan(**self.mla_plan())
        return made

    def levels_plan(self):
        lists = self.lists("paged_kv_indptr_arr", "paged_kv_indices_arr", "paged_kv_last_page_len")
        return dict(qo_indptr_arr=[self.begins], **{name: [one]
                                                    for name, one in lists.items()}, num_qo_heads=4, num_kv_heads=2,
                    head_dim=D, page_size=4, causal=True, **{**self.choices, "window_left": -1},
                    use_fp16_qk_reduction=False, q_data_type=DTYPE, kv_data_type=DTYPE)

    def levels(self):
        made = flashinfer.MultiLevelCascadeAttentionWrapper(1)
        made.plan(**self.levels_plan())
        return made

    def shared_plan(self, prefix):
        return dict(self.lists(*(prefix + name for name in ("_indptr", "_indices", "_last_page_len"))), num_qo_heads=4,
                    num_kv_heads=2, head_dim=D, page_size=4)

    def blocks_plan(self):
        return dict(indptr=ints([0, 1, 2]), indices=ints([0, 1]), M=5, N=6, R=3, C=3, num_qo_heads=4, num_kv_heads=2,
                    head_dim=D, mask=torch.ones(2, 3, 3, dtype=torch.bool, device=DEVICE), causal=False,
                    logits_soft_cap=5.0, sm_scale=0.1, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
                    rope_scale=1.0, rope_theta=1.0, q_data_type=DTYPE, kv_data_type=DTYPE, o_data_type=DTYPE,
                    non_blocking=True)

    def blocks(self):
        made = flashinfer.BlockSparseAttentionWrapper(workspace())
        made.plan(**self.blocks_plan())
        return made

    def variable_plan(self):
        return dict(block_mask_map=torch.ones(2, 2, 2, dtype=torch.bool, device=DEVICE),
                    block_row_sz=ints([3, 2, 2, 3]).view(2, 2), block_col_sz=ints([3, 3, 2, 4]).view(2, 2),
                    num_qo_heads=4, num_kv_heads=2, head_dim=D, causal=False, pos_encoding_mode="NONE",
                    use_fp16_qk_reduction=False, logits_soft_cap=5.0, sm_scale=0.1, rope_scale=1.0, rope_theta=1.0,
                    non_blocking=True, q_data_type=DTYPE, kv_data_type=DTYPE)

    def variable(self):
        made = flashinfer.VariableBlockSparseAttentionWrapper(workspace())
        made.plan(**self.variable_plan())
        return made

    def of_sparse(self):
        keys = dict(q=self.q, k=self.k[:6], v=self.v[:6])
        make = dict(float_workspace_buffer=workspace(), backend="auto")
        run = dict(**self.buffers(5), return_lse=True, enable_pdl=False)
        yield "BlockSparseAttentionWrapper", {
            "__init__": (None, make), "plan": (self.blocks, self.blocks_plan()),
            "run": (self.blocks, dict(keys, **run, scale_q=1.0, scale_k=1.0, scale_v=0.5)),
            "forward": (self.blocks, dict(keys, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
                                          logits_soft_cap=5.0, sm_scale=0.1, rope_scale=1.0, rope_theta=1.0))}
        by_heads = {name: x.transpose(0, 1).contiguous() for name, x in keys.items()}
        yield "VariableBlockSparseAttentionWrapper", {
            "__init__": (None, make), "plan": (self.variable, self.variable_plan()),
            "run": (self.variable, dict(by_heads, out=torch.empty_like(by_heads["q"]),
                                        lse=torch.empty(4, 5, device=DEVICE), return_lse=True, enable_pdl=False))}

    def of_wrappers(self):
        yield from self.of_sparse()
        c, run = self, dict(paged_kv_cache=self.cache.pages, **self.scales, return_lse=True, enable_pdl=False,
                            window_left=5, sinks=torch.zeros(4, device=DEVICE))
        make = dict(float_workspace_buffer=workspace(), kv_layout="NHD", use_cuda_graph=False, backend="auto")
        of_forward = dict(self.choices, paged_kv_cache=self.cache.pages, k_scale=2.0, v_scale=0.5)
        prompts = dict(of_forward, q=self.q, causal=True, use_fp16_qk_reduction=False)
        masks = dict(qo_indptr_buf=room(), custom_mask_buf=room(dtype=torch.uint8), mask_indptr_buf=room())
        paged = dict(masks, paged_kv_indptr_buf=room(), paged_kv_indices_buf=room(), paged_kv_last_page_len_buf=room())
        keys = dict(k=self.k, v=self.v)
        ragged_forward = dict(self.choices, q=self.q, causal=True, use_fp16_qk_reduction=False, **keys)
        parts = dict(q_nope=self.parts[..., :128], q_pe=self.parts[..., 128:], ckv_cache=self.latent[..., :128],
                     kpe_cache=self.latent[..., 128:])
        yield "BatchDecodeWithPagedKVCacheWrapper", {
            "__init__": (None,
                         dict(make, use_tensor_cores=True, paged_kv_indptr_buffer=room(),
                              paged_kv_indices_buffer=room(), paged_kv_last_page_len_buffer=room(), most_pages=4)),
            "plan": (c.decode, c.decode_plan(**self.types, seq_lens=self.lengths, window_right=0)),
            "run": (c.decode, dict(run, q=self.one, **self.buffers(2),
                                   q_len_per_req=1)), "forward": (c.decode, dict(of_forward, q=self.one, q_scale=1.0)),
            "forward_return_lse": (c.decode, dict(of_forward, q=self.one, q_scale=1.0))}
        yield "CUDAGraphBatchDecodeWithPagedKVCacheWrapper", {
            "__init__": (None,
                         dict(workspace_buffer=workspace(), indptr_buffer=room(), indices_buffer=room(),
                              last_page_len_buffer=room(), kv_layout="NHD", use_tensor_cores=False, most_pages=4))}
        yield "BatchPrefillWithPagedKVCacheWrapper", {
            "__init__": (None, dict(make, **paged, most_pages=4)), "plan": (c.prefill, c.prefill_plan()),
            "run": (c.prefill, dict(run, q=self.q, **self.buffers(5), use_fp16_softmax=False, uses_spcompress=False)),
            "forward": (c.prefill, prompts), "forward_return_lse": (c.prefill, prompts)}
        yield "BatchPrefillWithRaggedKVCacheWrapper", {
            "__init__": (None, dict(make, **masks, kv_indptr_buf=room())),
            "plan": (c.ragged, c.ragged_plan()), "run": (c.ragged,
                                                         dict(q=self.q, **keys, **self.scales, o_scale=1.0,
                                                              **self.buffers(5), return_lse=True, enable_pdl=False)),
            "forward": (c.ragged, ragged_forward), "forward_return_lse": (c.ragged, ragged_forward)}
        yield "BatchAttention", {
            "__init__": (None, dict(kv_layout="NHD", device=DEVICE)), "plan": (c.mixed, c.mixed_plan()),
            "run": (c.mixed,
                    dict(q=self.q, kv_cache=self.cache.pages, **self.buffers(5), k_scale=2.0, v_scale=0.5,
                         logits_soft_cap=5.0))}
        sinks = functools.partial(c.prefill, flashinfer.BatchAttentionWithAttentionSinkWrapper)
        yield "BatchAttentionWithAttentionSinkWrapper", {
            "__init__": (None,
                         dict(make, **paged, **self.types, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
                              head_dim_qk=D, head_dim_vo=D, window_left=7, most_pages=4)),
            "run": (sinks, dict(run, q=self.q, **self.buffers(5), sm_scale=0.2))}
        yield "BatchMLAPagedAttentionWrapper", {
            "__init__": (None,
                         dict(float_workspace_buffer=workspace(), use_cuda_graph=False, backend="auto", most_pages=4,
                              qo_indptr=room(), kv_indptr=room(), kv_indices=room(), kv_len_arr=room())),
            "plan": (c.mla, c.mla_plan()), "run": (c.mla,
                                                   dict(parts, **self.buffers(5, columns=128), return_lse=True,
                                                        return_lse_base_on_e=True, o_scale=None))}
        yield "MultiLevelCascadeAttentionWrapper", {
            "__init__": (None,
                         dict(num_levels=1, float_workspace_buffer=workspace(), kv_layout="NHD", use_cuda_graph=False,
                              qo_indptr_buf_arr=[room()], paged_kv_indptr_buf_arr=[room()], paged_kv_indices_buf_arr=[
                                  room()], paged_kv_last_page_len_buf_arr=[room()])),
            "plan": (c.levels, c.levels_plan()), "run": (c.levels, dict(q=self.q, paged_kv_cache=self.cache.pages)),
            "prepare": (c.levels, dict(q=self.q, paged_kv_cache=self.cache.pages))}
        yield from self.of_shared_prefixes()

    def of_shared_prefixes(self):
        shared = dict(k_shared=self.k, v_shared=self.v, unique_kv_cache=self.cache.pages, use_fp16_qk_reduction=False,
                      sm_scale=0.2, rope_scale=1.0, rope_theta=1e4)
        for kind, prefix, plan, q in (("Decode", "unique_kv", dict(data_type=DTYPE), dict(q=self.one)),
                                      ("Prefill", "paged_kv", dict(qo_indptr=self.begins), dict(q=self.q,
                                                                                                causal=True))):
            name = f"Batch{kind}WithSharedPrefixPagedKVCacheWrapper"
            plan = dict(plan, **self.shared_plan(prefix))

            def planned(name=name, plan=plan):
                made = getattr(flashinfer, name)()
                made.begin_forward(**plan)
                return made

            yield name, {
                "__init__": (None, dict(float_workspace_buffer=workspace(), kv_layout="NHD")),
                "begin_forward": (planned, plan), "forward": (planned, dict(shared, **q))}

    def of_functions(self):
        c, q, k, ids = self.cache, self.q, self.k[:5], dict(batch_indices=ints([0, 1]), positions=ints([0, 3]))
        lists = dict(kv_indices=c.indices, kv_indptr=c.indptr, kv_last_page_len=c.last)
        turn = dict(q=q, k=k, rotary_dim=32, interleave=False, rope_scale=2.0, rope_theta=1e4)
        smooth = dict(low_freq_factor=1.0, high_freq_factor=4.0, old_context_len=8192)
        by_request, by_row = dict(indptr=self.begins, offsets=ints([4, 5])), dict(pos_ids=ints(range(5)))
        one = dict(kv_layout="NHD", **self.choices, return_lse=True, k_scale=2.0, v_scale=0.5)
        state = drawn(c.random, 5, 4, D), torch.randn(5, 4, device=DEVICE)
        yield "single_decode_with_kv_cache", dict(one, q=self.one[0], k=self.k, v=self.v, use_tensor_cores=False,
                                                  q_scale=0.5)
        prefill = dict(one, q=q, k=self.k, v=self.v, o_dtype=DTYPE, custom_mask=torch.ones(
            5, 13, dtype=torch.bool, device=DEVICE), causal=False, backend="fa2", use_fp16_qk_reduction=True)
        yield "single_prefill_with_kv_cache", prefill
        yield "single_prefill_with_kv_cache_return_lse", {
            name: value
            for name, value in prefill.items() if name != "return_lse"}
        yield "fast_decode_plan", dict(self.decode_plan(q_data_type=DTYPE, kv_data_type=DTYPE), self=self.decode(),
                                       global_override_indptr_cpu=c.indptr.cpu())
        yield "get_seq_lens", dict(kv_indptr=c.indptr, kv_last_page_len=c.last, page_size=4)
        yield "get_batch_indices_positions", dict(append_indptr=self.begins, seq_lens=self.lengths, nnz=5,
                                                  batch_indices=room(5), positions=room(5))
        yield "append_paged_kv_cache", dict(ids, **lists, append_key=self.k[:2], append_value=self.v[:2],
                                            paged_kv_cache=c.pages.clone(), kv_layout="NHD")
        apart = self.latent.clone()
        yield "append_paged_mla_kv_cache", dict(ids, **lists, append_ckv=self.parts[:2, 0, :128],
                                                append_kpe=self.parts[:2, 0, 128:], ckv_cache=apart[..., :128],
                                                kpe_cache=apart[..., 128:])
        yield "merge_state", dict(zip(("v_a", "s_a", "v_b", "s_b"), (*state, *state)))
        yield "merge_state_in_place", dict(zip(("v", "s", "v_other", "s_other"), (*(x.clone() for x in state), *state)),
                                           mask=torch.ones(5, dtype=torch.bool, device=DEVICE))
        yield "merge_states", dict(v=state[0][:, None], s=state[1][:, None])
        yield "packbits", dict(x=torch.ones(9, dtype=torch.bool, device=DEVICE), bitorder="big")
        yield "segment_packbits", dict(x=torch.ones(9, dtype=torch.bool, device=DEVICE), indptr=ints([0, 4, 9]),
                                       bitorder="big")
        table = torch.randn(16, 32, device=DEVICE)
        for behind in ("", "_inplace"):
            for name, more in (("apply_rope", by_request), ("apply_rope_pos_ids", by_row),
                               ("apply_llama31_rope", {**by_request,
                                                       **smooth}), ("apply_llama31_rope_pos_ids", {**by_row,
                                                                                                   **smooth})):
                yield name + behind, {**turn, **more, "q": q.clone(), "k": k.clone()}
            yield "apply_rope_with_cos_sin_cache" + behind, dict(positions=ints(
                range(5)), query=q.flatten(1).clone(), key=k.flatten(1).clone(), head_size=D, cos_sin_cache=table,
                                                                 is_neox=True)

    def all(self):
        """Yields (name, function, keywords), newly built for each name."""
        for name, methods in self.of_wrappers():
            kind = getattr(flashinfer, name)
            for method, (make, keywords) in methods.items():
                yield f"{name}.{method}", kind if make is None else getattr(make(), method), keywords
        for name, keywords in self.of_functions():
            yield name, getattr(flashinfer, name), keywords


def wrong_values(value):
    """Returns values of a valid value's type that must be refused."""
    if value is True or value is False:
        return ["False", [0], 1.5, None] if value is False else ["False", [0], 1.5]
    if isinstance(value, (int, float)):
        return [math.nan, "8", value + 0.5] if isinstance(value, int) else [math.nan, math.inf, "8"]
    if isinstance(value, str):
        return [5]
    if isinstance(value, list):
        return [[], [Junk()], 5]
    if torch.is_tensor(value):
        other = value.double() if value.dtype in (torch.int32, torch.bool) else value.int()
        return [other, value[None], value.cpu().numpy() if value.dtype != torch.bfloat16 else 5]
    return []


MAY_BE_NONE = ("use_fp16_qk_reduction", "non_blocking", "use_tensor_cores", "enable_pdl", "use_fp16_softmax",
               "uses_spcompress")  # hints


def allowed(parameter, valid, wrong):
    """True if the wrong value is valid for this parameter after all."""
    if wrong is None:
        return parameter in MAY_BE_NONE  # None means the default, except for use_tensor_cores
    if parameter in ("float_workspace_buffer", "workspace_buffer") and torch.is_tensor(wrong):
        return True  # any tensor is valid
    if parameter in ("old_context_len", "device"):
        return type(wrong) in (float, int) and math.isfinite(wrong)
    if isinstance(wrong, np.ndarray):  # lists and masks may be anything that PyTorch reads
        return valid.dim() == 1 or valid.dtype == torch.bool
    return parameter in (
        "x",
        "custom_mask") and torch.is_tensor(wrong) and wrong.dtype == torch.bool  # same elements in the same order


class ArgumentsTest(unittest.TestCase):
    maxDiff = None

    def parameters(self, function):
        for name, parameter in inspect.signature(function).parameters.items():
            if not name.startswith("_") and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL,
                                                                   inspect.Parameter.VAR_KEYWORD):
                yield name

    def test_each_public_name_has_a_call_here(self):
        calls = {name.partition(".")[0]: {} for name, _, _ in Calls().all()}
        public = [name for name in dir(flashinfer) if not name.startswith("_") and callable(getattr(flashinfer, name))]
        self.assertEqual(sorted(public), sorted(calls))
        walked = {name for name, _, _ in Calls().all()}
        same = {
            "begin_forward": "plan", "run_return_lse": "run", "run": "forward", "plan": "begin_forward",
            "forward": "run"}  # names of one function
        for name in public:
            methods = inspect.getmembers(getattr(flashinfer, name), inspect.isfunction) if inspect.isclass(
                getattr(flashinfer, name)) else []
            for method, _ in methods:
                if method.startswith("_") or method in ("end_forward",
                                                        "reset_workspace_buffer") or f"{name}.{method}" in walked:
                    continue
                names = {
                    f"{of.__name__}.{one}"
                    for of in getattr(flashinfer, name).__mro__
                    for one in (method, same.get(method))}
                self.assertTrue(names & walked, f"{name}.{method} has no call here")

    def test_valid_calls_are_taken_and_name_every_argument(self):
        for name, function, keywords in Calls().all():
            with self.subTest(name):
                function(**keywords)
                missing = set(self.parameters(function)) - set(keywords) - set(NONE_ONLY) - {
                    "scale_q", "scale_k", "scale_v", "packed_custom_mask", "custom_mask", "block_tables", "ckv_scale",
                    "kpe_scale", "return_lse", "block_mask", "packed_mask", "q_scale", "k_scale", "v_scale"}
                self.assertFalse(missing, f"{name} is not called with {missing}")

    def refused(self, name, function, keywords, parameter, value):
        """Returns None, or a description of the fault."""
        try:
            function(**{**keywords, parameter: value})
        except (ValueError, TypeError) as error:
            named = re.search(rf"(?<![a-z]){re.escape(parameter)}(?![a-z])", str(error)) or parameter in str(error)
            return None if named else f"{name}({parameter}={value!r:.60}): does not name it: {str(error)[:150]}"
        except Exception as error:  # noqa: BLE001
            return f"{name}({parameter}={value!r:.60}): {type(error).__name__}: {str(error)[:150]}"
        return f"{name}({parameter}={value!r:.60}): taken"

    def test_junk_is_refused_by_name_in_every_argument(self):
        faults = [
            self.refused(name, function, keywords, parameter, Junk()) for name, function, keywords in Calls().all()
            for parameter in self.parameters(function)]
        self.assertGreater(len(faults), 500)
        self.assertEqual([fault for fault in faults if fault], [])

    def test_wrong_values_of_the_right_kind_are_refused_by_name(self):
        faults = []
        for name, function, keywords in Calls().all():
            for parameter, valid in keywords.items():
                faults += [self.refused(name, function, keywords, parameter, wrong) for wrong in wrong_values(valid)
                           if not allowed(parameter, valid, wrong)]
        self.assertGreater(len(faults), 800)
        self.assertEqual([fault for fault in faults if fault], [])


if __name__ == "__main__":
    unittest.main()
