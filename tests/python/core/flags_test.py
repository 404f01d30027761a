#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Boolean arguments in all signatures: bools of Python, NumPy and PyTorch are valid; texts, lists and numbers are
refused by the argument's name. In eager calls, compiled graphs and known calls, on PyTorch's CPU tensors. Skips aloud
(status 77) without PyTorch."""
import sys
import unittest

try:
    import numpy as np
    import torch
except ImportError:
    print("SKIP: PyTorch or NumPy is not installed")
    sys.exit(77)

import attune
import skips
import attune.torch
from attune import block_map, diffusers, flash, flashinfer, flex, sdpa
from attune.flash import cute

WRONG = ("False", "", [0], [], 1.5, 0, 1, None, np.array([True]), torch.tensor([True]), torch.tensor(1))
ints = lambda *values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
rows, dense, first = torch.randn(5, 2, 16), torch.randn(1, 5, 2, 16), torch.randn(1, 2, 5, 16)
cache, page = torch.randn(1, 8, 2, 16), torch.randn(2, 2, 4, 2, 16)
angles = torch.randn(8, 8)
O, LSE = attune.attention(dense, dense, dense, return_lse=True)
LEVEL = dict(k_cache=cache, v_cache=cache, q_begins=ints(0, 5), seqlen_q=5)
JOINED, ABSORBED = torch.randn(2, 4, 48).split((32, 16), -1), torch.randn(5, 2, 48).split((32, 16), -1)
MADE = (torch.zeros(1, 8, 2), torch.zeros(1, 8, 2))


def planned(wrapper, *lists, **choices):
    wrapper.plan(*lists, **choices)
    return wrapper


def ragged(**choices):
    return planned(flashinfer.BatchPrefillWithRaggedKVCacheWrapper(torch.empty(0)), ints(0, 5), ints(0, 5), 2, 2, 16,
                   q_data_type=torch.float32, **choices)


def paged(**choices):
    return planned(flashinfer.BatchPrefillWithPagedKVCacheWrapper(torch.empty(0)), ints(0, 5), ints(0, 2), ints(0, 1),
                   ints(4), 2, 2, 16, 4, **choices)


def decode(**choices):
    return planned(flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(0)), ints(0, 2), ints(0, 1), ints(4), 2, 2,
                   16, 4, **choices)


def latent(causal=False):
    return planned(flashinfer.BatchMLAPagedAttentionWrapper(torch.empty(0)), ints(0, 5), ints(0, 2), ints(0, 1),
                   ints(8), 2, 32, 16, 4, causal, 0.2)


def levels(**choices):
    return planned(flashinfer.MultiLevelCascadeAttentionWrapper(1), [ints(0, 5)], [ints(0, 2)], [ints(0, 1)], [ints(4)],
                   2, 2, 16, 4, **choices)


def shared(causal):
    wrapper = flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(torch.empty(0))
    return planned(wrapper, ints(0, 5), ints(0, 2), ints(0, 1), ints(4), 2, 2, 16, 4).run(
        rows, rows, rows, page, causal=causal)


CALLS = {
    "attention": (lambda **x: attune.attention(dense, dense, dense, **x),
                  "is_causal return_lse pad_head_dim? deterministic?"),
    "problem_text": (lambda **x: attune.problem_text(dense, dense, dense, **x), "is_causal"),
    "attention_backward": (lambda **x: attune.attention_backward(O, dense, dense, dense, O, LSE, **x),
                           "is_causal accumulate deterministic? pad_head_dim?"),
    "gradients": (
        lambda gradients: attune.attention_backward(O, dense, dense, dense, O, LSE, gradients=(True, gradients, True)),
        "gradients"),
    "attention_kvcache": (lambda **x: attune.attention_kvcache(dense, cache, cache, **x),
                          "is_causal return_lse batch_invariant"),
    "append_kv": (
        lambda **x: attune.append_kv(dense, dense, cache.clone(), cache.clone(), ints(5), cos=angles, sin=angles, **x),
        "interleaved"),
    "make_scales": (lambda **x: attune.append_kv(dense.half(), dense.half(
    ), *(cache.to(torch.float8_e4m3fn) for _ in "kv"), ints(5), k_scale=MADE[0], v_scale=MADE[1], **x), "make_scales"),
    "cascade": (lambda **x: attune.cascade(rows, [LEVEL], **x), "is_causal return_lse"),
    "sdpa": (lambda **x: sdpa.scaled_dot_product_attention(first, first, first, **x), "is_causal enable_gqa"),
    "sdpa of three axes": (lambda **x: sdpa.scaled_dot_product_attention(first[0], first[0], first[0], **x),
                           "is_causal enable_gqa"),
    "flash": (lambda **x: flash.flash_attn_func(dense, dense, dense, **x),
              "causal deterministic return_attn_probs return_lse"),
    "flash packed": (lambda **x: flash.flash_attn_qkvpacked_func(torch.stack(
        (dense, ) * 3, 2), **x), "causal deterministic return_attn_probs return_lse"),
    "flash varlen": (lambda **x: flash.flash_attn_varlen_func(rows, rows, rows, ints(0, 5), ints(0, 5), 5, 5, **x),
                     "causal deterministic return_attn_probs return_lse return_softmax_lse"),
    "flash kvcache": (
        lambda **x: flash.flash_attn_with_kvcache(dense, cache, cache, dense, dense, angles, angles, 3, **x),
        "causal return_softmax_lse rotary_interleaved"),
    "flash combine": (lambda **x: flash.flash_attn_combine(O[None],
                                                           LSE.transpose(1, 2)[None], **x), "return_lse"),
    "cute": (lambda **x: cute.flash_attn_func(dense, dense, dense, **x), "causal deterministic return_lse"),
    "cute varlen": (lambda **x: cute.flash_attn_varlen_func(dense, dense, dense, **x),
                    "causal deterministic return_lse"),
    "flex": (lambda **x: flex.flex_attention(first, first, first, **x), "enable_gqa return_lse"),
    "diffusers": (lambda **x: diffusers.attention_backend(dense, dense, dense, **x), "is_causal enable_gqa return_lse"),
    "spec": (lambda **x: attune.torch.spec(**x),
             "is_causal batch_invariant interleaved pad_head_dim? deterministic? hides?"),
    "BlockMap": (lambda **x: attune.BlockMap(torch.full((1, 1, 1, 1), 3, dtype=torch.uint8), 5, 5, **x), "hides"),
    "Context": (lambda **x: attune.Context("cpu:1", store="", **x), "no_jit"),
    "single_prefill": (lambda **x: flashinfer.single_prefill_with_kv_cache(rows, rows, rows, **x), "causal return_lse"),
    "single_decode": (lambda **x: flashinfer.single_decode_with_kv_cache(rows[0], rows, rows, **x), "return_lse"),
    "ragged plan": (ragged, "causal disable_split_kv"),
    "ragged run": (lambda **x: ragged().run(rows, rows, rows, **x), "return_lse"),
    "paged plan": (paged, "causal disable_split_kv"),
    "paged plan beside a mask": (lambda **x: paged(custom_mask=torch.ones(40, dtype=torch.bool), **x), "causal"),
    "paged run": (lambda **x: paged().run(rows, page, **x), "return_lse"),
    "decode plan": (decode, "disable_split_kv"),
    "decode run": (lambda **x: decode().run(rows[:1], page, **x), "return_lse"),
    "decode": (lambda **x: flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(0), **x), "use_cuda_graph"),
    "latent plan": (latent, "causal"),
    "latent run": (lambda **x: latent().run(*ABSORBED, *JOINED, **x), "return_lse return_lse_base_on_e"),
    "cascade plan": (levels, "causal"),
    "cascade wrapper": (lambda **x: flashinfer.MultiLevelCascadeAttentionWrapper(1, **x), "use_cuda_graph"),
    "shared prefix": (shared, "causal"),
    "rope": (lambda **x: flashinfer.apply_rope_pos_ids(rows, rows, torch.arange(5), **x), "interleave"),
    "rope by a table": (lambda **x: flashinfer.apply_rope_with_cos_sin_cache(torch.arange(5), rows.flatten(
        1), rows.flatten(1), 16, torch.cat((angles, angles), -1), **x), "is_neox"), }
NONE_IS_FALSE = ("attention", "problem_text", "attention_backward", "attention_kvcache", "cascade", "spec")


class FlagsTest(unittest.TestCase):
    def each(self):
        for where, (call, names) in CALLS.items():
            for name in names.split():
                takes_none = name.endswith("?") or name == "is_causal" and where in NONE_IS_FALSE
                yield where, call, name.rstrip("?"), takes_none

    def test_values_other_than_bools_are_refused(self):
        for where, call, name, takes_none in self.each():
            for value in WRONG:
                if value is None and takes_none:
                    call(**{name: None})
                    continue
                with self.subTest(where, name=name, value=repr(value)), self.assertRaisesRegex(
                        TypeError, rf"^{name} is .*; must be .*True"):
                    call(**{name: value})

    def test_bools_of_all_kinds(self):
        """NumPy's and PyTorch's bools give the results and refusals of True and False."""
        def outcome(call):
            try:
                found = call()
            except (ValueError, attune.Error) as error:
                return str(error)
            return [
                x for x in (found if isinstance(found, (tuple, list)) else (found, ))
                if isinstance(x, (torch.Tensor, str))]

        for where, call, name, _ in self.each():
            for value in (True, False):
                with self.subTest(where, name=name, value=value):
                    want = outcome(lambda: call(**{name: value}))
                    for other in (np.bool_(value), torch.tensor(value)):
                        found = outcome(lambda: call(**{name: other}))
                        self.assertEqual(len(found), len(want))
                        for one, another in zip(found, want):
                            self.assertTrue(
                                torch.equal(one, another) if isinstance(one, torch.Tensor) else one == another)

    def test_known_calls(self):
        """The C module's known calls for True and False serve no other value."""
        for _ in range(3):
            for where in ("attention", "attention_kvcache", "append_kv", "sdpa", "flash"):
                call, names = CALLS[where]
                for name in names.replace("?", "").split():
                    if name == "pad_head_dim":
                        continue
                    for value in (True, False):
                        call(**{name: value})
                    with self.assertRaisesRegex(TypeError, f"^{name} is 'False'; must be"):
                        call(**{name: "False"})

    def test_in_graphs(self):
        """Bools and conditions on lengths become graph constants; other values are refused as in eager calls."""
        calls = {
            "sdpa": lambda x, f: sdpa.scaled_dot_product_attention(x, x, x, is_causal=f),
            "flash": lambda x, f: flash.flash_attn_func(x, x, x, causal=f),
            "attention": lambda x, f: attune.attention(x, x, x, is_causal=f),
            "kvcache": lambda x, f: attune.attention_kvcache(x, x, x, is_causal=f),
            "flash kvcache": lambda x, f: flash.flash_attn_with_kvcache(x, x, x, causal=f),
            "flex": lambda x, f: flex.flex_attention(x, x, x, return_lse=f)}
        x = torch.randn(1, 4, 4, 16)
        for where, call in calls.items():
            with self.subTest(where):
                torch._dynamo.reset()
                compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
                for value in (True, False):
                    torch.testing.assert_close(compiled(x, value), call(x, value), rtol=1e-5, atol=1e-5)
                with self.assertRaisesRegex(Exception, "is 'False'; must be True or False"):
                    compiled(x, "False")
                torch._dynamo.reset()
                broken = torch.compile(call, backend="aot_eager")
                with self.assertRaisesRegex(TypeError, "is 'False'; must be True or False"):
                    broken(x, "False")
                torch.testing.assert_close(broken(x, torch.tensor(True)), call(x, True), rtol=1e-5, atol=1e-5)
        torch._dynamo.reset()
        by_length = torch.compile(lambda x: flash.flash_attn_func(x, x, x, causal=x.shape[1] > 4), backend="aot_eager",
                                  fullgraph=True, dynamic=True)
        for length in (3, 4, 6, 7):
            x = torch.randn(1, length, 2, 16)
            torch.testing.assert_close(by_length(x), flash.flash_attn_func(x, x, x, causal=length > 4), rtol=1e-5,
                                       atol=1e-5)

    def test_maps_of_blocks(self):
        blocks = torch.nn.attention.flex_attention.create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128,
                                                                     device="cpu")
        with self.assertRaisesRegex(TypeError, "hides is 'False'; must be True or False"):
            block_map.from_flex(blocks, hides="False")

    def test_tuning(self):
        for name in ("padded", "training", "deterministic", "progress"):
            with self.assertRaisesRegex(TypeError, f"{name} is 'False'; must be True"):
                attune.tune("dtype=fp32,head_dim=64,heads=1,seqlen=8", store="/nowhere/store.db", **{name: "False"})
        with self.assertRaisesRegex(TypeError, "between_steps is 1; must be True or False"):
            attune.tune_on_first_use(between_steps=1)

    def test_transformers(self):
        try:
            from attune.transformers.attention import attention_forward
        except ImportError as error:
            self.skipTest(str(error))
        forward = lambda **x: attention_forward(torch.nn.Module(), first, first, first, None, **x)[0]  # noqa: E731
        self.assertTrue(torch.equal(forward(is_causal=True), forward(is_causal=np.True_)))
        for name in ("is_causal", "output_attentions"):
            with self.assertRaisesRegex(TypeError, f"{name} is 'False'; must be True"):
                forward(**{name: "False"})


if __name__ == "__main__":
    skips.run()
