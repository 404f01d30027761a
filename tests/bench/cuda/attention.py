# SPDX-License-Identifier: Apache-2.0
"""Times attune (tuned and default) and its peers on the same tensors, interleaved in random order, one process.

    python3 tests/bench/cuda/attention.py --set grid --peers cudnn,flash2,flash3 --out OUT/grid.json [--store FILE]
        [--only "d128"]

Every runner is timed as a captured graph; the result also has the host time of each call. Prints a table of TFLOP/s
over visible elements and the ratio to the best peer, and writes everything as JSON. Outputs are compared with the
first peer before anything is timed. Peers that are not installed, or do not serve a case, are named in the result and
left out of the ratios.
"""
import argparse
import json
import math
import random
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import cases  # noqa: E402
import peers  # noqa: E402
import timing  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def tensors(case):
    """Returns q, k and v."""
    def draw(seqlen, heads, width):
        return torch.randn(case.batch, seqlen, heads, width, device="cuda", dtype=DTYPES[case.dtype])
    return (draw(case.seqlen_q, case.heads_q, case.head_dim), draw(case.seqlen_kv, case.heads_kv, case.head_dim),
            draw(case.seqlen_kv, case.heads_kv, case.width_v))


def masks_of(case):
    """Returns the keywords of attention() for the case's mask and window."""
    return {"mask": "causal_bottom_right" if case.causal else "none",
            "window": (case.window_left, case.window_right) if case.window_left >= 0 else None}


def attune_runner(context, case, q, k, v, o):
    """Returns the plan and a callable that enqueues it on the benchmarks' stream."""
    plan = context.plan(case.problem)
    torch.cuda.synchronize()  # the operands were made on another stream
    return plan, plan.launcher(q, k, v, o, stream=timing.stream().cuda_stream)


def check(case, o, peer_runners):
    """Returns the relative distance to the first peer with a result. Exits if rounding cannot explain it."""
    for name, run in peer_runners.items():
        want = peers.as_bshd(name, run())
        distance = peers.distance(o, want)
        if not distance < 0.02:
            raise SystemExit(f"{case.name}: attune and {name} differ by {distance:.3g} of the norm")
        return distance
    return None


def peer_runners(case, q, k, v, names, failures):
    runners = {}
    for name in names:
        try:
            run = peers.PEERS[name](case, q, k, v)
            if run is not None:
                run()
                runners[name] = run
        except Exception as error:  # a peer's failure is reported; the run goes on
            failures.append({"case": case.name, "peer": name, "error": timing.first_line(error)})
    return runners


def run_case(case, contexts, names, arguments, rng, failures):
    q, k, v = tensors(case)
    runners, plans = {}, {}
    others = peer_runners(case, q, k, v, names, failures)
    distance = None
    o = torch.empty_like(
        q)  # shared: times of one kernel differ by 2.3 % between two outputs, by 0.3 % on one
    for label, context in contexts.items():
        plan, call = attune_runner(context, case, q, k, v, o.fill_(math.nan))
        call()
        torch.cuda.synchronize()
        distance = check(case, o, others)
        runners[label], plans[label] = call, plan
    runners.update(others)
    samplers = {name: timing.graph_sampler(run, arguments.sample_us) for name, run in runners.items()}
    samples = timing.interleaved_samples(samplers, arguments.rounds, rng)
    timings = timing.medians_us(samples)
    for name, run in runners.items():
        timings[name]["enqueue_us"] = timing.enqueue_us(run)
    tflops = {name: case.flops / row["median_us"] / 1e6 for name, row in timings.items()}
    ours = {"tuned", "default", "standard"}
    best_peer = max((speed for name, speed in tflops.items() if name not in ours), default=math.nan)
    over_default = {}
    if "default" in plans:
        over_default = {"tuned_over_default": timing.paired_ratio(samples["default"], samples["tuned"]),
                        "tuned_is_default": same_kernel(plans["tuned"], plans["default"])}
    return {
        "case": case.name, "problem": case.problem, "flops": case.flops, "timings": timings, "tflops": tflops,
        "tuned_over_best_peer": tflops["tuned"] / best_peer, **over_default, "distance_to_peer": distance,
        "extra_bytes": {
            "tuned": plans["tuned"].workspace_bytes, **{
                name: extra_bytes(run)
                for name, run in others.items() if name == "standard"}}, "plans": {
                label: {"template": plan.kernel_template, "config": plan.config, "rung": plan.rung}
                for label, plan in plans.items()}}


def same_kernel(a, b):
    return (a.kernel_template, a.config) == (b.kernel_template, b.config)


def extra_bytes(run):
    """Returns the device memory in bytes that one call needs beyond its operands."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def print_row(row, names):
    speeds = row["tflops"]
    columns = " ".join(f"{speeds.get(name, math.nan):8.1f}" for name in names)
    print(f"{row['case']:32s} {columns}   x{row['tuned_over_best_peer']:.3f}  {row['plans']['tuned']['template']} "
          f"{row['plans']['tuned']['rung']}", flush=True)


def geomean(values):
    values = [value for value in values if value > 0]
    return math.exp(statistics.fmean(math.log(value) for value in values)) if values else math.nan


def summary(rows, gemm, has_default):
    ratios = [row["tuned_over_best_peer"] for row in rows if row["tuned_over_best_peer"] == row["tuned_over_best_peer"]]
    result = {
        "geomean_over_best_peer": geomean(ratios), "worst_over_best_peer": min(ratios, default=math.nan),
        "gemm_8192_tflops": gemm}
    if has_default:
        # The ratio is 1 if tuning chose the default: a measured difference is the noise of this run.
        over_default = [1.0 if row["tuned_is_default"] else row["tuned_over_default"] for row in rows]
        copies = [row["tuned_over_default"] for row in rows if row["tuned_is_default"]]
        result.update(geomean_over_default=geomean(over_default), worst_over_default=min(
            over_default, default=math.nan), tuned_is_default=len(copies), worst_between_copies=min(
                (min(ratio, 1 / ratio) for ratio in copies), default=math.nan))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="grid", choices=sorted(cases.SETS))
    parser.add_argument("--peers", default=",".join(peers.DEFAULT))
    parser.add_argument("--only", default="", help="substring of the case's name")
    parser.add_argument("--store", default=None)
    parser.add_argument("--tuned-only", action="store_true",
                        help="do not time the default config, which may belong to another family than the tuned kernel")
    parser.add_argument("--rounds", type=int, default=21,
                        help="samples per runner; clocks move by 5 %% within a run, so few samples say little")
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    chosen = [case for case in cases.SETS[arguments.set]() if arguments.only in case.name]
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    asked = [name for name in arguments.peers.split(",") if name]
    missing = peers.missing(asked)
    names = [name for name in asked if name not in missing]
    contexts = {"tuned": attune.Context(target="cuda", store=arguments.store)}
    if not arguments.tuned_only:
        contexts["default"] = attune.Context(target="cuda", store="")
    columns = list(contexts) + names
    for reason in missing.values():
        print(f"{reason}: not measured")
    print(f"{'TFLOP/s':32s} {' '.join(f'{name:>8s}' for name in columns)}   tuned / best peer")
    gemm, rows, failures = [timing.gemm_tflops()], [], []
    facts = {
        "schema": "attune.bench.attention.4", "command": timing.command(), **timing.facts(), "attune": attune.version(),
        "peers": peers.versions(names), "missing_peers": missing}

    def write():
        if arguments.out:
            timing.write_result(
                arguments.out,
                {**facts, "summary": summary(rows, gemm, "default" in contexts), "failures": failures, "rows": rows})

    for index, case in enumerate(chosen):
        if index == len(chosen) // 2:
            gemm.append(timing.gemm_tflops())
        rows.append(run_case(case, contexts, names, arguments, rng, failures))
        print_row(rows[-1], columns)
        write()  # after each case: a run that is cut short keeps what it has
        torch.cuda.empty_cache()
    gemm.append(timing.gemm_tflops())
    write()
    print(json.dumps(summary(rows, gemm, "default" in contexts)))


if __name__ == "__main__":
    main()
