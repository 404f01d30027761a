#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune as attn_implementation of transformers: logits and generated tokens beside eager's and sdpa's, on tiny random
models of real architectures. Names of models, or "all", as arguments: then every side of padding and 64 tokens; a
sample without. Skips aloud (status 77) without PyTorch, transformers or the CPU target."""
import os
import subprocess
import sys
import unittest
import unittest.mock
import warnings

import attune
from skips import skip, without_modules

with without_modules():
    import torch
    import transformers
    attune.register_transformers()
import transformers_models as tiny

SAMPLE = ("Gemma2",)
CHOSEN, SIDES, COUNT = list(SAMPLE), ("left",), 8  # sides of padding, number of generated tokens


def chosen(kinds=None):
    return [model for model in tiny.MODELS if model.name in CHOSEN and (kinds is None or model.kind in kinds)]


def made(model, implementation, dtype=torch.float32):
    torch.manual_seed(1)
    one = tiny.with_scores_that_differ(model.build().eval().to(dtype))
    one.set_attn_implementation(implementation)
    for module in one.modules():
        if isinstance(module, transformers.PreTrainedModel) and module.config._attn_implementation != implementation:
            raise unittest.SkipTest(
                f"{type(module).__name__} of transformers {transformers.__version__} does not take {implementation}")
    return one


def logits(model, implementation, dtype, given):
    with torch.no_grad():
        given = {name: one.to(dtype) if one.is_floating_point() else one for name, one in given.items()}
        return made(model, implementation, dtype)(**given).logits.double()


class LogitsTest(unittest.TestCase):
    def compare(self, model, given, kept):
        """fp32 may differ by rounding. The error of bf16 may be 1.5 times that of the reference's bf16."""
        want = logits(model, model.reference, torch.float32, given)[kept]
        size = want.abs().max().item()
        got = logits(model, "attune", torch.float32, given)[kept]
        self.assertFalse(got.isnan().any())
        self.assertLess((got - want).abs().max().item(), 3e-5 * size)
        error = lambda implementation: (logits(model, implementation, torch.bfloat16, given)[kept] - want).norm().item()
        self.assertLess(error("attune"), 1.5 * error(model.reference) + 1e-3 * want.norm().item())

    def test_plain(self):
        for model in chosen():
            with self.subTest(model=model.name):
                self.compare(model, *tiny.inputs(model))

    def test_padding(self):
        for model in chosen(("decoder", "encoder", "audio", "text to text")):
            for side in SIDES:
                with self.subTest(model=model.name, side=side):
                    self.compare(model, *tiny.inputs(model, side))

    def test_packed(self):
        """Two sequences in one row, separated by position_ids, give the results of each alone, if the model passes
        positions to its mask."""
        for model in chosen(("decoder",)):
            if model.name == "OPT":  # takes positions from the mask
                continue
            with self.subTest(model=model.name), torch.no_grad():
                one, other = made(model, "attune"), made(model, model.reference)
                ids, cut = tiny.tokens(1), 17
                positions = torch.cat([torch.arange(cut), torch.arange(tiny.ROWS - cut)])[None]
                packed, reference = (each(input_ids=ids, position_ids=positions, use_cache=False).logits
                                     for each in (one, other))
                limit = 3e-5 * packed.abs().max().item()
                self.assertLess((packed - reference).abs().max().item(), limit)
                alone = torch.cat(
                    [one(input_ids=part, use_cache=False).logits for part in (ids[:, :cut], ids[:, cut:])], 1)
                if model.name != "GptOss" and not (model.name == "Llama4" and
                                                   transformers.__version__.startswith("4.")):
                    self.assertLess((packed - alone).abs().max().item(), limit)


class GenerateTest(unittest.TestCase):
    def test_greedy(self):
        for model in chosen(("decoder", "text to text", "audio")):
            for cache in ("dynamic", "static"):
                with self.subTest(model=model.name, cache=cache):
                    try:
                        want = self.generated(model, model.reference, cache)
                    except RuntimeError as error:  # static caches of transformers 4.5x hold no v of another width
                        self.skipTest(f"{model.reference} itself does not serve this: {error}")
                    self.assertTrue(torch.equal(self.generated(model, "attune", cache), want))

    def generated(self, model, implementation, cache):
        given, _ = tiny.inputs(model, None if model.kind == "audio" else "left")
        given.pop("decoder_input_ids", None)
        with torch.no_grad():
            return made(model, implementation).generate(**given, max_new_tokens=COUNT, min_new_tokens=COUNT,
                                                        do_sample=False, cache_implementation=cache)

    def test_chunked_prefill(self):
        """A second part of several rows on a cache: the mask's diagonal ends at the last key."""
        for model in chosen(("decoder",)):
            with self.subTest(model=model.name), torch.no_grad():
                one, ids = made(model, "attune"), tiny.tokens()
                whole = one(input_ids=ids, use_cache=False).logits
                for cut in (5, 23):
                    cache = transformers.DynamicCache(config=one.config)
                    parts = [one(input_ids=part, past_key_values=cache).logits for part in (ids[:, :cut], ids[:, cut:])]
                    self.assertLess((torch.cat(parts, 1) - whole).abs().max().item(), 3e-5 * whole.abs().max().item())


class CompileTest(unittest.TestCase):
    """torch.compile traces the functions that attune registers as a whole. Here a stand-in replaces
    attend_from_heads_first(); it gets features instead of masks. Only the second length compiles again. Without a cache
    and an attention_mask, transformers treats every traced sequence as packed."""
    WANTED = {
        "Llama": {"mask", "documents"}, "Mistral": {"mask", "window", "documents"}, "Bert": set(), "Llama4": {
            "mask", "mask_tensor", "documents"}}

    def compiled(self, model, lengths, stand_in):
        """Returns how often the model was compiled."""
        from torch._dynamo.testing import CompileCounter
        torch._dynamo.reset()
        with torch.no_grad(), unittest.mock.patch("attune.transformers.attention.attend_from_heads_first", stand_in):
            one, counter = made(model, "attune"), CompileCounter()
            compiled = torch.compile(one, backend=counter, fullgraph=True)
            for rows in lengths:
                given = {
                    "input_ids": tiny.tokens(rows=rows), **({} if model.kind == "encoder" else {"use_cache": False})}
                compiled(**given)
        return counter.frame_count

    def test_whole_graphs(self):
        found = []

        def recorded(q, k, v, **given):
            found.append([name for name, value in given.items() if value is not None])
            return q.transpose(1, 2).contiguous()

        for model in chosen():
            if model.name in self.WANTED and COUNT == 64 and not transformers.__version__.startswith("4."):
                with self.subTest(model=model.name):
                    found.clear()
                    self.compiled(model, [40], recorded)
                    self.assertEqual(set().union(*found) - {"scale"}, self.WANTED[model.name])
                    self.assertEqual(
                        self.compiled(model, [40, 30, 25, 21], lambda q, k, v, **_: q.transpose(1, 2).contiguous()), 2)


class RefusalTest(unittest.TestCase):
    def setUp(self):
        self.model, self.given = made(tiny.MODELS[0], "attune"), {"input_ids": tiny.tokens()}

    def test_gradients(self):
        theirs = made(tiny.MODELS[0], "sdpa")
        for one in (self.model, theirs):
            one(**self.given)[0].square().mean().backward()
        for (name, x), y in zip(self.model.named_parameters(), theirs.parameters()):
            self.assertTrue(torch.allclose(x.grad, y.grad, rtol=1e-3, atol=1e-5), name)

    def test_dropout(self):
        one = self.model
        for layer in one.model.layers:
            layer.self_attn.attention_dropout = 0.1
        with torch.no_grad():
            plain, again = (one(**self.given)[0] for _ in range(2))  # none in eval()
            self.assertTrue(torch.equal(plain, again))
            one.train()
            outputs = []
            for seed in (1, 1, 2):
                torch.manual_seed(seed)
                outputs.append(one(**self.given)[0])
        one.eval()
        self.assertTrue(torch.equal(outputs[0], outputs[1]))
        for other in (plain, outputs[2]):
            self.assertGreater((outputs[0] - other).abs().max().item(), 1e-4)

    def test_attention_weights(self):
        with torch.no_grad(), self.assertRaisesRegex(
                ValueError, "output_attentions is set|attn_implementation.*eager|output_attentions"):
            self.model(**self.given, output_attentions=True)

    def test_names(self):
        for name in ("sdpa", "eager", "paged|attune", "", [3]):
            with self.assertRaisesRegex(ValueError, "names has"):
                attune.register_transformers(name)
        attune.register_transformers(["attune", "attune_again"])
        self.model.set_attn_implementation("attune_again")
        with torch.no_grad():
            self.model(**self.given)

    def test_an_import_that_fails_is_told(self):
        """transformers is installed, but one of its dependencies is not."""
        code = (
            "import sys\nclass Broken:\n    def find_spec(self, name, path=None, target=None):\n        if name == "
            "'httpx': raise ImportError(\"No module named 'httpx'\")\n"
            "sys.meta_path.insert(0, Broken())\nsys.modules.pop('httpx', None)\n{more}import attune\ntry: "
            "attune.register_transformers()\nexcept ImportError as error: print(error)"
        )
        finder = ("class Fails:\n    def find_spec(self, name, path=None, target=None):\n"
                  "        if name == 'transformers': {}\nsys.meta_path.insert(0, Fails())\n")
        fails = finder.format("import httpx")
        missing = finder.format(
            "raise ModuleNotFoundError(\"No module named 'transformers'\", name='transformers')")
        for more, sentence in ((fails, "its import fails: No module named 'httpx'"), (missing, "none is installed")):
            found = subprocess.run([sys.executable, "-c", code.replace("{more}", more)], capture_output=True, text=True)
            self.assertIn(sentence, found.stdout, found.stderr)

    def test_a_model_with_attention_of_its_own(self):
        """Bloom adds masks itself, and gives the same numbers as with transformers' own mask."""
        if not hasattr(sys.modules[transformers.BloomForCausalLM.__module__], "create_causal_mask"):
            self.skipTest("this transformers' Bloom makes its masks too")
        one = transformers.BloomForCausalLM(
            transformers.BloomConfig(hidden_size=64, n_layer=1, n_head=4, vocab_size=tiny.VOCABULARY)).eval()
        outputs = []
        for name in ("eager", "attune"):
            one.config._attn_implementation_internal = name
            with torch.no_grad():
                outputs.append(one(attention_mask=tiny.padding("right"), **self.given).logits)
        self.assertTrue(torch.allclose(*outputs, atol=1e-5))


class OthersTest(unittest.TestCase):
    """Models that do more with their mask than pass it on."""
    SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4)

    def outputs(self, model, call, reference="eager"):
        """Returns the outputs of the reference and of attune."""
        torch.manual_seed(1)
        one = tiny.with_scores_that_differ(model.eval())
        for name, weights in one.named_parameters():
            if "relative_position_bias" in name:
                weights.data.normal_()
        found = []
        for name in (reference, "attune"):
            one.set_attn_implementation(name)
            with torch.no_grad():
                found.append(call(one))
        return found

    def near(self, found):
        self.assertTrue(torch.allclose(*found, atol=1e-5, rtol=1e-4))

    def test_biases_of_positions(self):
        pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
        for shared in (False, True):
            config = transformers.BeitConfig(**self.SIZES, image_size=32, patch_size=8,
                                             use_relative_position_bias=not shared,
                                             use_shared_relative_position_bias=shared)
            self.near(self.outputs(transformers.BeitModel(config), lambda one: one(pixels).last_hidden_state))

    def test_a_mask_that_the_model_combines(self):
        if not hasattr(transformers, "DogeForCausalLM"):
            self.skipTest("this transformers has no Doge")
        model = transformers.DogeForCausalLM(
            transformers.DogeConfig(**self.SIZES, num_key_value_heads=2, vocab_size=tiny.VOCABULARY))
        mask = tiny.padding("left")
        self.near(self.outputs(model, lambda one: one(tiny.tokens(), attention_mask=mask).logits[mask.bool()]))
        self.assertTrue(
            torch.equal(*self.outputs(
                model,
                lambda one: one.generate(tiny.tokens(), attention_mask=mask, max_new_tokens=4, do_sample=False))))

    def test_masks_that_models_take_apart(self):
        """They index, repeat, concatenate and negate the mask, or fill a bias by it; the tensor is made then, and only
        then."""
        text = dict(**self.SIZES, vocab_size=tiny.VOCABULARY, pad_token_id=0)
        speech = dict(**self.SIZES, num_key_value_heads=4, num_mel_bins=16, subsampling_conv_channels=16)
        seeded = lambda *shape: torch.randn(shape, generator=torch.Generator().manual_seed(1))
        mask, frames = tiny.padding("left"), torch.arange(120) < torch.tensor([[120], [70]])
        pixels = dict(pixel_attention_mask=torch.arange(16) < torch.tensor([[16], [10]]), spatial_shapes=torch.tensor([[
            4, 4], [2, 5]]))

        def t5gemma2():
            sizes = dict(**text, num_key_value_heads=2, head_dim=16, sliding_window=tiny.WINDOW, layer_types=[
                "sliding_attention", "full_attention"])
            encoder = transformers.T5Gemma2EncoderConfig(
                text_config=sizes, vision_config=dict(**self.SIZES, image_size=32, patch_size=8), mm_tokens_per_image=4)
            config = transformers.T5Gemma2Config(encoder=encoder, decoder=transformers.T5Gemma2DecoderConfig(**sizes),
                                                 image_token_index=96)
            return transformers.T5Gemma2ForConditionalGeneration(config)

        axk2 = dict(q_lora_rank=24, kv_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16,
                    num_key_value_heads=4, n_routed_experts=4, n_group=1, num_experts_per_tok=2, topk_group=1,
                    moe_intermediate_size=32, first_k_dense_replace=1, index_topk=8, index_n_heads=4, index_head_dim=16)
        models = {
            "Siglip2VisionModel": (lambda: transformers.Siglip2VisionModel(
                transformers.Siglip2VisionConfig(**self.SIZES, num_patches=16, patch_size=4)),
                                   lambda one: one(seeded(2, 16, 48), **pixels).pooler_output),
            "LasrEncoder": (
                lambda: transformers.LasrEncoder(transformers.LasrEncoderConfig(**speech, conv_kernel_size=8)),
                lambda one: one(seeded(2, 120, 16), attention_mask=frames).last_hidden_state[0]),
            "NemotronAsrStreamingEncoder": (
                lambda: transformers.NemotronAsrStreamingEncoder(
                    transformers.NemotronAsrStreamingEncoderConfig(**speech)),
                lambda one: one(seeded(2, 120, 16), attention_mask=frames).last_hidden_state[0]),
            "AXK2ForCausalLM": (lambda: transformers.AXK2ForCausalLM(transformers.AXK2Config(**text, **axk2)),
                                lambda one: one(tiny.tokens(), attention_mask=mask).logits[mask.bool()]),
            "T5Gemma2ForConditionalGeneration": (
                t5gemma2, lambda one: one(input_ids=tiny.tokens().clamp(max=90), attention_mask=mask, decoder_input_ids=
                                          tiny.tokens(rows=21).clamp(max=90)).logits), }
        for name, (build, call) in models.items():
            with self.subTest(name):
                if not hasattr(transformers, name):
                    self.skipTest(f"this transformers has no {name}")
                self.near(self.outputs(build(), call, "sdpa"))

    def test_head_dims_of_wider_copies(self):
        """JetMoe calls .view() on what the attention function gives."""
        if not hasattr(transformers, "JetMoeForCausalLM"):
            self.skipTest("this transformers has no JetMoe")
        config = transformers.JetMoeConfig(hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                                           num_key_value_heads=2, kv_channels=12, num_local_experts=4,
                                           num_experts_per_tok=2, vocab_size=tiny.VOCABULARY)
        self.near(self.outputs(transformers.JetMoeForCausalLM(config), lambda one: one(tiny.tokens()).logits))

    def test_layers_without_keys_ahead(self):
        if not hasattr(transformers, "MiniMaxForCausalLM"):
            self.skipTest("this transformers has no MiniMax")
        config = transformers.MiniMaxConfig(**self.SIZES, num_key_value_heads=2, vocab_size=tiny.VOCABULARY,
                                            num_local_experts=2, block_size=8, layer_types=[
                                                "linear_attention", "full_attention"])
        self.assertTrue(
            torch.equal(*self.outputs(transformers.MiniMaxForCausalLM(config),
                                      lambda one: one.generate(tiny.tokens(), max_new_tokens=4, do_sample=False))))

    def test_jit_trace(self):
        one, given = made(next(model for model in tiny.MODELS if model.name == "Bert"), "attune"), tiny.tokens()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # of numbers that a trace keeps
            traced = torch.jit.trace(one, (given,), check_trace=False, strict=False)
            self.assertTrue(torch.allclose(traced(given - 1)["logits"], one(given - 1).logits, atol=1e-5))


if __name__ == "__main__":
    os.environ["ATTUNE_STORE"] = ""  # nothing of the user's is read or written
    asked = [one for one in sys.argv[1:] if one == "all" or one in [model.name for model in tiny.MODELS]]
    sys.argv = [one for one in sys.argv if one not in asked]
    if asked:
        CHOSEN, SIDES, COUNT = [model.name for model in tiny.MODELS
                                if model.name in asked or asked == ["all"]], ("left", "right", "both", "holes"), 64
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        skip(f"no CPU target: {error}")
    transformers.logging.set_verbosity_error()
    print(f"transformers {transformers.__version__}: {', '.join(CHOSEN)}")
    unittest.main()
