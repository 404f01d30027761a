# SPDX-License-Identifier: Apache-2.0
"""Times gradients of attention against peers: same tensors, interleaved, one process, whole calls with all their
passes.

    python3 tests/bench/cuda/backward.py --problems             problems for attune tune, one a line
    python3 tests/bench/cuda/backward.py --store FILE --out OUT/backward.json [--only "d128 causal"] [--peers
        cudnn,flash2,flash4]
    python3 tests/bench/cuda/backward.py --join OUT/backward.json later.json --out OUT/backward.json
        one row per case, from the last file that has it

Peers are PyTorch's SDPA (cuDNN, flash) and FlashAttention-4. FlashAttention-4 and attune are also timed, and compared
with each other, with deterministic=True, which gives the same bits in every run. Every runner is a captured graph of
the backward pass alone. TFLOP/s count 2.5 times the forward's useful operations. Gradients are compared with the first
peer's before anything is timed.
"""
import argparse
import json
import math
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attention as forward  # noqa: E402
import attune  # noqa: E402
import cases  # noqa: E402
import peers  # noqa: E402
import timing  # noqa: E402

PEERS = ("cudnn", "flash2", "flash4", "flash4 deterministic")
GRID = ("d64", "d128", "d256")


def all_cases():
    """Returns the cases: three head dims, full and causal, four lengths; then grouped heads and windows."""
    grid = cases.squares((64, 128, 256), (1024, 2048, 4096, 16384))
    more = [
        cases.Case("gqa 32/8 d128 causal 8192", 2, 8192, 8192, 32, 8, 128, True),
        cases.Case("d256 full 8192", 2, 8192, 8192, 8, 8, 256),
        cases.Case("d256 causal 8192", 2, 8192, 8192, 8, 8, 256, True),
        cases.Case("window 128 d64 causal 8192", 2, 8192, 8192, 32, 32, 64, True, 127),
        cases.Case("window 1024 d128 causal 8192", 2, 8192, 8192, 16, 16, 128, True, 1023)]
    return grid + more


def problem_of(case, more=""):
    return f"op=attention_backward,{case.problem}{more}"


def peer_runner(name, case, q, k, v, dout):
    """Returns a callable that returns (dq, dk, dv), or None if the peer does not serve the case."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    base, _, deterministic = name.partition(" ")
    if deterministic:
        from flash_attn.cute import flash_attn_func
        window = (case.window_left, case.window_right) if case.window_left >= 0 else (None, None)
        result = flash_attn_func(*leaves, causal=case.causal and case.window_left < 0, window_size=window,
                                 deterministic=True)
    else:
        run = peers.PEERS[base](case, *leaves)
        if run is None:
            return None
        result = run()
    out = peers.as_bshd(base, result)
    return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


def peer_runners(case, names, tensors, failures):
    runners = {}
    for name in names:
        try:
            with torch.cuda.stream(timing.stream()):  # PyTorch runs a backward pass on its forward's stream
                run = peer_runner(name, case, *tensors)
                if run is not None:
                    run()
                    runners[name] = run
            torch.cuda.synchronize()
        except Exception as error:  # a peer's failure is reported; the run goes on
            failures.append({"case": case.name, "peer": name, "error": timing.first_line(error)})
    return runners


def distances(case, gradients, wanted):
    found = {}
    for name, got, want in zip(("dq", "dk", "dv"), gradients, wanted):
        found[name] = peers.distance(got, want)
        if not found[name] < 0.02:
            raise SystemExit(f"{case.name}: attune and its peer differ in {name} by {found[name]:.3g} of the norm")
    return found


def operands(case):
    """Returns q, k, v, the gradient of the output, and tensors for the gradients."""
    q, k, v = forward.tensors(case)
    dout = torch.randn(*q.shape[:3], case.width_v, device=q.device, dtype=q.dtype)
    return (q, k, v, dout), [torch.full_like(x, math.nan) for x in (q, k, v)]


def attune_runner(context, case, tensors, gradients, deterministic):
    """Returns a callable that fills the gradients. Runs the forward pass, on the current stream."""
    q, k, v, dout = tensors
    given = {**forward.masks_of(case), "context": context}
    o, lse = attune.attention(q, k, v, return_lse=True, **given)
    return lambda: attune.attention_backward(dout, q, k, v, o, lse, deterministic=deterministic, out=tuple(gradients),
                                             **given)


def run_case(case, context, arguments, rng, failures):
    (q, k, v, dout), gradients = operands(case)
    with torch.cuda.stream(timing.stream()):
        ours, ours_in_order = (
            attune_runner(context, case, (q, k, v, dout), gradients, flag) for flag in (False, True))
        ours_in_order()
        first = [x.clone() for x in gradients]
        ours_in_order()
        if not all(torch.equal(x, y) for x, y in zip(first, gradients)):
            raise SystemExit(f"{case.name}: two calls with deterministic=True differ")
        del first
        ours()
    torch.cuda.synchronize()
    others = peer_runners(case, arguments.peers, (q, k, v, dout), failures)
    distance = distances(case, gradients, next(iter(others.values()))()) if others else None
    runners = {"attune": ours, "attune deterministic": ours_in_order, **others}
    timings = timing.interleaved_us(
        {name: timing.graph_sampler(run, arguments.sample_us)
         for name, run in runners.items()}, arguments.rounds, rng)
    tflops = {name: 2.5 * case.flops / row["median_us"] / 1e6 for name, row in timings.items()}
    plan, in_order = (context.plan(problem_of(case, more)) for more in ("", ",deterministic=1"))
    free = {name: speed for name, speed in tflops.items() if name != "attune" and "deterministic" not in name}
    bound = tflops.get("flash4 deterministic")
    return {
        "case": case.name, "problem": problem_of(case), "flops": 2.5 * case.flops, "timings": timings, "tflops": tflops,
        "over_best_peer": tflops["attune"] / max(free.values()) if free else None,
        "over_deterministic_peer": tflops["attune deterministic"] / bound if bound else None,
        "distance_to_peer": distance, "workspace_bytes": plan.workspace_bytes, "plan": {
            "template": plan.kernel_template, "config": plan.config, "rung": plan.rung}, "deterministic_plan": {
                "template": in_order.kernel_template, "config": in_order.config, "rung": in_order.rung}}


def short(name):
    base, _, deterministic = name.partition(" ")
    return base[:6] + " =" if deterministic else base[:8]


def summary(rows, gemm):
    def over(name, chosen):
        return [row[name] for row in chosen if row[name]]
    grid = [row for row in rows if row["case"].split()[0] in GRID and not row["case"].endswith(" 8192")]
    return {
        "points": len(grid),
        "geomean_over_best_peer": forward.geomean(over("over_best_peer", grid)), "worst_over_best_peer": min(
            over("over_best_peer", grid), default=math.nan), "geomean_over_deterministic_peer": forward.geomean(
                over("over_deterministic_peer", rows)), "gemm_8192_tflops": gemm}


def join(files):
    """Returns one result of several: the newest row per case with its run's date, other fields of the last run."""
    results = [json.loads(Path(name).read_text()) for name in files]
    rows = {row["case"]: {"date": result["date"], **row} for result in results for row in result["rows"]}
    rows = [rows[case.name] for case in all_cases() if case.name in rows]
    newest = results[-1]
    return {**newest, "command": timing.command(), "summary": summary(rows, newest["summary"]["gemm_8192_tflops"]),
            "failures": [failure for result in results for failure in result["failures"]], "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", action="store_true")
    parser.add_argument("--store", default=None)
    parser.add_argument("--only", default="", help="substrings of cases' names, separated by commas")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--out", default=None)
    parser.add_argument("--join", nargs="+", default=(), help="files of results, older ones first; nothing is timed")
    arguments = parser.parse_args()
    if arguments.join:
        timing.write_result(arguments.out, join(arguments.join))
        return
    chosen = [case for case in all_cases() if any(part in case.name for part in arguments.only.split(","))]
    if arguments.problems:
        print("\n".join(problem_of(case, more) for case in chosen for more in ("", ",deterministic=1")))
        return
    asked = [name for name in arguments.peers.split(",") if name]
    missing = peers.missing([name.split()[0] for name in asked])
    arguments.peers = [name for name in asked if name.split()[0] not in missing]
    torch.manual_seed(1)
    rng = random.Random(1)
    context = attune.Context(target="cuda", store=arguments.store)
    facts = {
        "schema": "attune.bench.backward.2", "command": timing.command(), **timing.facts(), "attune": attune.version(),
        "peers": peers.versions([name for name in arguments.peers if " " not in name]), "missing_peers": missing}
    gemm, rows, failures = [timing.gemm_tflops()], [], []
    names = ["attune", "attune deterministic", *arguments.peers]
    print(f"{'TFLOP/s':32s} {' '.join(f'{short(name):>8s}' for name in names)}   attune / best peer")
    for case in chosen:
        row = run_case(case, context, arguments, rng, failures)
        rows.append(row)
        speeds = " ".join(f"{row['tflops'].get(name, math.nan):8.1f}" for name in names)
        print(
            f"{case.name:32s} {speeds}   x{row['over_best_peer'] or math.nan:.3f}  {row['plan']['template']} "
            f"{row['plan']['rung']}",
            flush=True)
        if arguments.out:
            timing.write_result(arguments.out,
                                {**facts, "summary": summary(rows, gemm), "failures": failures, "rows": rows})
        torch.cuda.empty_cache()
    gemm.append(timing.gemm_tflops())
    if arguments.out:
        timing.write_result(arguments.out,
                            {**facts, "summary": summary(rows, gemm), "failures": failures, "rows": rows})
    print(json.dumps(summary(rows, gemm)))


if __name__ == "__main__":
    main()
