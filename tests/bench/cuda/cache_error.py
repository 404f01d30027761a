#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the error of decoding over caches of 8 and 4 bits against float64 over the same bf16 rows, on three
distributions of keys:
    normal     N(0,1)
    outliers   N(0,1), and 0.1 % of the elements have N(0,100) added
    channels   N(0,1), and 4 columns of each head are 10 times as large in all keys
Values are N(0,1), with the same outliers. append_kv() writes each cache. Prints the root mean square error of O over
the root mean square of O.

    python3 tests/bench/cuda/cache_error.py [--device cuda] [--out FILE]
"""
import argparse
import datetime
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import timing  # noqa: E402

BATCH, KEYS, HEADS, HEADS_KV, HEAD_DIM, SEEDS = 4, 2048, 32, 8, 128, (1, 2, 3)
DISTRIBUTIONS = ("normal", "outliers", "channels")
# Per cache: its dtype, and the columns that share a factor: 0 for one factor per key, -1 for a factor of 1.
CACHES = {
    "bf16": ("bf16", -1), "e4m3": ("e4m3", -1), "e4m3, keys": ("e4m3", 0), "int8, keys": ("int8", 0),
    "int4, 16 columns": ("int4", 16), "int4, 32 columns": ("int4", 32), "e2m1, 16 columns": ("e2m1", 16),
    "e2m1, 32 columns": ("e2m1", 32)}
DTYPES = {"bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn, "int8": torch.int8}


def draw(distribution, of_keys, generator, device):
    normal = lambda *shape: torch.randn(shape, generator=generator)
    x = normal(BATCH, KEYS, HEADS_KV, HEAD_DIM)
    if distribution == "outliers":
        x += 10 * normal(*x.shape) * (torch.rand(x.shape, generator=generator) < 0.001)
    if distribution == "channels" and of_keys:
        x[..., torch.randperm(HEAD_DIM, generator=generator)[:4]] *= 10
    return x.to(device, torch.bfloat16)


def exact(q, k, v):
    k, v = (x.double().repeat_interleave(HEADS // HEADS_KV, 2) for x in (k, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k) * HEAD_DIM**-0.5
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v)


def attend(q, k, v, dtype, columns):
    slots, given = (BATCH, KEYS, HEADS_KV), {}
    if columns > 0:
        caches = [torch.zeros(*slots, HEAD_DIM // 2, dtype=torch.uint8, device=q.device) for _ in "kv"]
        factors = [torch.zeros(*slots, HEAD_DIM // columns, device=q.device).to(torch.float8_e4m3fn) for _ in "kv"]
        given = dict(dtype_kv=dtype, k_factors=factors[0], v_factors=factors[1])
        attune.append_kv(k, v, *caches, **given)
        return attune.attention_kvcache(q, *caches, **given)
    caches = [torch.zeros(*slots, HEAD_DIM, device=q.device).to(DTYPES[dtype]) for _ in "kv"]
    if dtype != "bf16":
        scales = [torch.ones(slots, device=q.device) for _ in "kv"] if columns == 0 else (1.0, 1.0)
        given = dict(k_scale=scales[0], v_scale=scales[1])
    attune.append_kv(k, v, *caches, **given, **({"make_scales": True} if columns == 0 else {}))
    return attune.attention_kvcache(q, *caches, **given)


def squared_errors(distribution, seed, device):
    generator = torch.Generator().manual_seed(seed)
    k, v = (draw(distribution, of_keys, generator, device) for of_keys in (True, False))
    q = torch.randn(BATCH, 1, HEADS, HEAD_DIM, generator=generator).to(device, torch.bfloat16)
    want = exact(q, k, v)
    errors = {name: (attend(q, k, v, *cache).double() - want).square().mean().item() for name, cache in CACHES.items()}
    return {**errors, "output": want.square().mean().item()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    device, rows = torch.device(arguments.device), []
    for distribution in DISTRIBUTIONS:
        runs = [squared_errors(distribution, seed, device) for seed in SEEDS]
        means = {name: sum(run[name] for run in runs) / len(runs) for name in runs[0]}
        output = means.pop("output")
        rows.append({
            "distribution": distribution,
            "relative": {name: math.sqrt(mean / output)
                         for name, mean in means.items()}})
        print(f"{distribution:9s} " + "  ".join(f"{name} {error:.2e}"
                                                for name, error in rows[-1]["relative"].items()), flush=True)
    if arguments.out:
        timing.write_result(arguments.out, {
            "schema": "attune.bench.cache_error.1",
            "command": f"tests/bench/cuda/cache_error.py --device {arguments.device}",
            "target": attune.Context(arguments.device).device, "torch": torch.__version__, "attune": attune.version(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "rows": rows})


if __name__ == "__main__":
    main()
