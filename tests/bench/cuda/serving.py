#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the calls around decoding on a CUDA device, interleaved, one process, as captured graphs:

    cascade          requests that share prefixes, against the same requests without sharing: on common pages (served by
                     the L2 then), and on separate pages
    append           appending rows of k and v to pages, turned with q by rotary angles or plain: GB/s read and written
    batch_invariant  the cost of bits that do not depend on the batch, over decode.py's eleven points

    python3 tests/bench/cuda/serving.py --out OUT/serving.json [--store FILE] [--only "cascade,append"]
    python3 tests/bench/cuda/serving.py --problems              problems for attune tune, one a line
"""
import argparse
import json
import math
import random
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import decode  # noqa: E402
import timing  # noqa: E402

HEADS, HEADS_KV, HEAD_DIM, PAGE = 32, 8, 128, 16


def ints(values):
    return torch.tensor(values, device="cuda", dtype=torch.int32)


def pages_of(count):
    return tuple(torch.randn(count, PAGE, HEADS_KV, HEAD_DIM, device="cuda").bfloat16() for _ in "kv")


@dataclass(frozen=True)
class Cascade:
    """`requests` of one token each; a level has `groups` prefixes of `keys` keys, each shared by requests / groups."""
    name: str
    requests: int
    levels: tuple  # (groups, keys), from the most shared prefix to each request's own keys

    @property
    def keys(self):
        return sum(keys for _, keys in self.levels)

    def problems(self):
        text = f"op=attention_kvcache,dtype=bf16,head_dim={HEAD_DIM},heads={HEADS}/{HEADS_KV}," \
            f"page_size={PAGE},mask=none,"
        shared = [
            text + f"packed_q=1,batch={groups},seqlen_q={self.requests // groups},seqlen_kv={keys}"
            for groups, keys in self.levels]
        return [*shared, text + f"batch={self.requests},seqlen_q=1,seqlen_kv={self.keys}"]


CASCADES = (Cascade("64 requests share 8192 of 8448 keys", 64, ((1, 8192), (64, 256))),
            Cascade("32 requests share 4096, groups of 8 share 2048 more, of 6400 keys", 32,
                    ((1, 4096), (4, 2048), (32, 256))))


def run_cascade(case, context, rounds, rng):
    """Exits if the two results differ by more than bf16's rounding."""
    q = torch.randn(case.requests, HEADS, HEAD_DIM, device="cuda").bfloat16()
    k, v = pages_of(sum(groups * keys // PAGE for groups, keys in case.levels))
    order, levels, columns = torch.randperm(k.shape[0], device="cuda").int(), [], []
    for groups, keys in case.levels:
        used, order = order[:groups * keys // PAGE].reshape(groups, -1).contiguous(), order[groups * keys // PAGE:]
        share = case.requests // groups
        levels.append(
            dict(k_cache=k, v_cache=v, q_begins=ints(range(0, case.requests + 1, share)), seqlen_q=share,
                 kv_lengths=ints([keys] * groups), page_table=used))
        columns.append(used.repeat_interleave(share, 0))
    together, lengths = torch.cat(columns, 1).contiguous(), ints([case.keys] * case.requests)
    count = case.requests * case.keys // PAGE
    own_k, own_v = pages_of(count)
    apart = torch.randperm(count, device="cuda").int().reshape(case.requests, -1)
    attune.prepare(attune.cascade, q, levels, context=context)
    runners = {
        "cascade": lambda: attune.cascade(q, levels, context=context), "not_shared": lambda: attune.attention_kvcache(
            q[:, None], own_k, own_v, lengths, page_table=apart, context=context), "not_shared_same_pages": lambda:
        attune.attention_kvcache(q[:, None], k, v, lengths, page_table=together, context=context)}
    error = (runners["cascade"]().float() - runners["not_shared_same_pages"]()[:, 0].float()).abs().max().item()
    if not error < 0.01:
        raise SystemExit(f"{case.name}: results differ by {error:.3g}")
    timings = timing.interleaved_us({name: timing.graph_sampler(run, 5000)
                                     for name, run in runners.items()}, rounds, rng)
    us = {name: row["median_us"] for name, row in timings.items()}
    over = {name: value / us["cascade"] for name, value in us.items() if name != "cascade"}
    print(
        f"{case.name}: " + "  ".join(f"{name} {value:.1f} us"
                                     for name, value in us.items()) + f"  over not shared {over['not_shared']:.2f}, "
        f"{over['not_shared_same_pages']:.2f} on the same pages", flush=True)
    return {"case": case.name, "levels": case.levels, "timings": timings, "over": over}


@dataclass(frozen=True)
class Append:
    name: str
    batch: int
    rows: int  # per request
    turned: bool = False
    dtype_kv: str = ""

    @property
    def bytes(self):
        rows, kv = self.batch * self.rows, 2 * HEADS_KV * HEAD_DIM
        return rows * (kv * (2 + (1 if self.dtype_kv else 2)) + (2 * 2 * HEADS * HEAD_DIM if self.turned else 0))


APPENDS = (Append("64 rows", 64, 1), Append("64 rows, turned with q", 64, 1, True), Append(
    "8192 rows", 4, 2048), Append("8192 rows, turned with q", 4, 2048,
                                  True), Append("8192 rows, turned with q, e4m3", 4, 2048, True, "e4m3"))


def run_append(case, context, rounds, rng):
    """Times one append. Large calls rotate over copies of their tensors, together more than the L2."""
    room = 8192
    copies = max(1, 120_000_000 // case.bytes +
                 1) if case.bytes > 4_000_000 else 1  # one token per request comes from L2 in engines too
    options = {}
    if case.turned:
        options["cos"], options["sin"] = attune.rotary_table(room, HEAD_DIM, like=torch.empty(0, device="cuda"))
    k_cache, v_cache = pages_of(case.batch * room // PAGE)
    if case.dtype_kv:
        k_cache, v_cache = k_cache.to(torch.float8_e4m3fn), v_cache.to(torch.float8_e4m3fn)
        options.update(k_scale=1.0, v_scale=1.0)
    options["page_table"] = torch.randperm(case.batch * room // PAGE, device="cuda").int().reshape(case.batch, -1)
    sets = []
    for number in range(copies):
        k, v = (torch.randn(case.batch, case.rows, HEADS_KV, HEAD_DIM, device="cuda").bfloat16() for _ in "kv")
        rows = {"q": torch.randn(case.batch, case.rows, HEADS, HEAD_DIM, device="cuda").bfloat16()
                } if case.turned else {}
        if rows:
            rows["q_out"] = torch.empty_like(rows["q"])
        sets.append(((k, v, k_cache, v_cache, ints([room - number % 4 * case.rows] * case.batch)), rows))
    at = 0

    def run():
        nonlocal at
        at = (at + 1) % copies
        given, rows = sets[at]
        attune.append_kv(*given, **rows, **options, context=context)
    timings = timing.interleaved_us({"append_kv": timing.graph_sampler(run, 3000)}, rounds, rng)
    us = timings["append_kv"]["median_us"]
    print(f"append {case.name}: {us:.2f} us, {case.bytes / us / 1e3:.0f} GB/s", flush=True)
    return {
        "case": case.name, "batch": case.batch, "rows": case.rows, "bytes": case.bytes, "copies": copies,
        "timings": timings, "gb_per_s": case.bytes / us / 1e3}


def run_invariant(case, context, rounds, rng):
    sets = decode.Sets(case)

    def runner(own):
        out = torch.empty_like(sets.q)
        return lambda: attune.attention_kvcache(sets.q, *sets.take(), sets.lengths, out=out, context=context,
                                                batch_invariant=own)

    samples = timing.interleaved_samples(
        {name: decode.sampler(runner(name == "batch_invariant"), sets, 3000)
         for name in ("free", "batch_invariant")}, rounds, rng)
    timings, ratio = timing.medians_us(samples), timing.paired_ratio(samples["free"], samples["batch_invariant"])
    print(
        f"{case.name}: " + "  ".join(f"{name} {row['median_us']:.1f} us"
                                     for name, row in timings.items()) + f"  {ratio:.3f}", flush=True)
    return {
        "case": case.name, "timings": timings, "of_free": ratio, "config": context.plan(invariant_problem(case)).config}


def invariant_problem(case):
    return case.problem + ",batch_invariant=1"


PARTS = {
    "cascade": (CASCADES, run_cascade), "append": (APPENDS, run_append),
    "batch_invariant": (decode.all_cases()[:11], run_invariant)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", action="store_true")
    parser.add_argument("--store", default=None)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    if arguments.problems:
        problems = [problem for case in CASCADES for problem in case.problems()]
        print("\n".join(
            dict.fromkeys(
                problems +
                [text for case in PARTS["batch_invariant"][0] for text in (case.problem, invariant_problem(case))])))
        return
    torch.manual_seed(1)
    rng, context = random.Random(1), attune.Context(target="cuda", store=arguments.store or "")
    result = {}
    for name in arguments.only.split(","):
        cases, run = PARTS[name]
        result[name] = []
        for case in cases:
            result[name].append(run(case, context, arguments.rounds, rng))
            torch.cuda.empty_cache()
    ratios = [row["of_free"] for row in result.get("batch_invariant", [])]
    summary = {
        "batch_invariant_of_free": {
            "geomean": math.exp(statistics.fmean(map(math.log, ratios))), "lowest": min(ratios)}} if ratios else {}
    print(json.dumps(summary))
    if arguments.out:
        timing.write_result(arguments.out,
                            {"command": timing.command(), **timing.facts(), "summary": summary, **result})


if __name__ == "__main__":
    main()
