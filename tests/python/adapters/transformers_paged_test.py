#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""transformers' continuous batching (generate_batch) on attune: the tokens of requests of different lengths, over its
paged cache, are those of each by itself in eager mode (on a GPU, in fp16: those with the largest logits there, but for
roundings), on tiny random models whose attention differs; on the device named by the first argument, the CPU without.
Skips aloud (status 77) without PyTorch, a transformers with generate_batch, or that device."""
import logging
import unittest

import attune
from library_and_device import DEVICE, torch
from skips import without_modules

with without_modules():
    import torch
    import transformers
    from transformers.generation.continuous_batching import PagedAttentionCache  # noqa: F401
    attune.register_transformers(("attune", "attune_flash"))
import transformers_models as tiny
from attune.transformers import paged

NAME = "paged|attune" if paged.takes_prefix() else "attune_flash"


COUNT = 10
PROMPTS = [
    torch.randint(1, tiny.VOCABULARY, (count, ), generator=torch.Generator().manual_seed(count))
    for count in (5, 1, 30, 17)]


def made(build, implementation):
    torch.manual_seed(2)
    model = tiny.with_scores_that_differ(build().eval().to(DEVICE or "cpu",
                                                           torch.float16 if DEVICE == "cuda" else None))
    model.set_attn_implementation(implementation)
    return model


def each_alone(model):
    choices = dict(max_new_tokens=COUNT, do_sample=False, eos_token_id=None, pad_token_id=0)
    return [
        model.generate(prompt[None].to(model.device), attention_mask=torch.ones_like(prompt[None]).to(model.device),
                       **choices)[0, len(prompt):].tolist() for prompt in PROMPTS]


def together(model):
    choices = transformers.GenerationConfig(max_new_tokens=COUNT, do_sample=False, eos_token_id=-1, pad_token_id=0)
    few = {}  # by default the cache takes most of the memory
    if hasattr(transformers, "ContinuousBatchingConfig"):
        few["continuous_batching_config"] = transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=64)
    found = model.generate_batch(inputs=[prompt.tolist() for prompt in PROMPTS], generation_config=choices,
                                 progress_bar=False, **few)
    return [found[name].generated_tokens for name in sorted(found)]


def misses(model, prompt, tokens):
    """Returns how far the tokens' logits are below the largest ones, at most. Runs in eager mode."""
    row = torch.cat([prompt, torch.tensor(tokens)]).to(model.device)
    with torch.no_grad():
        logits = model(input_ids=row[None, :-1]).logits[0, len(prompt) - 1:].float()
    return (logits.max(dim=-1).values - logits.gather(1, row[len(prompt):, None])[:, 0]).max().item()


def takes_names(model):
    """False if the model takes only some implementations with "flash" in their names, as in later transformers."""
    compatible = getattr(model, "_compatible_flash_implementations", None)
    return NAME.startswith("paged|") or compatible is None


class ContinuousBatchingTest(unittest.TestCase):
    def test_tokens_are_those_of_each_alone(self):
        logging.disable(logging.WARNING)
        served = 0
        for name in ("Llama", "Mistral", "Gemma2", "GptOss"):
            build = next(model.build for model in tiny.MODELS if model.name == name)
            with self.subTest(model=name):
                model = made(build, "eager")
                if not takes_names(model):
                    continue
                found = together(made(build, NAME))
                served += 1
                if DEVICE != "cuda":
                    self.assertEqual(found, each_alone(model))
                    continue
                self.assertEqual([len(tokens) for tokens in found], [COUNT] * len(PROMPTS))
                for prompt, tokens in zip(PROMPTS, found):
                    self.assertLess(misses(model, prompt, tokens), 2e-2)
        self.assertGreaterEqual(served, 3)

    @unittest.skipUnless(paged.takes_prefix(), "of releases that call \"paged|NAME\"")
    def test_other_calls_are_refused(self):
        model = tiny.MODELS[0].build().eval()
        model.set_attn_implementation("paged|attune")
        with self.assertRaisesRegex(ValueError, "cache is None, cu_seq_lens_q is None; must be what gen"):
            model(input_ids=torch.tensor([[1, 2, 3]]))


if __name__ == "__main__":
    unittest.main()
