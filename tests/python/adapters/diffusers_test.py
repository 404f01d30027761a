#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""patch_diffusers(): attune as a backend of diffusers' dispatcher, and in a tiny transformer with random weights. Skips
aloud (status 77) without PyTorch, diffusers or the CPU target."""
import importlib
import sys
import unittest
import unittest.mock

import attune
from skips import run, without_modules

with without_modules():
    import diffusers
    import torch
    from diffusers import SD3Transformer2DModel
    from diffusers.models.attention_dispatch import attention_backend, dispatch_attention_fn

import attune.diffusers
import attune.sdpa


def operands(heads_kv=4, keys=50, dtype=torch.float32):
    torch.manual_seed(2)
    return [
        torch.randn(2, rows, heads, 32, dtype=dtype) for rows, heads in ((33, 4), (keys, heads_kv), (keys, heads_kv))]


class DiffusersTest(unittest.TestCase):
    def both(self, q, k, v, **given):
        want = dispatch_attention_fn(q, k, v, **given)
        with self.assertLogs("attune", "INFO"), attune.patch_diffusers():
            got = dispatch_attention_fn(q, k, v, **given)
        self.assertFalse(torch.equal(got, want), "attune sums in another order, so equal bits mean that it did not run")
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

    def test_masks_that_the_native_backend_serves(self):
        q, k, v = operands()
        drawn = torch.Generator().manual_seed(3)
        for shape in ((33, 50), (1, 33, 50), (4, 33, 50), (1, 50), (2, 1, 1, 50), (1, 4, 33, 50), (2, 50), (33, 1)):
            for mask in (torch.rand(shape, generator=drawn) < 0.7, torch.randn(shape, generator=drawn)):
                with self.subTest(shape=shape, dtype=mask.dtype):
                    self.both(q, k, v, attn_mask=mask)
        seen = torch.rand(2, 2, generator=drawn) < 0.7
        seen[:, 0] = True
        self.both(*(x[:, :2] for x in (q, k, v)),
                  attn_mask=seen)  # [batch, seqlen_kv] where that is [seqlen_q, seqlen_kv], too

    def test_operands_in_any_memory(self):
        q, k, v = operands()
        self.both(q, k.transpose(2, 3).contiguous().transpose(2, 3), v)
        self.both(q, torch._neg_view(k), v)
        self.both(torch.cat([torch.zeros(1), q.flatten()])[1:].view(q.shape), k, v)
        self.both(q, torch.randn(2, 4, 32, 59).unfold(3, 50, 9)[..., 0, :].permute(0, 3, 1, 2), v)
        self.both(q, torch.randn(4096).as_strided((2, 50, 4, 32), (2048, 8, 512, 1)), v)

    def test_processors_that_call_pytorch_themselves(self):
        """Each call runs attune, in models loaded before or inside the scope."""
        seeded = lambda *shape: torch.randn(shape, generator=torch.Generator().manual_seed(1))
        models = {
            "UNet2DConditionModel": (dict(sample_size=8, block_out_channels=(32, 64), layers_per_block=1,
                                          cross_attention_dim=32, attention_head_dim=4, norm_num_groups=8,
                                          down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                          up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")),
                                     lambda one: one(seeded(1, 4, 8, 8), 3, seeded(1, 7, 32)).sample),
            "AutoencoderKL": (dict(block_out_channels=(32, ), norm_num_groups=8,
                                   down_block_types=("DownEncoderBlock2D", ),
                                   up_block_types=("UpDecoderBlock2D", )), lambda one: one(seeded(1, 3, 8, 8)).sample),
            "PixArtTransformer2DModel": (dict(
                num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=8, num_layers=1,
                cross_attention_dim=32, sample_size=8, patch_size=2, caption_channels=32, norm_type="ada_norm_single",
                use_additional_conditions=False), lambda one: one(seeded(1, 4, 8, 8), seeded(1, 7, 32), torch.tensor([
                    3]), {"resolution": None, "aspect_ratio": None}).sample),
            "SanaTransformer2DModel": (dict(
                in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=16, num_layers=1,
                num_cross_attention_heads=2, sample_size=8, cross_attention_head_dim=16, cross_attention_dim=32,
                caption_channels=32, patch_size=1), lambda one: one(seeded(1, 4, 8, 8), encoder_hidden_states=seeded(
                    1, 7, 32), timestep=torch.tensor([3])).sample),
            "AutoencoderKLWan": (dict(base_dim=8, z_dim=4, dim_mult=[1, 1], num_res_blocks=1, temperal_downsample=[
                False]), lambda one: one(seeded(1, 3, 1, 16, 16)).sample), }
        for name, (sizes, call) in models.items():
            with self.subTest(name), torch.no_grad():
                if not hasattr(diffusers, name):
                    self.skipTest(f"this diffusers has no {name}")
                torch.manual_seed(1)
                model = getattr(diffusers, name)(**sizes).eval()
                with unittest.mock.patch("torch.nn.functional.scaled_dot_product_attention",
                                         wraps=torch.nn.functional.scaled_dot_product_attention) as theirs:
                    want = call(model)
                    calls = theirs.call_count
                    with unittest.mock.patch("attune.sdpa.attend_checked",
                                             wraps=attune.sdpa.attend_checked) as ours, attune.patch_diffusers():
                        got = call(model)
                self.assertEqual((ours.call_count, theirs.call_count), (calls, calls))
                self.assertGreater(calls, 0)
                self.assertLess((got - want).abs().max().item(), 1e-4 * want.abs().max().item())

    def test_a_module_that_is_loaded_in_the_scope(self):
        name = "diffusers.models.transformers.transformer_lumina2"
        kept = sys.modules.pop(name, None)
        try:
            with attune.patch_diffusers():
                module = importlib.import_module(name)
                self.assertIsNot(module.F, torch.nn.functional)
                self.assertIs(module.F.scaled_dot_product_attention, attune.diffusers.scaled_dot_product_attention)
                self.assertIs(module.F.silu, torch.nn.functional.silu)
            self.assertIs(module.F, torch.nn.functional)
            with attune.patch_diffusers("_native_math"):
                self.assertIs(module.F, torch.nn.functional)
        finally:
            sys.modules.pop(name, None)
            if kept is not None:
                sys.modules[name] = kept

    def test_calls_that_stay_with_pytorch(self):
        q, k, v = (x.transpose(1, 2) for x in operands())
        theirs = torch.nn.functional.scaled_dot_product_attention
        for given in ([x.double() for x in (q, k, v)], [x.repeat(1, 1, 1, 20) for x in (q, k, v)], [
                x.to("meta") for x in (q, k, v)]):
            with self.assertLogs("attune", "INFO") as logged:
                found = attune.diffusers.scaled_dot_product_attention(*given)
            self.assertIn("runs on PyTorch: ", logged.output[0])
            self.assertTrue(found.is_meta or torch.equal(found, theirs(*given)))

        class Skips(torch.overrides.TorchFunctionMode):  # as diffusers' guidance by skipped layers
            def __torch_function__(self, function, types, args=(), kwargs=None):
                return args[2] * 2 if function is theirs else function(*args, **(kwargs or {}))

        v = v[:, :, :33]
        for call in (lambda: attune.diffusers.scaled_dot_product_attention(q, v, v),
                     lambda: dispatch_attention_fn(*(x.transpose(1, 2) for x in (q, v, v))).transpose(1, 2)):
            with attune.patch_diffusers(), Skips():
                self.assertTrue(torch.equal(call(), v * 2))
        with torch.device("cpu"):
            self.assertFalse(attune.diffusers._is_watched())

    def test_a_model(self):
        torch.manual_seed(2)
        model = SD3Transformer2DModel(sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16,
                                      num_attention_heads=4, joint_attention_dim=32, caption_projection_dim=64,
                                      pooled_projection_dim=16, out_channels=4).eval()
        given = dict(hidden_states=torch.randn(1, 4, 16, 16), encoder_hidden_states=torch.randn(1, 7, 32),
                     pooled_projections=torch.randn(1, 16), timestep=torch.tensor([3]), return_dict=False)
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
        for given, sentence in (({"dropout_p": 1.5}, "dropout_p is 1.5"), ({"attn_mask": torch.ones(
                3, 33, 50)}, r"attn_mask has shape \(3, 33, 50\); must broadcast to \(2, 4, 33, 50\)"), ({
                    "attn_mask": torch.ones(2, 50), "is_causal": True}, "attn_mask is given and is_causal is True")):
            with self.assertRaisesRegex(ValueError, sentence), attune.patch_diffusers():
                dispatch_attention_fn(q, k, v, **given)
        with self.assertRaisesRegex(ValueError, "query has 4 heads and key 2"), attune.patch_diffusers():
            dispatch_attention_fn(*operands(2))
        with self.assertRaisesRegex(ValueError, "backends has 'attune'; must be"), attune.patch_diffusers("attune"):
            pass


if __name__ == "__main__":
    run()
