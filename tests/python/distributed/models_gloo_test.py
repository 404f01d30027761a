#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attune.distributed.enable() on two processes over gloo: tiny transformers models with random weights, whose logits,
losses, gradients and generated tokens must be those of one process in eager mode. Starts the processes itself. Skips
aloud (status 77) without PyTorch, transformers, gloo or the CPU target."""
import copy
import unittest

from skips import torch, without_modules
import torch.distributed as dist

import attune
import attune.distributed as ad
import ranks

with without_modules():
    import transformers

WORLD, VOCABULARY = 2, 61
SIZES = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, vocab_size=VOCABULARY,
             max_position_embeddings=512, pad_token_id=0, bos_token_id=None, eos_token_id=None)


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=2, **SIZES))


def mistral():  # its layers have a window
    torch.manual_seed(1)
    return transformers.MistralForCausalLM(transformers.MistralConfig(num_key_value_heads=2, sliding_window=9, **SIZES))


class RankTest(unittest.TestCase):
    """The tests of one rank. All ranks run the same tests in the same order."""

    @classmethod
    def setUpClass(cls):
        cls.group = ad.Group()
        cls.pairs = {}
        for make in (llama, mistral):
            alone = make().eval()
            alone.set_attn_implementation("eager")
            cls.pairs[make.__name__] = alone, ad.enable(copy.deepcopy(alone), cls.group)

    def ids(self, batch, length):
        return torch.randint(1, VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(length))

    def test_1_logits(self):
        for name, length in (("llama", 40), ("llama", 5), ("mistral", 300)):
            alone, spread = self.pairs[name]
            with torch.no_grad():
                wanted, found = (model(self.ids(2, length), use_cache=False).logits for model in (alone, spread))
            torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)

    def test_2_loss_and_gradients(self):
        for name, length in (("llama", 300), ("mistral", 41)):
            ids, labels = self.ids(2, length), self.ids(2, length).clone()
            labels[:, 3:9] = -100
            losses = []
            for model in self.pairs[name]:
                model.train()
                model.zero_grad()
                for part in range(2):  # gradients accumulate
                    loss = model(ids.roll(part, 1), labels=labels).loss
                    loss.backward()
                losses.append(loss.item())
                model.eval()
            self.assertAlmostEqual(losses[0], losses[1], delta=1e-5)
            alone, spread = (dict(model.named_parameters()) for model in self.pairs[name])
            for key, parameter in alone.items():
                limit = 2e-5 * max(1.0, parameter.grad.abs().max().item())
                torch.testing.assert_close(spread[key].grad, parameter.grad, atol=limit, rtol=0)

    def test_3_generated_tokens(self):
        for name, length in (("llama", 33), ("llama", 2), ("mistral", 20)):
            wanted, found = (model.generate(self.ids(2, length), max_new_tokens=12, do_sample=False)
                             for model in self.pairs[name])
            self.assertEqual(found.tolist(), wanted.tolist())

    def test_4_a_prompt_that_goes_on_over_its_keys(self):
        for alone, spread in self.pairs.values():
            with torch.no_grad():
                results = []
                for model in (alone, spread):
                    first = model(self.ids(1, 30), use_cache=True)
                    key = "cache" if "cache" in first else "past_key_values"
                    results.append(model(self.ids(1, 7), **{key: first[key]}).logits)
            torch.testing.assert_close(results[1], results[0], atol=2e-5, rtol=1e-4)

    def test_5_dropout_is_that_of_one_rank(self):
        alone = llama().train()
        spread = ad.enable(copy.deepcopy(alone), self.group)
        attune.register_transformers()
        alone.set_attn_implementation("attune")
        ids, losses, gradients = self.ids(2, 70), [], []
        for model in (alone, spread):
            for layer in model.model.layers:
                layer.self_attn.attention_dropout = 0.4
            torch.manual_seed(8)  # of the seeds of layers
            loss = model(ids, labels=ids, use_cache=False).loss
            loss.backward()
            losses.append(loss.item())
            gradients.append({name: x.grad for name, x in model.named_parameters()})
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-5)
        for name, wanted in gradients[0].items():
            torch.testing.assert_close(gradients[1][name], wanted, atol=2e-5 * max(1.0, wanted.abs().max()), rtol=0)
        torch.manual_seed(9)
        self.assertGreater(abs(spread(ids, labels=ids, use_cache=False).loss.item() - losses[0]), 1e-4)

    def test_6_what_is_not_served_is_refused_by_name(self):
        spread, ids = self.pairs["llama"][1], self.ids(2, 40)
        hidden = torch.ones_like(ids)
        hidden[1, :3] = 0
        for given, words in (({"attention_mask": hidden}, "attention_mask hides tokens"),
                             ({"logits_to_keep": 3}, "logits_to_keep is 3"),
                             ({"output_attentions": True}, "output_attentions is set")):
            with self.assertRaisesRegex(ValueError, words), torch.no_grad():
                spread(ids, use_cache=False, **given)
        with self.assertRaisesRegex(ValueError, "the input has 3 tokens; must have at least 4"):
            spread(ids[:, :3], use_cache=False)
        with self.assertRaisesRegex(ValueError, "the model is enabled already"):
            ad.enable(spread, self.group)
        self.assertEqual(dist.get_world_size(), WORLD)


if __name__ == "__main__":
    ranks.main(RankTest, WORLD)
