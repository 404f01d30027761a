#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests decode.py and flashinfer_peer.py on the CPU. Stand-ins for FlashInfer's wrappers check the shapes and dtypes
that its documentation names, and compute attention from the arguments they receive. Results are compared with attention
over the case's own lengths and tables. Skips aloud (status 77) without PyTorch."""
import sys
import types
import unittest
from unittest import mock

try:
    import torch
except ImportError:
    print("SKIP: PyTorch is not installed.")
    sys.exit(77)

import decode
import flashinfer_peer
import peers


def attend(q, k, v, scale, causal):
    """Returns attention in float of q [rows, heads, head_dim] over k and v [keys, heads_kv, head_dim]. The last row
    sees all keys."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.float().repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("rhd,khd->hrk", q.float(), k) * scale
    if causal:
        rows, keys = q.shape[0], k.shape[0]
        scores = scores.masked_fill(torch.arange(keys)[None] > torch.arange(rows)[:, None] + keys - rows, float("-inf"))
    return torch.einsum("hrk,khd->rhd", scores.softmax(-1), v)


def expected(case, sets):
    k_cache, v_cache = sets.caches[0]
    if case.packed:
        parts = [slice(begin, begin + n) for begin, n in zip(sets.begins.tolist(), case.lengths)]
        return torch.cat([
            attend(sets.q[part], k_cache[part], v_cache[part], case.head_dim**-0.5, True) for part in parts])
    found = []
    for request, n in enumerate(case.lengths):
        k, v = (x[sets.table[request].long()].flatten(0, 1)[:n] if case.page else x[request, :n]
                for x in (k_cache, v_cache))
        found.append(attend(sets.q[request], k, v, case.head_dim**-0.5, case.rows > 1))
    return torch.stack(found)


class Wrapper:
    """Checks that the wrappers share: int32 index arrays, and a workspace of zero bytes."""
    backends = ("fa2",)

    def __init__(self, float_workspace_buffer, kv_layout="NHD", *, backend="auto"):
        assert float_workspace_buffer.dtype == torch.uint8 and not float_workspace_buffer.any(
        ) and kv_layout == "NHD" and backend in self.backends
        self.plans = 0

    def planned(self, *arrays, **given):
        assert all(array.dtype == torch.int32 and array.dim() == 1 for array in arrays)
        assert given.get("num_qo_heads", 1) % given.get("num_kv_heads", 1) == 0
        self.__dict__.update(given, plans=self.plans + 1)

    def keys(self, cache, request):
        """Returns the [keys, ...] of a request, gathered by the page arrays."""
        pages = self.indices[self.indptr[request]:self.indptr[request + 1]].long()
        return cache[pages].flatten(0, 1)[:(len(pages) - 1) * self.page_size + int(self.last_page_len[request])]

    def paged(self, q, cache, out, begins, causal):
        batch = len(self.indptr) - 1
        assert len(self.last_page_len) == batch == len(begins) - 1 and len(self.indices) == self.indptr[-1]
        assert self.last_page_len.min() >= 1 and self.last_page_len.max() <= self.page_size
        assert q.shape == (begins[-1], self.num_qo_heads, self.head_dim) == out.shape and (q.dtype,
                                                                                           out.dtype) == (self.q_type,
                                                                                                          self.q_type)
        assert len(cache) == 2 and all(
            x.shape[1:] == (self.page_size, self.num_kv_heads, self.head_dim) and x.dtype == self.kv_type
            for x in cache)
        for request in range(batch):
            rows = slice(int(begins[request]), int(begins[request + 1]))
            out[rows] = attend(q[rows], *(self.keys(x, request) for x in cache), self.head_dim**-0.5, causal)
        return out


class Decode(Wrapper):
    def __init__(self, float_workspace_buffer, kv_layout="NHD", *, use_tensor_cores=False, backend="auto"):
        super().__init__(float_workspace_buffer, kv_layout, backend=backend)
        assert use_tensor_cores

    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, *, q_data_type,
             kv_data_type):
        self.planned(indptr, indices, last_page_len, indptr=indptr, indices=indices, last_page_len=last_page_len,
                     num_qo_heads=num_qo_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, page_size=page_size,
                     q_type=q_data_type, kv_type=kv_data_type)

    def run(self, q, paged_kv_cache, *, out):
        return self.paged(q, paged_kv_cache, out, range(len(self.indptr)), False)


class Prefill(Wrapper):
    backends = ("fa2", "fa3")

    def plan(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
             head_dim_qk, page_size, *, causal, q_data_type, kv_data_type):
        self.planned(qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, begins=qo_indptr,
                     indptr=paged_kv_indptr, indices=paged_kv_indices, last_page_len=paged_kv_last_page_len,
                     num_qo_heads=num_qo_heads, num_kv_heads=num_kv_heads, head_dim=head_dim_qk, page_size=page_size,
                     causal=causal, q_type=q_data_type, kv_type=kv_data_type)

    def run(self, q, paged_kv_cache, *, out):
        return self.paged(q, paged_kv_cache, out, self.begins, self.causal)


class Ragged(Wrapper):
    backends = ("fa2", "fa3")

    def plan(self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, *, causal, q_data_type, kv_data_type):
        self.planned(qo_indptr, kv_indptr, begins=qo_indptr, kv_begins=kv_indptr, num_qo_heads=num_qo_heads,
                     num_kv_heads=num_kv_heads, causal=causal, head_dim=head_dim_qk, q_type=q_data_type,
                     kv_type=kv_data_type)

    def run(self, q, k, v, *, out):
        assert q.shape == out.shape == (self.begins[-1], self.num_qo_heads, self.head_dim) and q.dtype == self.q_type
        assert k.shape == v.shape == (self.kv_begins[-1], self.num_kv_heads,
                                      self.head_dim) and k.dtype == v.dtype == self.kv_type
        for begin, end, first, last in zip(self.begins, self.begins[1:], self.kv_begins, self.kv_begins[1:]):
            out[begin:end] = attend(q[begin:end], k[first:last], v[first:last], self.head_dim**-0.5, self.causal)
        return out


class Latent(Wrapper):
    backends = ("fa2", "fa3")

    def __init__(self, float_workspace_buffer, *, backend="auto"):
        super().__init__(float_workspace_buffer, backend=backend)

    def plan(self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_heads, head_dim_ckv, head_dim_kpe, page_size,
             causal, sm_scale, q_data_type, kv_data_type):
        assert (head_dim_ckv, head_dim_kpe, q_data_type, kv_data_type) == (512, 64, torch.bfloat16, torch.bfloat16)
        self.planned(qo_indptr, kv_indptr, kv_indices, kv_len_arr, begins=qo_indptr, indptr=kv_indptr,
                     indices=kv_indices, num_heads=num_heads, last_page_len=(kv_len_arr - 1) % page_size + 1,
                     page_size=page_size, causal=causal, sm_scale=sm_scale)

    def run(self, q_nope, q_pe, ckv_cache, kpe_cache, *, out):
        assert q_nope.shape == out.shape == (self.begins[-1], self.num_heads, 512) and q_pe.shape == (self.begins[-1],
                                                                                                      self.num_heads,
                                                                                                      64)
        assert ckv_cache.shape[1:] == (self.page_size, 512) and kpe_cache.shape[1:] == (self.page_size, 64) and len(
            self.indices) == self.indptr[-1]
        for request in range(len(self.indptr) - 1):
            rows = slice(int(self.begins[request]), int(self.begins[request + 1]))
            latent, turned = self.keys(ckv_cache, request), self.keys(kpe_cache, request)
            out[rows] = attend(torch.cat((q_nope[rows], q_pe[rows]), -1),
                               torch.cat((latent, turned), -1)[:, None], latent[:, None], self.sm_scale, self.causal)
        return out


STAND_IN = types.SimpleNamespace(BatchDecodeWithPagedKVCacheWrapper=Decode, BatchPrefillWithPagedKVCacheWrapper=Prefill,
                                 BatchPrefillWithRaggedKVCacheWrapper=Ragged,
                                 mla=types.SimpleNamespace(BatchMLAPagedAttentionWrapper=Latent))
# Small cases of each kind in all_cases(): the leading arguments of decode.Case, and the backends that serve the case.
CASES = [(("slots", (48, ) * 3), "fa2"), (("one request", (1024, ), 32, 8), "fa2"),
         (("pages of 1", (37, 5, 64), 8, 2, 1, 1), "fa2"), (("pages of 16, ragged", (33, 16, 1), 8, 2, 1, 16), "fa2"),
         (("groups of 7", (32, ) * 2, 28, 4), "fa2"), (("tokens", (48, ) * 2, 16, 2, 8), "fa2 fa3"),
         (("chunk", (80, ), 8, 1, 32, 16), "fa2 fa3"), (("e4m3", (40, 64), 8, 2, 1, 16, 128, "e4m3"), "fa2"),
         (("latent", (70, 128), 16, 1, 1, 64, 576, "", False, False, 512), "fa2 fa3"),
         (("prompts", (16, 40, 1), 8, 2, 1, 0, 128, "", False, True), "fa2 fa3"), (("no pages", (17, ) * 2), "")]


class FlashInferPeerTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(mock.patch.stopall)
        mock.patch.dict(sys.modules, flashinfer=STAND_IN).start()
        mock.patch.object(flashinfer_peer, "WORKSPACE_BYTES", 1024).start()
        mock.patch.object(flashinfer_peer, "_workspaces", {}).start()
        torch.manual_seed(1)

    def test_results_equal_attention_over_the_case(self):
        for fields, backends in CASES:
            case = decode.Case(*fields)
            sets = decode.Sets(case, device="cpu", l2=1)
            for backend in ("fa2", "fa3"):
                with self.subTest(case=case.name, backend=backend):
                    run = decode.PEERS["flashinfer_" + backend](case, sets)
                    self.assertEqual(run is not None, backend in backends.split())
                    if run is None:
                        continue
                    found, wanted = run().float(), expected(case, sets)
                    self.assertEqual(found.shape, wanted.shape)
                    self.assertLess(((found - wanted).norm() / wanted.norm()).item(), 0.005)
                    run.plan()

    def test_fa2_serves_every_case_but_int8_and_factors_of_keys(self):
        """fa2 serves each case that has a peer, since published slots are whole pages. FlashInfer has neither int8 nor
        factors of keys."""
        for case in decode.all_cases():
            if case.by_key or case.dtype_kv == "int8":
                continue
            with mock.patch.multiple(flashinfer_peer, latent=mock.Mock(), end_to_end=mock.Mock(),
                                     over_pages=mock.Mock()):
                self.assertIsNotNone(flashinfer_peer.fa2(case, None), case.name)

    def test_runs_take_the_copies_in_turn(self):
        case = decode.Case("copies", (32,) * 2, 8, 2)
        sets = decode.Sets(case, device="cpu", l2=case.bytes)
        run = decode.PEERS["flashinfer_fa2"](case, sets)
        self.assertEqual(len(sets.caches), 3)
        results = [run().clone() for _ in range(4)]
        self.assertTrue(torch.equal(results[0], results[3]))
        self.assertFalse(torch.equal(results[0], results[1]) or torch.equal(results[1], results[2]))


class ResultTest(unittest.TestCase):
    def test_a_package_that_is_not_installed_is_named(self):
        with mock.patch.dict(sys.modules, flashinfer=None):
            found = peers.missing(["cudnn", "flashinfer_fa2"])
        self.assertEqual(list(found), ["flashinfer_fa2"])
        self.assertIn("flashinfer-python", found["flashinfer_fa2"])

    def test_a_peer_with_other_results_is_dropped_and_reported(self):
        case, sets, failures = decode.Case("one", (16,)), types.SimpleNamespace(number=1), []
        ones = torch.ones(4)
        left = decode.agreeing(
            case, sets, {"attune": lambda: ones, "cudnn": lambda: ones * 1.001, "flashinfer_fa2": lambda: ones * 2},
            failures)
        self.assertEqual((list(left), [row["peer"] for row in failures]), (["attune", "cudnn"], ["flashinfer_fa2"]))

    def test_summary(self):
        def row(case, over=None, **us):
            return {
                "case": case, "over_best_peer": over, "timings": {
                    name: {"median_us": value}
                    for name, value in us.items()}}

        found = decode.summary([
            row("b32 kv8192", 1.25, attune=8.0, cudnn=10.0, flashinfer_fa2=12.0),
            row("b32 kv8192 page1", 1.5, attune=20.0, flashinfer_fa2=40.0),
            row("b32 kv8192 page16 bf16", 1.5, attune=20.0, flashinfer_fa2=30.0),
            row("b32 kv8192 page16 e4m3", 1.5, attune=10.0, flashinfer_fa2=20.0)])
        self.assertEqual(
            found, {
                "points": 1, "geomean_over_best_peer": 1.25, "worst_over_best_peer": 1.25,
                "pages_over_best_peer_on_slots": {"b32 kv8192 page1": {"attune": 0.5, "flashinfer_fa2": 0.25}},
                "8_bits_over_bf16": {"b32 kv8192 page16 e4m3": {"attune": 2.0, "flashinfer_fa2": 1.5}}})


if __name__ == "__main__":
    unittest.main()
