# SPDX-License-Identifier: Apache-2.0
"""Times attune with 8-bit operands in both modes against its own bf16 kernels, cuDNN's bf16 and an 8192^3 bf16 product:
interleaved in random order in one process, as captured graphs. V is passed as rows, so every time includes the kernel
that transposes V.

    python3 tests/bench/cuda/fp8.py --out OUT/fp8.json [--store FILE] [--only "d128"]

FlashAttention-3 runs on the same e4m3 operands if its package is installed; otherwise the result names it as missing.
fp8_error.py measures errors of the modes on several distributions.
"""
import argparse
import dataclasses
import json
import math
import random
import statistics
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attention  # noqa: E402
import attune  # noqa: E402
import cases  # noqa: E402
import peers  # noqa: E402
import timing  # noqa: E402

MODES = cases.FP8_MODES


def fp8_runner(context, case, mode, q8, k8, v8):
    """Returns the plan, its output and a callable on e4m3 operands whose factors are 1."""
    o = torch.full(q8.shape, float("nan"), device="cuda", dtype=torch.bfloat16)
    plan = context.plan(dataclasses.replace(case, dtype=f"e4m3,accuracy={mode}").problem)
    torch.cuda.synchronize()
    return plan, o, plan.launcher(q8, k8, v8, o, q_scale=1.0, k_scale=1.0, v_scale=1.0,
                                  stream=timing.stream().cuda_stream)


def run_case(case, context, with_flash3, arguments, rng):
    q, k, v = attention.tensors(case)
    q8, k8, v8 = (x.to(torch.float8_e4m3fn) for x in (q, k, v))
    o = torch.full_like(q, math.nan)
    plan, call = attention.attune_runner(context, case, q, k, v, o)
    runners, plans, outputs = {"bf16": call}, {"bf16": plan}, {"bf16": o}
    for mode in MODES:
        plans[mode], outputs[mode], runners[mode] = fp8_runner(context, case, mode, q8, k8, v8)
    runners["cudnn"] = peers.cudnn(case, q, k, v)
    if with_flash3:
        runners["flash3"] = peers.flash3(case, q8, k8, v8)
        outputs["flash3"] = runners["flash3"]()
    for run in runners.values():
        run()
    torch.cuda.synchronize()
    want = outputs["bf16"].float()
    distances = {
        name: ((o.float() - want).norm() / want.norm()).item()
        for name, o in outputs.items() if name != "bf16"}
    if not max(distances.values()) < 0.1:
        raise SystemExit(f"{case.name}: 8 bits are {distances} of the norm from bf16, which is no rounding")
    samplers = {name: timing.graph_sampler(run, arguments.sample_us) for name, run in runners.items()}
    timings = timing.interleaved_us(samplers, arguments.rounds, rng)
    tflops = {name: case.flops / row["median_us"] / 1e6 for name, row in timings.items()}
    return {
        "case": case.name, "flops": case.flops, "gemm_tflops": timing.gemm_tflops(), "timings": timings,
        "tflops": tflops, "distance_to_bf16": distances, "workspace_bytes": plans["accurate"].workspace_bytes,
        "plans": {
            name: {"template": plan.kernel_template, "config": plan.config, "rung": plan.rung}
            for name, plan in plans.items()}}


def over(rows, mode, other, chosen):
    return [row["tflops"][mode] / row["tflops"][other] for row in rows if other in row["tflops"] and chosen(row)]


def summary(rows):
    def long(dim):
        return lambda row: row["case"].startswith(f"d{dim} ") and int(row["case"].split()[-1]) >= 4096

    def wide(row):
        return not row["case"].startswith("d64 ")
    gemm = statistics.fmean(row["gemm_tflops"] for row in rows)
    found = {"gemm_8192_tflops": gemm}
    for mode in MODES:
        over_flash3 = over(rows, mode, "flash3", wide)
        found[mode] = {
            "over_flash3_fp8_d128_d256": {
                "geomean": attention.geomean(over_flash3), "lowest": min(over_flash3, default=None)}, "over_own_bf16": {
                    f"d{dim} from 4096": attention.geomean(over(rows, mode, "bf16", long(dim)))
                    for dim in (64, 128, 256)}, "over_gemm_16384_full": {
                        row["case"]: row["tflops"][mode] / gemm
                        for row in rows if row["case"].endswith("full 16384")}}
    return found


def print_row(row, columns):
    speeds = row["tflops"]
    flash3 = speeds.get("flash3", math.nan)
    listed = " ".join(f"{speeds.get(name, math.nan):8.1f}" for name in columns)
    print(f"{row['case']:20s} {listed}   {speeds['accurate'] / flash3:.3f} {speeds['fast'] / flash3:.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="substring of the case's name")
    parser.add_argument("--store", default="", help="tuned kernels; without it the defaults run")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    rng = random.Random(arguments.seed)
    context = attune.Context(target="cuda", store=arguments.store)
    columns = ("accurate", "fast", "bf16", "cudnn", "flash3")
    missing = peers.missing(["flash3"])
    print(f"{'TFLOP/s':20s} {' '.join(f'{name:>8s}' for name in columns)}   over flash3 (accurate, fast)")
    facts = {
        "schema": "attune.bench.fp8.2", "command": timing.command(),
        **timing.facts(), "attune": attune.version(), "peers": peers.versions([
            name for name in ("cudnn", "flash3") if name not in missing]), "missing_peers": missing}
    rows = []
    for case in cases.grid():
        if arguments.only not in case.name:
            continue
        row = run_case(case, context, not missing, arguments, rng)
        rows.append(row)
        print_row(row, columns)
        if arguments.out:  # after each case: a run that is cut short keeps what it has
            timing.write_result(arguments.out, {**facts, "summary": summary(rows), "rows": rows})
        torch.cuda.empty_cache()
    print(json.dumps(summary(rows)))


if __name__ == "__main__":
    main()
