#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""patch_diffusers(): attune behind diffusers' own dispatcher, and in a tiny transformer of random weights. Skips aloud (status 77) without
PyTorch, diffusers or the CPU target."""
import os
import sys
import unittest

import attune

try:
    import torch
    from diffusers import SD3Transformer2DModel
    from diffusers.models.attention_dispatch import attention_backend, dispatch_attention_fn
except ImportError as error:
    print(f"SKIP: {error}")
    sys.exit(77)


def operands(heads_kv=4, keys=50, dtype=torch.float32):
    torch.manual_seed(2)
    return [torch.randn(2, rows, heads, 32, dtype=dtype) for rows, heads in ((33, 4), (keys, heads_kv), (keys, heads_kv))]


class DiffusersTest(unittest.TestCase):
    def both(self, q, k, v, **given):
        want = dispatch_attention_fn(q, k, v, **given)
        with self.assertLogs("attune", "INFO"), attune.patch_diffusers():
            got = dispatch_attention_fn(q, k, v, **given)
        self.assertFalse(torch.equal(got, want), "attune sums in another order: equal bits mean that it did not run")
        self.assertLess((got - want).abs().max().item(), 2e-5)

    def test_calls(self):
        q, k, v = operands()
        seen = torch.rand(2, 50) < 0.7
        self.both(q, k, v)
        self.both(q, k, v, scale=0.3, is_causal=True)
        self.both(q, k, v, attn_mask=seen)
        self.both(q, k, v, attn_mask=seen[:, None, None].expand(2, 1, 33, 50))
        self.both(q, k, v, attn_mask=torch.randn(2, 4, 33, 50))
        self.both(*operands(2), enable_gqa=True)

    def test_a_model(self):
        torch.manual_seed(2)
        model = SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16, num_attention_heads=4,
                                      joint_attention_dim=32, caption_projection_dim=64, pooled_projection_dim=16, out_channels=4).eval()
        given = dict(hidden_states=torch.randn(1, 4, 16, 16), encoder_hidden_states=torch.randn(1, 7, 32), pooled_projections=torch.randn(1, 16),
                     timestep=torch.tensor([3]), return_dict=False)
        with torch.no_grad():
            want = model(**given)[0]
            with attune.patch_diffusers():
                got = model(**given)[0]
        self.assertLess((got - want).abs().max().item(), 1e-4 * want.abs().max().item())

    def test_the_scope_ends(self):
        q, k, v = operands()
        want = dispatch_attention_fn(q, k, v)
        with self.assertRaises(KeyError), attune.patch_diffusers(("native", "_native_math")):
            with attention_backend("_native_math"):
                self.assertLess((dispatch_attention_fn(q, k, v) - want).abs().max().item(), 2e-5)
            raise KeyError
        self.assertTrue(torch.equal(dispatch_attention_fn(q, k, v), want))

    def test_dropout(self):
        q, k, v = operands()
        torch.manual_seed(3)
        want = attune.attention(q, k, v, dropout_p=0.4)
        torch.manual_seed(3)
        with attune.patch_diffusers():
            self.assertTrue(torch.equal(dispatch_attention_fn(q, k, v, dropout_p=0.4), want))
        self.assertFalse(torch.equal(attune.attention(q, k, v), want))

    def test_refusals(self):
        q, k, v = operands()
        for given, sentence in (({"dropout_p": 1.0}, "dropout_p is 1.0"), ({"attn_mask": torch.ones(3, 33, 50)}, "attn_mask has shape"),
                                ({"attn_mask": torch.ones(2, 50), "is_causal": True}, "attn_mask and is_causal are both given")):
            with self.assertRaisesRegex(ValueError, sentence), attune.patch_diffusers():
                dispatch_attention_fn(q, k, v, **given)
        with self.assertRaisesRegex(ValueError, "query has 4 heads and key has 2"), attune.patch_diffusers():
            dispatch_attention_fn(*operands(2))
        with self.assertRaisesRegex(ValueError, "backends has 'attune'; accepted are"), attune.patch_diffusers("attune"):
            pass


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        print(f"SKIP: no CPU target: {error}")
        sys.exit(77)
    unittest.main()
