# SPDX-License-Identifier: Apache-2.0
"""Trains a small GPT and a small BERT (sizes of GPT-2 and BERT-base with fewer layers, synthetic text) on attune and on
PyTorch's SDPA, in bf16 autocast with fp32 weights. Reports loss curves (means of fifteen sections) and step times.

    python3 tests/bench/models/train.py --out OUT/train.json [--steps 300] [--only gpt] [--dropout 0.1] [--captured]
        [--device cpu --small]

Three models train side by side, step by step in random order: SDPA and attune from one seed, and SDPA from another
seed, which shows the effect of the seed. With --dropout each library drops different weights. A step is forward, loss,
backward and AdamW, called eagerly from Python, timed by CUDA events (on a CPU by the clock). The step time is the
median after the first tenth of the steps. These models are so small that an eager step waits for its host. With
--captured each model's step is a CUDA graph, and only the device counts. Exits with 1 if attune's curve differs from
SDPA's by more than the seeds differ.
"""
import argparse
import datetime
import platform
import random
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as functional

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import attune.sdpa  # noqa: E402
import publish  # noqa: E402

# GPT-2 and BERT-base: dim 768, 12 heads. Fewer layers and words.
MODELS = {"gpt": dict(causal=True, layers=6, dim=768, heads=12, rows=1024, batch=8, words=8192),
          "bert": dict(causal=False, layers=6, dim=768, heads=12, rows=512, batch=16, words=8192)}
SMALL = dict(layers=2, dim=64, heads=4, rows=64, batch=2, words=101)
ATTENTION = {"sdpa": functional.scaled_dot_product_attention, "attune": attune.sdpa.scaled_dot_product_attention}


class Layer(torch.nn.Module):
    def __init__(self, dim, heads, causal, attention, dropout):
        super().__init__()
        self.heads, self.causal, self.attention, self.dropout = heads, causal, attention, dropout
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(dim) for _ in range(2))
        self.qkv, self.out = torch.nn.Linear(dim, 3 * dim), torch.nn.Linear(dim, dim)
        self.up, self.down = torch.nn.Linear(dim, 4 * dim), torch.nn.Linear(4 * dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, self.heads, -1).transpose(1, 3).unbind(2)
        o = self.attention(q, k, v, dropout_p=self.dropout, is_causal=self.causal)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Model(torch.nn.Module):
    """Words in, logits of words out."""

    def __init__(self, attention, causal, layers, dim, heads, rows, batch, words, dropout):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words + 1, dim), torch.nn.Embedding(rows,
                                                                                         dim)  # last id: hidden
        self.layers = torch.nn.Sequential(*(Layer(dim, heads, causal, ATTENTION[attention], dropout)
                                            for _ in range(layers)))
        self.norm, self.logits = torch.nn.LayerNorm(dim), torch.nn.Linear(dim, words)
        for weight in (self.words.weight, self.places.weight):
            torch.nn.init.normal_(weight, std=0.02)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[:tokens.shape[1]]
        return self.logits(self.norm(self.layers(x)))


def text(chance, batch, rows, words):
    """Returns random tokens: word frequencies as in a language, half of the words follow from the previous word, and
    phrases repeat."""
    found = ((words ** torch.rand(batch, rows, generator=chance)) - 1).long().clamp_(0, words - 1)
    follows = torch.rand(batch, rows, generator=chance) < 0.5
    follows[:, 0] = False
    found = torch.where(follows, (found.roll(1, 1) * 7 + 3) % words, found)
    half = rows // 2
    found[:, half:half + half // 2] = found[:, :half // 2]
    return found


def batches(config, steps, seed):
    """Yields (tokens, targets); a target of -100 is ignored."""
    chance = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        tokens = text(chance, config["batch"], config["rows"] + 1, config["words"])
        if config["causal"]:
            yield tokens[:, :-1], tokens[:, 1:]
        else:
            tokens = tokens[:, :-1]
            hidden = torch.rand(tokens.shape, generator=chance) < 0.15
            yield tokens.masked_fill(hidden, config["words"]), tokens.masked_fill(~hidden, -100)


class Run:
    """One model in training."""

    def __init__(self, attention, config, seed, steps, device, captured=False):
        torch.manual_seed(seed)
        self.model = Model(attention, **config).to(device)
        self.rate = torch.zeros((), device=device) if captured else 0.0  # a graph reads it on the device
        self.optimizer = torch.optim.AdamW(self.model.parameters(), self.rate, betas=(0.9, 0.95), capturable=captured)
        self.batches, self.device, self.losses, self.times = batches(config, steps, seed), device, [], []
        self.captured = captured

    def learn(self, tokens, goals):
        with torch.autocast(self.device, torch.bfloat16, cache_enabled=not self.captured):
            loss = functional.cross_entropy(self.model(tokens).flatten(0, 1).float(), goals.flatten())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def learner(self):
        """Returns the tensors of this step's update."""
        return self.learn

    def step(self):
        tokens, goals = (x.to(self.device) for x in next(self.batches))
        rate = 6e-4 * min(1.0, (len(self.losses) + 1) / 30)
        if self.captured:
            self.rate.fill_(rate)
        else:
            self.optimizer.param_groups[0]["lr"] = rate
        learn = self.learner()
        begin = clock(self.device)
        loss = learn(tokens, goals)
        self.times.append((begin, clock(self.device)))
        self.losses.append(loss)

    def report(self):
        if self.device == "cuda":
            torch.cuda.synchronize()
        times = [begin.elapsed_time(end) if self.device == "cuda" else (end - begin) * 1e3 for begin, end in self.times]
        times = times[len(times) // 10:]
        return {
            "losses": [round(loss.item(), 5) for loss in self.losses], "step_ms": statistics.median(times),
            "least_step_ms": min(times)}


class CapturedRun(Run):
    """A run whose steps, after the first few, are replays of a graph."""

    EAGER = 5

    def __init__(self, *given):
        super().__init__(*given, captured=True)
        self.graph, self.stream = None, torch.cuda.Stream()

    def learner(self):
        if len(self.losses) < self.EAGER:
            return self.beside
        if self.graph is None:
            self.capture()
        return self.replay

    def beside(self, tokens, goals):
        """Runs steps before a capture on a side stream, as captures require."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            loss = self.learn(tokens, goals)
        torch.cuda.current_stream().wait_stream(self.stream)
        self.given = tokens, goals
        return loss

    def capture(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.loss = self.learn(*self.given)

    def replay(self, *given):
        for mine, one in zip(self.given, given):
            mine.copy_(one)
        self.graph.replay()
        return self.loss.clone()


def clock(device):
    if device != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def smooth(losses, width):
    return [statistics.fmean(losses[i:i + width]) for i in range(0, len(losses) - width + 1, width)]


def compare(name, config, given):
    steps, kind = given.steps, CapturedRun if given.captured else Run
    runs = {
        label: kind(attention, config, seed, steps, given.device)
        for label, attention, seed in (("sdpa", "sdpa", 1), ("attune", "attune", 1), ("sdpa, another seed", "sdpa", 2))}
    order = random.Random(0)
    for _ in range(steps):
        for run in order.sample(list(runs.values()), len(runs)):
            run.step()
    found = {label: run.report() for label, run in runs.items()}
    width = max(1, steps // 15)
    curves = {label: smooth(one["losses"], width) for label, one in found.items()}
    apart = lambda other: max(abs(x - y) for x, y in zip(curves["sdpa"], curves[other]))
    result = {
        "model": name, "config": config, "runs": {
            label: {**one, "losses": curves[label]}
            for label, one in found.items()}, "apart": apart("attune"),
        "apart_by_seed": apart("sdpa, another seed"), "speed": found["sdpa"]["step_ms"] / found["attune"]["step_ms"]}
    print(
        f"{name}: loss {curves['sdpa'][0]:.3f} to {curves['sdpa'][-1]:.3f} (SDPA), {curves['attune'][-1]:.3f} "
        f"(attune); curves apart by at most "
        f"{result['apart']:.4f}, of another seed {result['apart_by_seed']:.4f}; step {found['sdpa']['step_ms']:.2f} ms "
        f"(SDPA), "
        f"{found['attune']['step_ms']:.2f} ms (attune): {result['speed']:.3f} times as fast", flush=True)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--only", choices=MODELS)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--captured", action="store_true", help="steps as CUDA graphs")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="tiny models, for a quick trial")
    given = parser.parse_args()
    if given.captured and given.device != "cuda":
        parser.error("--device is cpu; must be cuda for --captured")
    if given.device == "cuda" and not torch.cuda.is_available():
        print("SKIP: no GPU was found")
        sys.exit(77)
    results = [
        compare(name, {**config, **(SMALL if given.small else {}), "dropout": given.dropout}, given)
        for name, config in MODELS.items() if given.only in (None, name)]
    device = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor()
    report = {
        "device": device, "date": datetime.date.today().isoformat(), "torch": torch.__version__,
        "attune": attune.version(), "steps": given.steps, "captured": given.captured, "dropout": given.dropout,
        "dtype": "bf16 autocast", "models": results}
    if given.out:
        publish.write_result(given.out, report)
    sys.exit(any(one["apart"] > 2 * one["apart_by_seed"] for one in results))


if __name__ == "__main__":
    main()
