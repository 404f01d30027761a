#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.flash.install(): programs that import FlashAttention get attune's functions, and version 3's order of
arguments; what is refused, what importlib and transformers find, and uninstall(). Skips aloud (status 77) without
PyTorch."""
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
import types
import unittest
import unittest.mock

import attune.flash
from skips import run, torch

TOPS = ("flash_attn", "flash_attn_interface", "flash_attn_3")


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Installed(unittest.TestCase):
    def setUp(self):
        self.installed = attune.flash.install()
        self.addCleanup(attune.flash.uninstall)


class ImportsTest(Installed):
    def test_programs_get_attunes_functions(self):
        scope = {}
        exec("from flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache\n"
             "from flash_attn import flash_attn_interface as module\n"
             "from flash_attn.bert_padding import index_first_axis, pad_input, unpad_input\n"
             "from flash_attn.ops.triton.rotary import apply_rotary\n"
             "from flash_attn.layers import rotary\n"
             "import flash_attn.layers.rotary\n", scope)
        for name in ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache", "index_first_axis",
                     "pad_input", "unpad_input"):
            self.assertIs(scope[name], getattr(attune.flash, name))
        self.assertIs(scope["module"].flash_attn_func, attune.flash.flash_attn_func)
        self.assertIs(scope["module"]._flash_attn_backward, attune.flash.halves.backward)
        self.assertIs(scope["rotary"].apply_rotary_emb, attune.flash.rotary.apply_rotary_emb)
        self.assertIs(scope["apply_rotary"], attune.flash.rotary.apply_rotary)
        self.assertIs(scope["flash_attn"].layers.rotary, scope["rotary"])
        scope = {}
        exec("import flash_attn_interface, flash_attn_3.flash_attn_interface\nfrom flash_attn import cute\n"
             "from flash_attn.cute.interface import flash_attn_func as newest\n"
             "from flash_attn_interface import *\n", scope)
        self.assertIs(scope["flash_attn_func"], attune.flash.version_3.flash_attn_func)
        self.assertIs(scope["flash_attn_3"].flash_attn_interface.get_scheduler_metadata,
                      scope["flash_attn_interface"].get_scheduler_metadata)
        self.assertIs(scope["cute"].flash_attn_func, attune.flash.cute.flash_attn_func)
        self.assertIs(scope["newest"], scope["cute"].flash_attn_func)

    def test_all_names_exist_and_are_listed(self):
        lines = repr(self.installed).split("\n")[1:]
        self.assertEqual(len(lines), len(self.installed.served))
        for line, (module, names) in zip(lines, self.installed.served.items()):
            self.assertEqual(line, f"  {module}: {', '.join(names)}")
            found = importlib.import_module(module)
            self.assertTrue(names and all(callable(getattr(found, name)) for name in names))
            self.assertEqual(found.__all__, list(names))

    def test_what_importlib_finds(self):
        for name in (*TOPS, *self.installed.served):
            self.assertEqual(importlib.util.find_spec(name).name, name)
        version = importlib.metadata.version("flash_attn")
        self.assertEqual(version, importlib.metadata.version("flash-attn"))
        self.assertEqual(version, importlib.import_module("flash_attn").__version__)
        self.assertEqual(importlib.metadata.packages_distributions()["flash_attn"], ["flash-attn"])
        self.assertEqual(importlib.metadata.metadata("flash-attn")["Name"], "flash-attn")
        for name in ("flash-attn-3", "flash-attn-4", "flash_attn_interface"):
            self.assertRaises(importlib.metadata.PackageNotFoundError, importlib.metadata.version, name)
        self.assertGreater(len(list(importlib.metadata.distributions())), 1)

    def test_names_that_attune_lacks(self):
        flash_attn = importlib.import_module("flash_attn")
        self.assertFalse(hasattr(flash_attn, "made_up"))
        with self.assertRaisesRegex(AttributeError, "does not serve flash_attn.made_up; it serves flash_attn_func, "):
            flash_attn.made_up
        with self.assertRaisesRegex(AttributeError, "module 'flash_attn' has no attribute '__made_up__'"):
            flash_attn.__made_up__
        for line, message in (
            ("from flash_attn import made_up", "attune does not serve flash_attn.made_up; it serves flash_attn_func"),
            ("from flash_attn.losses.cross_entropy import CrossEntropyLoss",
             r"flash_attn.losses; use torch.nn.functional.cross_entropy\(\)"),
            ("from flash_attn.layers.rotary import RotaryEmbedding", "RotaryEmbedding; use apply_rotary_emb"),
            ("from flash_attn.layers import patch_embed",
             "flash_attn.layers.patch_embed; it serves flash_attn.layers.rotary of flash_attn.layers"),
            ("from flash_attn_interface import FlashAttnFunc", "serve flash_attn_interface.FlashAttnFunc; it serves"),
            ("import flash_attn.ops.rms_norm", r"flash_attn.ops.rms_norm; use torch.nn.functional.rms_norm\(\)")):
            with self.subTest(line), self.assertRaisesRegex(ImportError, message):
                exec(line, {})

    def test_probes_for_modules_that_attune_lacks(self):
        """find_spec() returns None, as for a package that lacks them; imports raise ModuleNotFoundError."""
        for name in ("flash_attn.losses", "flash_attn.ops.rms_norm", "flash_attn.layers.patch_embed",
                     "flash_attn_interface.made_up", "flash_attn_3.ops", "flash_attn.cute.made_up"):
            with self.subTest(name):
                self.assertIsNone(importlib.util.find_spec(name))
                with self.assertRaisesRegex(ModuleNotFoundError, "attune does not serve") as caught:
                    importlib.import_module(name)
                self.assertEqual(caught.exception.name, name)
                self.assertNotIn(name, sys.modules)
        self.assertIsNone(importlib.util.find_spec(".losses", "flash_attn"))
        for probe in (lambda: importlib.util.find_spec("flash_attn.losses.cross_entropy"),
                      lambda: importlib.import_module("flash_attn.losses.cross_entropy"),
                      lambda: exec("import flash_attn.losses.cross_entropy", {})):
            with self.assertRaisesRegex(ModuleNotFoundError, "flash_attn.losses; use torch.nn") as caught:
                probe()
            self.assertEqual(caught.exception.name, "flash_attn.losses")
        self.assertIsNone(importlib.util.find_spec("flash_attn_2_cuda"))
        self.assertEqual(list(pkgutil.iter_modules(importlib.import_module("flash_attn").__path__)), [])

    def test_einops_under_their_name(self):
        einops = types.ModuleType("einops")
        einops.rearrange = lambda: None
        with unittest.mock.patch.dict(sys.modules, einops=einops):
            scope = {}
            exec("from flash_attn.bert_padding import rearrange", scope)
            self.assertIs(scope["rearrange"], einops.rearrange)

    def test_twice_and_undone(self):
        finders = list(sys.meta_path)
        self.assertIs(attune.flash.install(), self.installed)
        self.assertEqual(sys.meta_path, finders)
        kept = importlib.import_module("flash_attn").flash_attn_func
        attune.flash.uninstall()
        attune.flash.uninstall()
        self.assertFalse([name for name in sys.modules if name.partition(".")[0] in TOPS])
        for name in TOPS:
            self.assertIsNone(importlib.util.find_spec(name))
        self.assertRaises(importlib.metadata.PackageNotFoundError, importlib.metadata.version, "flash-attn")
        self.assertIs(kept, attune.flash.flash_attn_func)
        attune.flash.install()
        self.assertIs(importlib.import_module("flash_attn").flash_attn_func, kept)


class RefusalTest(unittest.TestCase):
    def test_a_loaded_package(self):
        for name in TOPS:
            module = types.ModuleType(name)
            module.__file__ = "/somewhere/__init__.py"
            with unittest.mock.patch.dict(sys.modules, {name: module}), self.assertRaisesRegex(
                    RuntimeError, f"{name} is imported from /somewhere/__init__.py; attune.flash.install.. must be"):
                attune.flash.install()
            self.assertIsNone(importlib.util.find_spec(name))


class VersionThreeTest(Installed):
    """Calls by position, in version 3's order, beside calls by name of attune.flash."""

    def setUp(self):
        super().setUp()
        self.three = importlib.import_module("flash_attn_interface")
        self.q, self.k, self.v = draw(2, 5, 4, 64), draw(2, 9, 2, 64, seed=1), draw(2, 9, 2, 64, seed=2)

    def equal(self, found, wanted):
        pairs = [(found, wanted)] if torch.is_tensor(wanted) else list(zip(found, wanted, strict=True))
        for one, other in pairs:
            self.assertTrue(torch.equal(one, other))

    def test_dense(self):
        given = self.q, self.k, self.v
        self.equal(self.three.flash_attn_func(*given, 0.3, True), attune.flash.flash_attn_func(
            *given, softmax_scale=0.3, causal=True))
        found = self.three.flash_attn_func(*given, None, False, None, None, None, None, (3, 1), 0, 5.0,
                                           return_attn_probs=True)
        self.equal(found, attune.flash.flash_attn_func(*given, window_size=(3, 1), softcap=5.0, return_lse=True))
        qkv = draw(2, 5, 8, 64, seed=3)
        found = self.three.flash_attn_qkvpacked_func(qkv, 0.3, True, num_heads_q=4)
        self.equal(found, attune.flash.flash_attn_func(*qkv.split((4, 2, 2), 2), softmax_scale=0.3, causal=True))

    def test_end_to_end(self):
        begins_q, begins_k = torch.tensor([0, 3, 10], dtype=torch.int32), torch.tensor([0, 9, 18], dtype=torch.int32)
        given = self.q.flatten(0, 1), self.k.flatten(0, 1), self.v.flatten(0, 1), begins_q, begins_k, 7, 9
        used = torch.tensor([4, 9], dtype=torch.int32)
        found = self.three.flash_attn_varlen_func(*given, None, used, 0.3, True, return_attn_probs=True)
        self.equal(found, attune.flash.flash_attn_varlen_func(*given, seqused_k=used, softmax_scale=0.3, causal=True,
                                                              return_lse=True))

    def test_caches(self):
        lengths, table = torch.tensor([4, 7], dtype=torch.int32), torch.tensor([[2, 0], [1, 3]], dtype=torch.int32)
        caches = [draw(4, 4, 2, 64, seed=seed) for seed in (4, 5)]
        q = self.q[:, :1]
        found = self.three.flash_attn_with_kvcache(q, *caches, None, None, None, None, None, lengths, None, None, table,
                                                   softmax_scale=0.3, causal=True, return_softmax_lse=True)
        self.equal(found, attune.flash.flash_attn_with_kvcache(q, *caches, cache_seqlens=lengths, block_table=table,
                                                               softmax_scale=0.3, causal=True, return_softmax_lse=True))
        parts = draw(3, 2, 5, 4, 64, seed=6), draw(3, 2, 5, 4, seed=7)
        self.equal(self.three.flash_attn_combine(*parts), attune.flash.flash_attn_combine(*parts))


class RotaryTest(Installed):
    def setUp(self):
        super().setUp()
        self.apply = importlib.import_module("flash_attn.layers.rotary").apply_rotary_emb
        angles = torch.arange(12.0)[:, None] * torch.tensor([1.0, 0.3, 0.1, 0.03])
        self.cos, self.sin = angles.cos(), angles.sin()

    def wanted(self, x, first, interleaved):
        """Returns rows [seqlen, num_heads, head_dim] from position `first` on, rotated as complex numbers."""
        pairs = torch.stack((x[..., 0:8:2], x[..., 1:8:2]), -1) if interleaved else torch.stack(
            (x[..., 0:4], x[..., 4:8]), -1)
        at = slice(first, first + x.shape[0])
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.complex(
            self.cos[at], self.sin[at])[:, None])
        columns = turned.flatten(-2) if interleaved else torch.cat((turned[..., 0], turned[..., 1]), -1)
        return torch.cat((columns, x[..., 8:]), -1)

    def test_positions(self):
        x = draw(2, 5, 3, 16)
        for interleaved in (False, True):
            for offsets, firsts in ((0, (0, 0)), (4, (4, 4)), (torch.tensor([7, 2]), (7, 2))):
                want = torch.stack([self.wanted(rows, first, interleaved) for rows, first in zip(x, firsts)])
                found = self.apply(x, self.cos, self.sin, interleaved, seqlen_offsets=offsets)
                torch.testing.assert_close(found, want)
                own = x.clone()
                self.assertIs(self.apply(own, self.cos, self.sin, interleaved, True, offsets), own)
                torch.testing.assert_close(own, want)
                packed = self.apply(x.flatten(0, 1)[:8], self.cos, self.sin, interleaved, False, offsets,
                                    torch.tensor([0, 5, 8], dtype=torch.int32), 5)
                torch.testing.assert_close(packed, want.flatten(0, 1)[:8])
                back = importlib.import_module("flash_attn.ops.triton.rotary").apply_rotary(
                    want, self.cos, self.sin, offsets, interleaved=interleaved, conjugate=True)
                torch.testing.assert_close(back, x)

    def test_gradients(self):
        x = draw(1, 3, 2, 16).double().requires_grad_()
        self.apply(x, self.cos, self.sin).square().sum().backward()
        torch.testing.assert_close(x.grad, 2 * x.detach(), atol=1e-6, rtol=1e-6)

    def test_refusals(self):
        for message, given in ((r"x has shape \(5, 3, 16\); must be \[batch, seqlen, num_heads", (draw(5, 3, 16),)),
                               (r"positions 0 to 12; must hold all", (draw(1, 13, 3, 16),)),
                               (r"rotary_dim at most 6, x's head_dim", (draw(1, 5, 3, 6),)),
                               (r"seqlen_offsets has shape \(3,\); must be a number or a tensor \[batch\] = \(1,\)",
                                (draw(1, 5, 3, 16), torch.tensor([1, 2, 3])))):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                self.apply(given[0], self.cos, self.sin, seqlen_offsets=given[1] if len(given) > 1 else 0)


class TransformersTest(Installed):
    def setUp(self):
        super().setUp()
        try:
            import transformers.modeling_flash_attention_utils as flash
        except ImportError as error:
            self.skipTest(str(error))
        from transformers.utils import import_utils
        self.found = import_utils
        for function in (import_utils.is_flash_attn_2_available, import_utils.is_flash_attn_3_available,
                         import_utils.is_flash_attn_4_available):
            function.cache_clear()
            self.addCleanup(function.cache_clear)
        devices = {"supported_devices": ((lambda: True, "cuda"),)}
        for patch in (unittest.mock.patch.object(import_utils, "is_torch_cuda_available", lambda: True),
                      unittest.mock.patch.dict(flash.FLASH_ATTENTION_COMPATIBILITY_MATRIX[2], devices)):
            patch.start()
            self.addCleanup(patch.stop)

    def test_flash_attention_2(self):
        """transformers thinks that PyTorch has CUDA, and calls attune on the CPU."""
        import transformers
        self.assertTrue(self.found.is_flash_attn_2_available())
        self.assertFalse(self.found.is_flash_attn_3_available() or self.found.is_flash_attn_4_available())
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(hidden_size=128, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
                                     num_key_value_heads=2, vocab_size=64)).eval().to(torch.bfloat16)
        tokens, mask = torch.randint(0, 64, (2, 30)), torch.ones(2, 30, dtype=torch.long)
        mask[1, :12] = 0
        logits = {}
        with torch.no_grad():
            for name in ("flash_attention_2", "sdpa"):
                model.set_attn_implementation(name)
                logits[name] = model(tokens, attention_mask=mask).logits[mask.bool()].float()
        torch.testing.assert_close(logits["flash_attention_2"], logits["sdpa"], atol=3e-2, rtol=3e-2)
        model.set_attn_implementation("flash_attention_2")  # decoding gives indices of int32
        grown = model.generate(tokens, attention_mask=mask, max_new_tokens=4, do_sample=False, pad_token_id=0)
        self.assertEqual(grown.shape, (2, 34))
        with torch.no_grad():
            model.set_attn_implementation("sdpa")
            found = model(grown[:, :-1], attention_mask=torch.nn.functional.pad(mask, (0, 3), value=1)).logits[:, 29:]
        misses = found.amax(-1) - found.gather(2, grown[:, 30:, None])[..., 0]
        self.assertLess(misses.max().item(), 3e-2)
        from transformers.modeling_flash_attention_utils import lazy_import_flash_attention
        self.assertIs(lazy_import_flash_attention("flash_attention_2")[0][1], attune.flash.flash_attn_varlen_func)


class DiffusersTest(Installed):
    def test_flash_backend(self):
        try:
            from diffusers.models import attention_dispatch as diffusers
        except ImportError as error:
            self.skipTest(str(error))
        q, k, v = draw(2, 20, 4, 64), draw(2, 20, 4, 64, seed=1), draw(2, 20, 4, 64, seed=2)
        with diffusers.attention_backend("flash"):
            found = diffusers.dispatch_attention_fn(q, k, v)
        torch.testing.assert_close(found, diffusers.dispatch_attention_fn(q, k, v), atol=1e-5, rtol=1e-5)
        self.assertIs(diffusers.flash_attn_func, attune.flash.flash_attn_func)


if __name__ == "__main__":
    run()
