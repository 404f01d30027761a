#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the bandwidth of op quantise on a CUDA device, and the gain of fusing the Hadamard rotation into it.

Each case: bf16 tensors of N(0,1), together larger than twice the L2, quantised to e4m3 with the config of a tuned store
or the default. GB/s count q once and o once. Interleaved with: a copy that reads the same bytes and writes half (bf16
to 8 bits by PyTorch's cast, no factors), and for rotated cases PyTorch's product with the Hadamard matrix followed by
quantise without rotation. All run from CUDA graphs, so that host time does not count.

    python3 tests/bench/cuda/quantise.py --out OUT/quantise.json
"""
import argparse
import itertools
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import timing  # noqa: E402

SHAPES = ((1, 16384, 16, 128), (1, 2048, 16, 128), (1, 16384, 32, 64), (1, 16384, 8, 256))
OPTIONS = ({"scale_block": 128}, {"scale_block": 128, "rotation": "hadamard"}, {
    "scale_block": 128, "v_layout": "transposed"}, {"scale_block": 64}, {"scale_block": 0}, {
        "scale_block": 0, "rotation": "hadamard"})
MAX_SETS = 24


def hadamard(size):
    matrix = torch.ones(1, 1, device="cuda", dtype=torch.float64)
    while matrix.shape[0] < size:
        matrix = torch.cat((torch.cat((matrix, matrix), 1), torch.cat((matrix, -matrix), 1)))
    return (matrix * size ** -0.5).to(torch.bfloat16)


def in_turn(call, sets):
    """Returns a function that calls `call` with the next set each time."""
    rest = itertools.cycle(sets)
    return lambda: call(next(rest))


def run_case(shape, options, rng, arguments):
    bytes_in = 2 * shape[0] * shape[1] * shape[2] * shape[3]
    sets = [
        torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        for _ in range(min(MAX_SETS, 160_000_000 // bytes_in + 2))]
    attune.prepare(attune.quantise, sets[0], **options)  # before the captures, which cannot compile
    runners = {
        "quantise": in_turn(lambda x: attune.quantise(x, **options), sets), "cast": in_turn(
            lambda x: x.to(torch.float8_e4m3fn), sets)}
    if options.get("rotation") == "hadamard":
        matrix, plain = hadamard(shape[3]), {key: value for key, value in options.items() if key != "rotation"}
        attune.prepare(attune.quantise, sets[0], **plain)
        runners["rotate, then quantise"] = in_turn(lambda x: attune.quantise(x @ matrix, **plain), sets)
    samplers = {name: timing.graph_sampler(run, 3000) for name, run in runners.items()}
    us = {name: row["median_us"] for name, row in timing.interleaved_us(samplers, arguments.rounds, rng).items()}
    row = {
        "shape": shape, "options": options, "us": us, "gb_per_s": {
            name: 1.5 * bytes_in / time / 1e3
            for name, time in us.items()}}
    if "rotate, then quantise" in us:
        row["fused_speedup"] = us["rotate, then quantise"] / us["quantise"]
    print(
        f"{str(shape):24s} {str(options):48s} " + "  ".join(f"{name} {time:.2f} us {row['gb_per_s'][name]:.0f} GB/s"
                                                            for name, time in us.items()), flush=True)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    torch.manual_seed(1)
    rng = random.Random(1)
    rows = [run_case(shape, options, rng, arguments) for shape, options in itertools.product(SHAPES, OPTIONS)]
    if arguments.out:
        result = {
            "schema": "attune.bench.quantise.1", "command": timing.command(),
            **timing.facts(), "attune": attune.version(), "rows": rows}
        timing.write_result(arguments.out, result)


if __name__ == "__main__":
    main()
