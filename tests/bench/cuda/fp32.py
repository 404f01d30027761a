# SPDX-License-Identifier: Apache-2.0
"""Times attention of fp32 operands in attune's three modes of accuracy against PyTorch's SDPA, interleaved in one
process, and measures their errors.

    python3 tests/bench/cuda/fp32.py --problems                 problems for attune tune, one a line
    python3 tests/bench/cuda/fp32.py --store FILE --out OUT/fp32.json [--only d128]

fast is tf32, split is three tf32 products, accurate is fp32 arithmetic (the reference kernel). PyTorch's backends are
timed with torch.backends.cuda.matmul.allow_tf32 off and on; the result names backends that do not take fp32. Every
runner is a captured graph. Errors are against float64 on the same operands, N(0,1): the root mean square and the
largest error, both divided by the root mean square of O.
"""
import argparse
import itertools
import math
import random
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import timing  # noqa: E402

MODES = ("fast", "split", "accurate")
TUNED = MODES[:2]  # the reference has nothing to tune
BACKENDS = {"math": SDPBackend.MATH, "efficient": SDPBackend.EFFICIENT_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
            "cudnn": SDPBackend.CUDNN_ATTENTION}
SLOW = 20  # times the fastest; slower runners are timed once, outside the rounds
HEADS, BATCH = 16, 2


@dataclass(frozen=True)
class Case:
    head_dim: int
    causal: bool
    seqlen: int

    @property
    def name(self):
        return f"d{self.head_dim} {'causal' if self.causal else 'full'} {self.seqlen}"

    @property
    def mask(self):
        return "causal_bottom_right" if self.causal else "none"

    @property
    def flops(self):
        visible = self.seqlen * (self.seqlen + 1) // 2 if self.causal else self.seqlen**2
        return 4.0 * self.head_dim * visible * BATCH * HEADS

    def problem(self, accuracy):
        return (f"dtype=fp32,head_dim={self.head_dim},heads={HEADS},batch={BATCH},seqlen={self.seqlen},"
                f"mask={self.mask},accuracy={accuracy}")


CASES = tuple(Case(*fields) for fields in itertools.product((64, 128), (False, True), (1024, 4096)))


def exact(case, q, k, v):
    """Returns attention in float64, head by head; q, k, v are [batch, seqlen, heads, head_dim]."""
    o = torch.empty(q.shape, device="cuda", dtype=torch.float64)
    hidden = torch.ones(case.seqlen, case.seqlen, device="cuda", dtype=torch.bool).triu(1) if case.causal else None
    for b, h in itertools.product(range(BATCH), range(HEADS)):
        scores = q[b, :, h].double() @ k[b, :, h].double().T / math.sqrt(case.head_dim)
        if hidden is not None:
            scores.masked_fill_(hidden, -math.inf)
        o[b, :, h] = scores.softmax(-1) @ v[b, :, h].double()
    return o


def errors(got, want):
    unit = want.square().mean().sqrt()
    error = (got.double() - want).abs()
    return {"rms": float(error.square().mean().sqrt() / unit), "max": float(error.max() / unit)}


def pytorch_runner(case, backend, allow_tf32, q, k, v):
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))

    def run():
        torch.backends.cuda.matmul.allow_tf32 = allow_tf32
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(qt, kt, vt, is_causal=case.causal)
    return run


def pytorch_runners(case, q, k, v):
    """Returns the backends that take the operands, and the other backends' errors."""
    runners, refused = {}, {}
    for (name, backend), allow_tf32 in itertools.product(BACKENDS.items(), (False, True)):
        label = f"{name}{', allow_tf32' if allow_tf32 else ''}"
        run = pytorch_runner(case, backend, allow_tf32, q, k, v)
        try:
            run()
            torch.cuda.synchronize()
            runners[label] = run
        except Exception as error:  # backends refuse with various types of exceptions
            refused[label] = timing.first_line(error)
    return runners, refused


def once_us(run):
    """Returns the time of the second call, for a runner too slow for rounds."""
    for _ in range(2):
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.stream(timing.stream()):
            start.record()
            run()
            stop.record()
        stop.synchronize()
    return start.elapsed_time(stop) * 1000.0


def time_all(runners, arguments, rng):
    first = {name: once_us(run) for name, run in runners.items()}
    fastest = min(first.values())
    samplers = {
        name: timing.graph_sampler(run, arguments.sample_us)
        for name, run in runners.items() if first[name] <= SLOW * fastest}
    timings = timing.interleaved_us(samplers, arguments.rounds, rng)
    return {
        name: timings.get(name, {"median_us": first[name], "min_us": first[name], "max_us": first[name], "samples": 1})
        for name in runners}


def run_case(case, context, arguments, rng):
    def draw():
        return torch.randn(BATCH, case.seqlen, HEADS, case.head_dim, device="cuda")
    q, k, v = draw(), draw(), draw()
    plans, runners = {}, {}
    outputs = {mode: draw() for mode in MODES}
    with torch.cuda.stream(timing.stream()):
        for mode in MODES:
            given = {"mask": case.mask, "accuracy": mode, "out": outputs[mode], "context": context}
            plans[mode] = attune.prepare(attune.attention, q, k, v, **given)
            runners[mode] = lambda given=given: attune.attention(q, k, v, **given)
        peers, refused = pytorch_runners(case, q, k, v)
        runners.update(peers)
    want = exact(case, q, k, v)
    found = {}
    with torch.cuda.stream(timing.stream()):
        for name, run in runners.items():
            got = run() if name in peers else (run(), outputs[name])[1]
            torch.cuda.synchronize()
            found[name] = errors(got.transpose(1, 2) if name in peers else got, want)
    del want
    timings = time_all(runners, arguments, rng)
    best = min(peers, key=lambda name: timings[name]["median_us"])
    best_us = timings[best]["median_us"]
    return {
        "case": case.name, "problem": case.problem("fast"), "flops": case.flops, "timings": timings,
        "errors": found, "refused": refused, "tflops": {
            name: case.flops / row["median_us"] / 1e6
            for name, row in timings.items()}, "best_of_pytorch": best, "over_pytorch": {
                mode: best_us / timings[mode]["median_us"]
                for mode in MODES}, "plans": {
                    mode: {"template": plan.kernel_template, "config": plan.config, "rung": plan.rung}
                    for mode, plan in plans.items()}}


def print_row(row):
    for name, tflops in row["tflops"].items():
        ratio = f"  {row['over_pytorch'][name]:5.2f} x {row['best_of_pytorch']}" if name in MODES else ""
        error = row["errors"][name]
        print(
            f"{row['case']:18s} {name:22s} {row['timings'][name]['median_us']:10.1f} us {tflops:7.1f} TFLOP/s  error "
            f"rms {error['rms']:.1e} "
            f"max {error['max']:.1e}{ratio}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", action="store_true", help="print the problems and exit")
    parser.add_argument("--store", default=None)
    parser.add_argument("--only", default="", help="substring of the case's name")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    chosen = [case for case in CASES if arguments.only in case.name]
    if arguments.problems:
        print("\n".join(case.problem(mode) for case in chosen for mode in TUNED))
        return
    torch.manual_seed(1)
    rng = random.Random(1)
    context = attune.Context(target="cuda", store=arguments.store)
    result = {
        "schema": "attune.bench.fp32.1", "command": timing.command(), **timing.facts(), "attune": attune.version(),
        "rows": []}
    for case in chosen:
        result["rows"].append(run_case(case, context, arguments, rng))
        print_row(result["rows"][-1])
        if arguments.out:
            timing.write_result(arguments.out, result)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
