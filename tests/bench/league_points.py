#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The league's fixed points, on which no build may be slower than the build of the last publication.

    python3 tests/bench/league_points.py OLD/bin/attune NEW/bin/attune [--rounds 5] [--time 0.1] [--out FILE]
        [--only op=attention_kvcache]

Both builds run their default kernels, in turns (cuda/two_builds.py). A point on which the new build is slower by more
than 1 % is timed again in 5 rounds, whose median counts. Exit status 1 if a point stays slower. --only takes the
points whose text has a word; several calls of a few points fit a machine that ends commands early. The shapes are those
of Llama, Qwen, Mistral, Gemma, gpt-oss, DeepSeek, Falcon, Phi, GPT-NeoX, BERT, ViT and Flux models.
"""
import argparse
import json
import random
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SLOWEST = 0.99  # old time / new time
AGAIN_ROUNDS = 5
CAUSAL = "mask=causal_bottom_right"

FORWARD = (
    f"dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,batch=2,{CAUSAL}",
    f"dtype=bf16,head_dim=128,heads=64/8,seqlen=8192,batch=1,{CAUSAL}",
    f"dtype=bf16,head_dim=128,heads=28/4,seqlen=1000,batch=8,{CAUSAL}",
    f"dtype=fp16,head_dim=64,heads=71/1,seqlen=2048,batch=2,{CAUSAL}",
    f"dtype=bf16,head_dim=80,heads=32/32,seqlen=2048,batch=4,{CAUSAL}",
    f"dtype=bf16,head_dim=96,heads=32/32,seqlen=4096,batch=2,{CAUSAL}",
    f"dtype=bf16,head_dim=256,heads=16/8,seqlen=4096,batch=2,{CAUSAL}",
    f"dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=128/128,seqlen=2048,batch=1,{CAUSAL}",
    f"dtype=bf16,head_dim=128,heads=32/8,seqlen=16384,batch=1,{CAUSAL},window=4095:0",
    "dtype=bf16,head_dim=128,heads=24/24,seqlen=4608,batch=1",
    "dtype=fp16,head_dim=64,heads=16/16,seqlen=577,batch=64",
    "dtype=fp16,head_dim=64,heads=12/12,seqlen=512,batch=32",
    f"dtype=bf16,head_dim=128,heads=8/1,seqlen_q=512,seqlen_kv=65536,batch=1,{CAUSAL}",
)
GRADIENTS = tuple(f"op=attention_backward,{text}" for text in (
    f"dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,batch=2,{CAUSAL}",
    f"dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,batch=2,{CAUSAL},deterministic=1",
    f"dtype=bf16,head_dim=128,heads=28/4,seqlen=2048,batch=4,{CAUSAL}",
    f"dtype=bf16,head_dim=128,heads=32/1,seqlen=4096,batch=1,{CAUSAL}",
    f"dtype=bf16,head_dim=64,heads=71/1,seqlen=2048,batch=1,{CAUSAL},deterministic=1",
    f"dtype=bf16,head_dim=80,heads=32/32,seqlen=2048,batch=8,{CAUSAL}",
    f"dtype=bf16,head_dim=96,heads=32/32,seqlen=2048,batch=8,{CAUSAL}",
    f"dtype=bf16,head_dim=256,heads=16/8,seqlen=2048,batch=2,{CAUSAL}",
    f"dtype=bf16,head_dim=128,heads=32/8,seqlen=16384,batch=1,{CAUSAL},window=4095:0",
    "dtype=bf16,head_dim=128,heads=24/24,seqlen=4608,batch=1",
    "dtype=bf16,head_dim=64,heads=12/12,seqlen=512,batch=32,deterministic=1",
))
SERVING = tuple(f"op=attention_kvcache,{text}" for text in (
    "dtype=bf16,head_dim=128,heads=28/4,seqlen_q=1,seqlen_kv=2000,batch=1",
    "dtype=bf16,head_dim=128,heads=32/8,seqlen_q=1,seqlen_kv=512,batch=16",
    "dtype=bf16,head_dim=128,heads=8/1,seqlen_q=1,seqlen_kv=2048,batch=256,page_size=16",
    "dtype=bf16,head_dim=64,heads=64/8,seqlen_q=1,seqlen_kv=12000,batch=32,page_size=16",
    f"dtype=bf16,head_dim=128,heads=40/8,seqlen_q=4,seqlen_kv=3000,batch=32,{CAUSAL},page_size=16",
    f"dtype=bf16,head_dim=128,heads=32/8,seqlen_q=128,seqlen_kv=5000,batch=16,{CAUSAL},page_size=16",
    "dtype=bf16,dtype_kv=e4m3,head_dim=128,heads=64/8,seqlen_q=1,seqlen_kv=5000,batch=64,page_size=16",
    "dtype=bf16,dtype_kv=int8,kv_factors=keys,head_dim=128,heads=32/8,seqlen_q=1,seqlen_kv=8192,batch=16,page_size=1",
    "dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=128/1,seqlen_q=1,seqlen_kv=16000,batch=8,v_in_k=1,page_size=64",
    "dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=16/1,seqlen_q=1,seqlen_kv=4096,batch=64,v_in_k=1,page_size=1",
))
OTHERS = (
    f"dtype=e4m3,head_dim=128,heads=32/8,seqlen=4096,batch=2,{CAUSAL}",
    "dtype=e4m3,head_dim=256,heads=16/8,seqlen=4096,batch=1,accuracy=fast",
    f"dtype=bf16,head_dim=256,heads=16/8,seqlen=4096,batch=1,{CAUSAL},softcap=50",
    f"dtype=bf16,head_dim=64,heads=64/8,seqlen=8192,batch=1,{CAUSAL},window=127:0,sinks=bf16",
    f"dtype=bf16,head_dim=128,heads=32/32,seqlen=2048,batch=2,{CAUSAL},alibi=1",
    f"dtype=bf16,head_dim=128,heads=32/8,seqlen=8192,batch=1,{CAUSAL},documents=1",
)
POINTS = FORWARD + GRADIENTS + SERVING + OTHERS


def compared(compare, points, rounds):
    """Returns a row per point. compare(points, rounds) returns the times of the old and of the new build: a list per
    round, with a number per point."""
    rows = rows_of(points, compare(points, rounds))
    slow = [row["problem"] for row in rows if row["ratio"] < SLOWEST]
    if slow:
        later = {row["problem"]: row for row in rows_of(slow, compare(slow, AGAIN_ROUNDS))}
        rows = [{**later[row["problem"]], "first_ratio": row["ratio"]} if row["problem"] in later else row
                for row in rows]
    return rows


def rows_of(points, samples):
    rows = []
    for number, problem in enumerate(points):
        old, new = ([turn[number] for turn in turns] for turns in samples)
        rows.append({
            "problem": problem, "old_us": statistics.median(old), "new_us": statistics.median(new),
            "ratio": statistics.median(a / b for a, b in zip(old, new))})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--time", type=float, default=0.1, help="seconds per problem and turn")
    parser.add_argument("--only", default="", help="a word of the problems, such as op=attention_backward")
    parser.add_argument("--out")
    given = parser.parse_args()
    sys.path.insert(0, str(HERE / "cuda"))
    import two_builds
    points, rng = [point for point in POINTS if given.only in point], random.Random(1)
    if not points:
        parser.error(f"--only is {given.only!r}; must be a word of one of the {len(POINTS)} problems")
    rows = compared(
        lambda chosen, rounds: two_builds.compare([given.old, given.new], chosen, rounds, given.time, rng), points,
        given.rounds)
    for row in rows:
        print(f"{row['ratio']:.3f}  {row['old_us']:10.1f}  {row['new_us']:10.1f}  {row['problem']}")
    slow = [row for row in rows if row["ratio"] < SLOWEST]
    lowest = min(row["ratio"] for row in rows)
    print(f"{len(slow)} of {len(rows)} points are slower by more than 1 %; lowest {lowest:.3f}")
    if given.out:
        Path(given.out).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(bool(slow))


if __name__ == "__main__":
    sys.exit(main())
