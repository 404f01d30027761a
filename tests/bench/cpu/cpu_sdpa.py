# SPDX-License-Identifier: Apache-2.0
"""Times attune's CPU target (tuned and default) against PyTorch's CPU SDPA: same tensors, same number of threads, one
process, interleaved in random order.

    python3 tests/bench/cpu/cpu_sdpa.py --out OUT/cpu.json [--store FILE] [--threads 1,16] [--dtype fp32] [--only "d64
        causal"]

Prints GFLOP/s over visible elements, the ratio to PyTorch and the share of the FMA peak that bench_fma_peak (--peak)
measures just before. Outputs are compared with PyTorch's before anything is timed. Without winners in the store,
"tuned" is the default config.
"""
import argparse
import datetime
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # PyTorch's idle threads must not spin while attune is timed

import torch  # noqa: E402
import torch.nn.functional as functional  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import timing  # noqa: E402

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
TOLERANCE = {"fp32": 1e-5, "bf16": 2e-2, "fp16": 3e-3}
HEADS = 8


def cases(dtype):
    for head_dim in (64, 128):
        for causal in (False, True):
            for seqlen in (512, 1024, 2048, 4096):
                mask = "causal_bottom_right" if causal else "none"
                yield {
                    "name": f"d{head_dim} {'causal' if causal else 'full'} {seqlen}", "head_dim": head_dim,
                    "causal": causal, "seqlen": seqlen,
                    "problem": f"dtype={dtype},head_dim={head_dim},heads={HEADS},seqlen={seqlen},mask={mask}"}


def flops(case):
    seqlen = case["seqlen"]
    visible = seqlen * (seqlen + 1) / 2 if case["causal"] else seqlen * seqlen
    return 4.0 * case["head_dim"] * HEADS * visible


def tensors(case, dtype):
    """Returns q, k and v as [batch, heads, seqlen, head_dim]. A case without batch or heads has 1 and HEADS."""
    batch, heads = case.get("batch", 1), case.get("heads", HEADS)
    return [
        torch.randn(batch, count, case["seqlen"], case["head_dim"], dtype=DTYPES[dtype])
        for count in (heads, case.get("heads_kv", heads), case.get("heads_kv", heads))]


def torch_attention(case, q, k, v):
    given = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    return functional.scaled_dot_product_attention(q, k, v, is_causal=case["causal"], **given)


def attune_runner(context, case, q, k, v, o):
    """Returns the plan and a callable that fills o."""
    operands = [tensor.transpose(1, 2)
                for tensor in (q, k, v, o)]  # views as [batch, seqlen, heads, head_dim]
    plan = context.plan(case["problem"], layout=operands)
    return plan, plan.launcher(*operands)


def run_case(case, contexts, arguments, rng):
    q, k, v = tensors(case, arguments.dtype)
    want = torch_attention(case, q, k, v)
    runners = {"torch": lambda: torch_attention(case, q, k, v)}
    plans = {}
    for label, context in contexts.items():
        o = torch.full_like(q, float("nan"))
        plans[label], runners[label] = attune_runner(context, case, q, k, v, o)
        runners[label]()
        distance = (o.float() - want.float()).abs().max().item()
        if not distance < TOLERANCE[arguments.dtype]:
            raise SystemExit(f"{case['name']}: attune ({label}) and PyTorch differ by {distance:.3g}")
    samplers = {name: timing.host_sampler(run, arguments.sample_us) for name, run in runners.items()}
    timings = timing.interleaved_us(samplers, arguments.rounds, rng)
    return {"case": case["name"], "problem": case["problem"], "timings": timings,
            "gflops": {name: flops(case) / row["median_us"] / 1e3 for name, row in timings.items()},
            "tuned_over_torch": timings["torch"]["median_us"] / timings["tuned"]["median_us"],
            "default_over_torch": timings["torch"]["median_us"] / timings["default"]["median_us"],
            "plans": {label: {"config": plan.config, "rung": plan.rung} for label, plan in plans.items()}}


def fma_peaks(program, threads):
    if not program or not Path(program).exists():
        return {}
    out = subprocess.run([program, *map(str, threads)], capture_output=True, text=True, check=True).stdout
    return {int(count): value for count, value in json.loads(out)["gflops"].items()}


def geomean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ", 1)[1]
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument("--dtype", default="fp32", choices=sorted(DTYPES))
    parser.add_argument("--only", default="", help="substring of the case's name")
    parser.add_argument("--store", default=None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sample-us", type=float, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peak", default="build/release/bin/bench_fma_peak", help="program that measures the FMA peak")
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    torch.manual_seed(arguments.seed)
    thread_counts = sorted({int(count) for count in arguments.threads.split(",")})
    peaks = fma_peaks(arguments.peak, thread_counts)
    results = []
    for threads in thread_counts:
        torch.set_num_threads(threads)
        contexts = {
            "tuned": attune.Context(f"cpu:{threads}", store=arguments.store), "default": attune.Context(
                f"cpu:{threads}", store="")}
        peak = peaks.get(threads, math.nan)
        print(
            f"{arguments.dtype}, {threads} threads, FMA peak {peak:.1f} GFLOP/s\n{'GFLOP/s':20s}   torch default   "
            f"tuned  tuned/torch  of peak"
        )
        rows = []
        for case in cases(arguments.dtype):
            if arguments.only not in case["name"]:
                continue
            rows.append(row := run_case(case, contexts, arguments, rng))
            print(
                f"{row['case']:20s} {row['gflops']['torch']:7.1f} {row['gflops']['default']:7.1f} "
                f"{row['gflops']['tuned']:7.1f} "
                f"{row['tuned_over_torch']:12.3f} {row['gflops']['tuned'] / peak:8.1%}", flush=True)
        ratios = [row["tuned_over_torch"] for row in rows]
        summary = {
            "geomean_over_torch": geomean(ratios), "worst_over_torch": min(ratios),
            "fma_peak_gflops": None if math.isnan(peak) else peak, "default_geomean_over_torch": geomean([
                row["default_over_torch"] for row in rows])}
        print(json.dumps(summary))
        results.append({"threads": threads, "summary": summary, "rows": rows})
    if arguments.out:
        result = {
            "schema": "attune.bench.cpu_sdpa.1", "command": " ".join(sys.argv), "processor": processor(),
            "torch": torch.__version__, "attune": attune.version(), "dtype": arguments.dtype, "results": results,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
        timing.write_result(arguments.out, result)


if __name__ == "__main__":
    main()
