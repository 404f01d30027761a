#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Arguments that do not fit: every function refuses them with a message that names the caller's argument, never with an
error of Python or PyTorch, and never silently computes another result. On PyTorch's CPU tensors; skips aloud (status
77) without PyTorch."""
import math
import sys
import unittest
import warnings

try:
    import numpy as np
    import torch
except ImportError:
    print("SKIP: PyTorch and NumPy are wanted")
    sys.exit(77)

import attune
from attune import flash, flashinfer, flex, sdpa
from attune.flash import cute

ints = lambda *values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
rows, dense = torch.randn(6, 2, 32), torch.randn(1, 6, 2, 32)


def of_rows(function=flash.flash_attn_varlen_func, **choices):
    return function(**{
        **dict(q=rows, k=rows, v=rows, cu_seqlens_q=ints(0, 6), cu_seqlens_k=ints(0, 6), max_seqlen_q=6,
               max_seqlen_k=6), **choices})


def of_cache(**choices):
    return flash.flash_attn_with_kvcache(**{
        **dict(q=dense, k_cache=dense.clone(), v_cache=dense.clone(), cache_seqlens=ints(6)), **choices})


def of_dense(function=flash.flash_attn_func, **choices):
    return function(**{**dict(q=dense, k=dense, v=dense), **choices})


FLASH = {
    "dense": of_dense, "rows": of_rows, "cache": of_cache, "cute": lambda **x: of_dense(cute.flash_attn_func, **x),
    "cute rows": lambda **x: of_rows(cute.flash_attn_varlen_func, **x)}


class RefusalsTest(unittest.TestCase):
    def setUp(self):
        warnings.simplefilter("ignore")

    def refused(self, call, argument, *values, says=None):
        """call(argument=value) raises, for each value, a sentence with the argument's name."""
        for value in values:
            with self.subTest(argument=argument, value=str(value)[:60]):
                with self.assertRaises((TypeError, ValueError, attune.Error)) as raised:
                    call(**{argument: value})
                text = str(raised.exception)
                self.assertRegex(text, rf"\b{argument}\b" if says is None else says)
                self.assertRegex(text, r"must|give|only")

    def each(self, names):
        for name in names.split(", "):
            with self.subTest(function=name):
                yield FLASH[name]

    def test_attention_chunk(self):
        wrong = (-1, 1.5, True, math.nan, 2 ** 40, "2", [0], [], torch.tensor([2]), torch.tensor(True), np.bool_(True))
        for call in self.each("dense, rows, cache"):
            self.refused(call, "attention_chunk", *wrong)
            whole, off = call(causal=True, attention_chunk=0), call(causal=True, attention_chunk=None)
            self.assertTrue(torch.equal(whole, off))
            two = call(causal=True, attention_chunk=2)
            self.assertTrue(torch.equal(two, call(causal=True, attention_chunk=np.int64(2))))

    def test_numbers(self):
        for call in self.each("dense, rows, cache, cute, cute rows"):
            self.refused(call, "softcap", [], [0], "x", True, -1.0, math.nan, torch.ones(2), np.ones(3))
            self.refused(call, "softmax_scale", [], "x", True, -1.0, math.nan, torch.ones(2), np.ones(3))
            self.refused(call, "num_splits", [], "x", 1.5, torch.ones(2), np.ones(3))
            self.refused(call, "pack_gqa", [], "x", 1.5, torch.ones(2), np.ones(3))
        for call in self.each("dense, rows"):
            self.refused(call, "dropout_p", [], "x", True, -1.0, 1.0, math.nan, torch.ones(2), np.ones(3))

    def test_longest_sequences(self):
        for call in self.each("rows, cute rows"):
            for name in ("max_seqlen_q", "max_seqlen_k"):
                self.refused(call, name, "6", 6.9, 6.0, True, math.nan, [6], torch.tensor([6]), torch.tensor(True))
        self.assertTrue(torch.equal(of_rows(max_seqlen_q=np.int32(6), max_seqlen_k=torch.tensor(6)), of_rows()))

    def test_tensors(self):
        wrong = ("x", 3, [1.0], True)
        for call in self.each("dense, rows, cute, cute rows"):
            for name in ("q", "k", "v", "learnable_sink"):
                self.refused(call, name, *wrong)
        for name in ("q", "k_cache", "v_cache", "out", "qv"):
            self.refused(of_cache, name, *wrong)
        for name in ("qv", "out"):
            self.refused(of_rows, name, *wrong)
        self.refused(of_dense, "qv", *wrong)

    def test_probabilities_are_not_kept(self):
        for call in self.each("dense, rows"):
            _, _, none = call(return_attn_probs=True)
            self.assertEqual(tuple(none.shape), (0, ))
            out, lse, kept = call(return_attn_probs=True, dropout_p=0.25)
            self.assertEqual((out.shape, lse.shape[-1]), (call().shape, 6))
            for use in (lambda: kept.shape, lambda: kept[0], lambda: torch.abs(kept), lambda: kept > 0):
                with self.assertRaisesRegex(ValueError, "return_attn_probs is True with dropout_p"):
                    use()

    def test_combine(self):
        parts, sums = torch.randn(3, 1, 4, 2, 16), torch.randn(3, 1, 4, 2)
        for combine in (flash.flash_attn_combine, cute.flash_attn_combine):
            call = lambda **x: combine(**{**dict(out_partial=parts, lse_partial=sums), **x})  # noqa: E731
            out = torch.empty(1, 4, 2, 16)
            self.assertIs(call(out=out)[0], out)
            self.assertEqual(call(out_dtype=torch.bfloat16)[0].dtype, torch.bfloat16)
            self.refused(call, "out", torch.empty(5, 4, 2, 16), torch.empty(4, 2, 16), out.int(), out.numpy(),
                         out.double(), out.to("meta"), torch.empty(16).expand(1, 4, 2, 16),
                         out.clone().requires_grad_(), "x", 3)
            self.refused(call, "out_dtype", "fp32", torch.int32, torch.bool, torch.float64, [0], float, np.float32)
            self.refused(call, "lse_partial", sums.double(), sums.long(), sums.half(), sums.numpy(), sums.to("meta"),
                         "x", sums[:2])
            self.refused(call, "out_partial", parts.double(), parts.long(), parts.bool(), parts.numpy(), "x", parts[0])

    def test_ranks(self):
        """Head dims that are copied, in tensors of other ranks."""
        for q in (torch.randn(1, 4, 2, 20), np.zeros((1, 4, 2, 20), np.float32), dense):
            call = lambda **x: attune.attention(**{**dict(q=q, k=q, v=q), **x})  # noqa: E731
            for name in ("q", "k", "v"):
                self.refused(call, name, q[None], q[0], q[0, 0], q[None, None])

    def test_rotary_rows(self):
        q, k, place = torch.randn(4, 2, 32), torch.randn(4, 1, 32), torch.arange(4, dtype=torch.int32)
        for name, more in (("apply_rope_pos_ids", dict(pos_ids=place)), ("apply_llama31_rope_pos_ids", dict(
                pos_ids=place)), ("apply_rope", dict(indptr=ints(0, 4), offsets=ints(0))),
                           ("apply_llama31_rope", dict(indptr=ints(0, 4), offsets=ints(0)))):
            for function in (getattr(flashinfer, name), getattr(flashinfer, name + "_inplace")):
                call = lambda **x: function(**{**dict(q=q.clone(), k=k.clone()), **more, **x})  # noqa: E731
                call()
                self.refused(call, "q", q.double(), says="^q is float64; must")
                self.refused(call, "k", k.double(), says="^k is float64; must")
                for one, x in (("q", q), ("k", k)):
                    self.refused(call, one, x.clone().requires_grad_(), says=f"^{one} requires a gradient")
                self.refused(call, "k", k[:3])
                with self.assertRaisesRegex(TypeError, "unexpected keyword argument '_inplace'"):
                    call(_inplace=True)
        self.refused(lambda **x: flashinfer.apply_rope_pos_ids(q=q, k=k, **x), "pos_ids", place[:3], place.float(), "x")
        call = lambda **x: flashinfer.apply_rope_with_cos_sin_cache(**{  # noqa: E731
            **dict(positions=place, query=q.flatten(1), key=k.flatten(1), head_size=32,
                   cos_sin_cache=torch.randn(16, 32)), **x})
        for name, x in (("query", q.flatten(1)), ("key", k.flatten(1)), ("cos_sin_cache", torch.randn(16, 32))):
            self.refused(call, name, x.double(), says=f"^{name} is float64; must")
            self.refused(call, name, x.clone().requires_grad_(), says=f"^{name} requires a gradient")

    def test_states_and_pages(self):
        v, s = torch.randn(4, 2, 32), torch.randn(4, 2)
        for names, function in (("v_a s_a v_b s_b", flashinfer.merge_state), ("v s v_other s_other",
                                                                            flashinfer.merge_state_in_place)):
            given = dict(zip(names.split(), (v, s, v, s)))
            call = lambda **x: function(**{**given, **x})  # noqa: E731
            for name, x in given.items():
                if x is v:
                    self.refused(call, name, x.double(), says=f"^{name} is float64; must")
                self.refused(call, name, x.clone().requires_grad_(), says=f"^{name} requires a gradient")
            with self.assertRaisesRegex(TypeError, "_names"):
                call(_names=("a", "b", "c", "d"))
        two, sums = torch.stack((v, v), 1), torch.stack((s, s), 1)
        call = lambda **x: flashinfer.merge_states(**{**dict(v=two, s=sums), **x})  # noqa: E731
        self.refused(call, "v", two.double(), two.clone().requires_grad_(), says="^v (is|requires)")
        self.refused(call, "s", torch.stack((s, s), 1).requires_grad_())
        lists = dict(batch_indices=ints(0, 1), positions=ints(3, 4), kv_indices=ints(0, 1, 2, 3, 4),
                     kv_indptr=ints(0, 2, 5), kv_last_page_len=ints(1, 3))
        rows = dict(append_key=torch.randn(2, 2, 32), append_value=torch.randn(2, 2, 32),
                    paged_kv_cache=torch.randn(8, 2, 4, 2, 32))
        latent = dict(append_ckv=torch.randn(2, 64), append_kpe=torch.randn(2, 16), ckv_cache=torch.randn(8, 4, 64),
                      kpe_cache=torch.randn(8, 4, 16))
        for function, given in ((flashinfer.append_paged_kv_cache, rows),
                                (flashinfer.append_paged_mla_kv_cache, latent)):
            call = lambda **x: function(**{**given, **lists, **x})  # noqa: E731
            call()
            for name, x in given.items():
                self.refused(call, name, x.double(), x.half(), x.clone().requires_grad_(),
                             says=rf"\b{name} (is|requires)")

    def test_planned_caches(self):
        page, q = torch.randn(8, 2, 4, 2, 32), torch.randn(2, 4, 32)
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(0))
        wrapper.plan(ints(0, 2, 5), ints(0, 1, 2, 3, 4), ints(1, 3), 4, 2, 32, 4)
        call = lambda **x: wrapper.run(**{**dict(q=q, paged_kv_cache=page), **x})  # noqa: E731
        self.refused(call, "paged_kv_cache", page.double(), page.half(), page.clone().requires_grad_())
        plan = lambda **x: wrapper.plan(ints(0, 2, 5), ints(0, 1, 2, 3, 4), ints(1, 3), 4, 2, 32, 4, **x)  # noqa: E731
        for name in ("q_data_type", "kv_data_type", "pos_encoding_mode"):
            self.refused(plan, name, np.zeros(3), torch.zeros(3), 3)
        self.refused(lambda **x: flashinfer.packbits(torch.ones(9).bool(), **x), "bitorder", np.zeros(3), 3, "x")

    def test_heads_first(self):
        q = torch.randn(2, 4, 8, 32)
        for function in (sdpa.scaled_dot_product_attention, flex.flex_attention):
            call = lambda **x: function(**{**dict(query=q, key=q, value=q), **x})  # noqa: E731
            for name in ("query", "key", "value"):
                self.refused(call, name, "x", 3, None, q.numpy(), q.half(), q.long(), q.to("meta"), q[:, :, :0].mT)
            self.refused(call, "key", q[..., :5], says=r"^key has shape \(2, 4, 8, 5\) and query \(2, 4, 8, 32\)")
            self.refused(call, "value", q[:, :, :5], says=r"^value has shape \(2, 4, 5, 32\)")
            self.refused(call, "scale", "x", [], True, 0, torch.ones(2))
        call = lambda **x: sdpa.scaled_dot_product_attention(q, q, q, **x)  # noqa: E731
        self.refused(call, "dropout_p", "x", [], None, True, np.zeros(3), torch.zeros(3), 2.0)
        call = lambda **x: flex.flex_attention(q, q, q, **x)  # noqa: E731
        for name in ("block_mask", "return_aux", "kernel_options"):
            self.refused(call, name, "x", 3, q, np.zeros(3), True)

    def test_own_functions(self):
        call = lambda **x: attune.attention(dense, dense, dense, **x)  # noqa: E731
        self.refused(call, "out_dtype", "x", True, [], math.nan)
        self.refused(call, "v_layout", np.zeros(3), [], "x")
        self.refused(call, "dropout_p", "x", [], True, np.zeros(3), torch.zeros(3))
        o, lse = call(return_lse=True)
        merge = lambda **x: attune.merge(**{**dict(o=o, lse=lse, other_o=o, other_lse=lse), **x})  # noqa: E731
        for name in ("other_o", "out"):
            self.refused(merge, name, o.flatten(), o[0], "x")
        row = dense[:, :1]
        append = lambda **x: attune.append_kv(row, row, dense.clone(), dense.clone(), **x)  # noqa: E731
        self.refused(append, "cos", "x", 3, [1.0])
        self.refused(append, "dtype_kv", [], "x")
        caches = lambda **x: attune.attention_kvcache(  # noqa: E731
            **{**dict(q=dense, k_cache=dense, v_cache=dense), **x})
        self.refused(caches, "seqlen_kv", [0], "x", -1, 1.5, np.zeros(3))
        self.refused(caches, "dtype_kv", [], "x")
        for name in ("out", "k_cache", "v_cache"):
            self.refused(caches, name, torch.tensor(1.0), torch.ones(3), "x")
        for function in (call, merge, append, caches):
            self.refused(function, "context", "x", 3, [])

    def test_tables_and_masks(self):
        table = lambda **x: attune.rotary_table(**{**dict(num_positions=8, rotary_dim=32), **x})  # noqa: E731
        self.refused(table, "scaling", "x", 3, [1], np.zeros(3), True, {"rope_type": []})
        self.refused(table, "frequencies", "x", "x" * 16, 3, np.zeros((4, 4)), ["x"] * 16,
                     torch.zeros(16, device="meta"))
        self.refused(table, "num_positions", 2 ** 40, -1, 1.5, "x")
        self.refused(table, "like", "x", 3)
        yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
        for factor in (0.0, -1.0, math.nan, "x"):
            self.refused(table, "scaling", {**yarn, "attention_factor": factor}, says="attention_factor")
        mask = lambda **x: attune.dropout_mask(**{**dict(shape=(1, 1, 2, 2), dropout_p=0.5, seed=3), **x})  # noqa: E731
        for name in ("seed", "offset"):
            self.refused(mask, name, torch.zeros(6), np.zeros(6), torch.tensor(1.5), "x", torch.empty(1, device="meta"))
        self.refused(mask, "like", "x", 3)
        self.refused(lambda num_heads: attune.alibi_slopes(num_heads), "num_heads", 2 ** 40, 0, "x", torch.tensor(True))

    def test_names_of_other_libraries(self):
        o, lse = attune.attention(dense, dense, dense, return_lse=True)
        caches, rows = (dense, dense, dense), (dense[:, :1], dense[:, :1], dense.clone(), dense.clone())
        for call, name, hint in ((lambda **x: attune.attention_kvcache(*caches, **x), "softmax_scale", "scale"),
                                 (lambda **x: attune.attention_kvcache(*caches, **x), "block_table", "page_table"),
                                 (lambda **x: attune.attention_kvcache(*caches, **x), "cache_seqlens", "kv_lengths"),
                                 (lambda **x: attune.append_kv(*rows, **x), "rotary_cos", "cos"),
                                 (lambda **x: attune.append_kv(*rows, **x), "block_table", "page_table"),
                                 (lambda **x: attune.attention_backward(dense, dense, dense, dense, o, lse, **x),
                                  "softmax_scale", "scale")):
            with self.subTest(name), self.assertRaisesRegex(TypeError, rf"{name} is {hint}\b.* here"):
                call(**{name: dense})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
