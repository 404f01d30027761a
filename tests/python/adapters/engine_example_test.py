#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/engine on attune: the tokens of its requests are those of transformers' generate(), with shared prefixes,
requests that join late, chunks of prompts and too few pages, on tiny random models. On a GPU (first argument: cuda) in
bf16 with CUDA graphs: there the tokens' logits are the largest ones, but for roundings. Skips aloud (status 77) without
transformers and the device."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import attune.flash
from library_and_device import DEVICE, torch
from skips import skip, without_modules

if torch is None:
    skip("name a device of PyTorch: cpu or cuda")
with without_modules():
    import transformers
attune.flash.install()
FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "engine"
sys.path.insert(0, str(FOLDER))
from engine import Engine  # noqa: E402
from pages import Pages  # noqa: E402

VOCABULARY, PAGE = 97, 16
SIZES = dict(vocab_size=VOCABULARY, hidden_size=128, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2)


def made(kind="Llama"):
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**SIZES, initializer_range=0.2)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    model.set_attn_implementation("sdpa")
    return model.to(DEVICE, torch.bfloat16 if DEVICE == "cuda" else torch.float32)


def prompt(count, seed, begin=()):
    random = torch.Generator().manual_seed(seed)
    return [*begin, *torch.randint(0, VOCABULARY, (count,), generator=random).tolist()]


def generated(model, tokens, most):
    row = torch.tensor([tokens], device=DEVICE)
    return model.generate(row, attention_mask=torch.ones_like(row), max_new_tokens=most, do_sample=False,
                          eos_token_id=None, pad_token_id=0)[0, len(tokens):].tolist()


def misses(model, request):
    """Returns how far the logits of the answer's tokens are below the largest ones, at most."""
    with torch.no_grad():
        logits = model(torch.tensor([request.tokens[:-1]], device=DEVICE)).logits[0, request.prompt - 1:].float()
    chosen = torch.tensor(request.answer, device=DEVICE)
    return (logits.amax(-1) - logits.gather(1, chosen[:, None])[:, 0]).max().item()


class EngineTest(unittest.TestCase):
    def check(self, model, requests):
        for request in requests:
            self.assertEqual(len(request.answer), request.most)
            if DEVICE == "cuda":
                self.assertLess(misses(model, request), 0.2)
            else:
                self.assertEqual(request.answer, generated(model, request.tokens[:request.prompt], request.most))

    def serve(self, engine, arrivals):
        """Returns the requests of (step, prompt, most), which are added before that step."""
        requests, at = [], 0
        while any(step >= at for step, _, _ in arrivals) or engine.waiting or engine.running:
            requests += [engine.add(tokens, most) for step, tokens, most in arrivals if step == at]
            engine.step()
            at += 1
            self.assertLess(at, 2000)
        self.assertFalse(engine.step())
        return requests

    def test_requests_join_late_and_share_a_prefix(self):
        model = made()
        engine = Engine(model, 40, PAGE, 256)
        prefix = prompt(50, 1)
        requests = self.serve(engine, [(0, prompt(7, 2, prefix), 20), (0, prompt(1, 3), 9),
                                       (3, prompt(30, 4, prefix), 12), (5, prefix[:49], 10), (5, prompt(20, 5), 3),
                                       (11, prefix[:48], 8), (40, prompt(2, 6, prefix), 5)])
        self.check(model, requests)
        self.assertEqual([request.shared for request in requests], [0, 0, 48, 48, 0, 32, 48])
        self.assertEqual(len(engine.pages.free), 40)

    def test_an_answer_is_a_prefix_too(self):
        model = made()
        engine = Engine(model, 40, PAGE, 256)
        first, = self.serve(engine, [(0, prompt(10, 1), 30)])
        second, = self.serve(engine, [(0, prompt(4, 2, first.tokens), 6)])
        self.check(model, [first, second])
        self.assertEqual(second.shared, 32)

    def test_chunks_beside_decoding(self):
        model = made()
        engine = Engine(model, 40, PAGE, 256, most_rows=24, most_requests=3)
        requests = self.serve(engine, [(0, prompt(9, 1), 25), (2, prompt(100, 2), 6), (2, prompt(61, 3), 4),
                                       (3, prompt(5, 4), 4)])
        self.check(model, requests)

    def test_too_few_pages(self):
        model = made()
        engine = Engine(model, 8, PAGE, 100)
        requests = self.serve(engine, [(0, prompt(30, 1), 60), (1, prompt(28, 2), 50), (2, prompt(17, 3), 40)])
        self.check(model, requests)
        self.assertTrue(any(request.shared for request in requests))  # a request that lost its pages found some again
        self.assertEqual(len(engine.pages.free), 8)

    def test_another_model(self):
        model = made("Qwen3")
        engine = Engine(model, 40, PAGE, 256)
        self.check(model, self.serve(engine, [(0, prompt(20, 1), 12), (4, prompt(3, 2), 12)]))

    def test_a_token_that_ends_the_answer(self):
        model = made()
        whole = generated(model, prompt(12, 1), 20)
        engine = Engine(model, 40, PAGE, 256)
        request = engine.add(prompt(12, 1), 20, whole[5])
        while engine.step():
            pass
        if DEVICE == "cpu":
            self.assertEqual(request.answer, whole[:whole.index(whole[5]) + 1])
        self.assertTrue(request.is_done)

    def test_refusals(self):
        engine = Engine(made(), 4, PAGE, 256)
        for given in (([], 4), ([1], 0), ([1] * 60, 5)):
            with self.assertRaisesRegex(ValueError, "both must be at least 1, and together at most 64"):
                engine.add(*given)
        config = transformers.MistralConfig(**SIZES, sliding_window=32)
        with self.assertRaisesRegex(ValueError, "model is mistral with sliding_window 32; must be one of llama, qwen2"):
            Engine(transformers.MistralForCausalLM(config))


@unittest.skipIf(DEVICE != "cpu" or torch.cuda.is_available(), "run.py takes the GPU, where tokens are not compared")
class ProgramTest(unittest.TestCase):
    def test_run(self):
        from tokenizers import Tokenizer, models, pre_tokenizers
        words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        model = made()
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            transformers.PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1").save_pretrained(folder)
            run = subprocess.run([sys.executable, FOLDER / "run.py", folder, "w5 w9", "w7"], capture_output=True,
                                 text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        for tokens, line in zip(([5, 9], [7]), run.stdout.split("\n\n")):
            answer = generated(model, tokens, 200)
            answer = answer[:answer.index(1)] if 1 in answer else answer
            self.assertEqual(line, " ".join(f"w{n}" for n in [*tokens, *answer]))


class PagesTest(unittest.TestCase):
    def test_names(self):
        pages = Pages(3, 2)
        mine = [pages.take(), pages.take()]
        pages.name([1, 2, 3, 4], mine, 0, 3)
        self.assertEqual(pages.find([1, 2]), [])  # the last token is computed
        self.assertEqual(pages.find([1, 2, 9]), mine[:1])
        self.assertEqual(pages.find([2, 1, 9]), [])
        pages.name([1, 2, 3, 4], mine, 3, 4)
        self.assertEqual(pages.find([1, 2, 3, 4, 5]), mine)
        self.assertEqual(pages.users, [3, 2, 0])
        for held in (mine, mine[:1], mine):
            pages.give_back(held)
        self.assertEqual(list(pages.free), [2, mine[1], mine[0]])
        taken = [pages.take() for _ in range(4)]
        self.assertEqual(taken, [2, mine[1], mine[0], None])
        self.assertEqual(pages.find([1, 2, 3, 4, 5]), [])


if __name__ == "__main__":
    unittest.main()
