# SPDX-License-Identifier: Apache-2.0
"""Times attune's gradients on the CPU (defaults, or winners of --store) against the backward of PyTorch's SDPA: same
tensors, same number of threads, one process, interleaved in random order.

    python3 tests/bench/cpu/cpu_backward.py --out OUT/cpu_backward.json [--store FILE] [--threads 1,2] [--only
        "d64 causal"]

Prints milliseconds and the ratio to PyTorch, from the fastest round of each. Gradients are compared before anything is
timed.
"""
import argparse
import datetime
import json
import os
import random
import sys
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # PyTorch's idle threads must not spin while attune is timed

import torch  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import timing  # noqa: E402
from cpu_sdpa import DTYPES, TOLERANCE, cases, geomean, processor, tensors, torch_attention  # noqa: E402


def torch_runner(case, q, k, v, dout):
    """Returns a callable that returns gradients as [batch, heads, seqlen, head_dim]."""
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    o = torch_attention(case, *leaves)
    return lambda: torch.autograd.grad(o, leaves, dout, retain_graph=True)


def attune_runner(context, case, q, k, v, dout):
    """Returns a callable that returns gradients as [batch, seqlen, heads, head_dim]."""
    mask = "causal_bottom_right" if case["causal"] else "none"
    ours = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    o, lse = attune.attention(*ours, mask=mask, return_lse=True, context=context)
    return lambda: attune.attention_backward(dout.transpose(1, 2), *ours, o, lse, mask=mask, context=context)


def run_case(case, context, arguments, rng):
    q, k, v = tensors(case, arguments.dtype)
    dout = torch.randn_like(q)
    run_torch, run_attune = torch_runner(case, q, k, v, dout), attune_runner(context, case, q, k, v, dout)
    for name, found, wanted in zip("qkv", run_attune(), run_torch()):
        distance = (found.transpose(1, 2).float() -
                    wanted.float()).abs().max().item() / wanted.float().abs().max().item()
        if not distance < 10 * TOLERANCE[arguments.dtype]:
            raise SystemExit(
                f"{case['name']}: d{name} of attune and of PyTorch differ by {distance:.3g} of its largest element")
    runners = {"torch": run_torch, "attune": run_attune}
    samplers = {name: timing.host_sampler(run, arguments.sample_us) for name, run in runners.items()}
    best = {name: float("inf") for name in samplers}
    for _ in range(arguments.rounds):
        for name in rng.sample(sorted(samplers), len(samplers)):
            best[name] = min(best[name], samplers[name]())
    plan = context.plan("op=attention_backward," + case["problem"])
    return {"case": case["name"], "problem": "op=attention_backward," + case["problem"], "least_us": best,
            "over_torch": best["torch"] / best["attune"],
            "plan": {"template": plan.kernel_template, "config": plan.config, "rung": plan.rung}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--dtype", default="fp32", choices=sorted(DTYPES))
    parser.add_argument("--only", default="", help="substring of the case's name")
    parser.add_argument("--store", default="")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sample-us", type=float, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    torch.manual_seed(arguments.seed)
    results = []
    for threads in sorted({int(count) for count in arguments.threads.split(",")}):
        torch.set_num_threads(threads)
        context = attune.Context(f"cpu:{threads}", store=arguments.store)
        rows = []
        for case in cases(arguments.dtype):
            if arguments.only not in case["name"]:
                continue
            rows.append(row := run_case(case, context, arguments, rng))
            print(
                f"{threads} threads {row['case']:18s} torch {row['least_us']['torch'] / 1e3:8.2f} ms, attune "
                f"{row['least_us']['attune'] / 1e3:8.2f} ms, {row['over_torch']:.3f} x  {row['plan']['config']}",
                flush=True)
        ratios = [row["over_torch"] for row in rows]
        summary = {"geomean_over_torch": geomean(ratios), "worst_over_torch": min(ratios)}
        print(json.dumps(summary))
        results.append({"threads": threads, "summary": summary, "rows": rows})
    if arguments.out:
        timing.write_result(
            arguments.out, {
                "schema": "attune.bench.cpu_backward.1", "command": " ".join(sys.argv), "processor": processor(),
                "torch": torch.__version__, "attune": attune.version(), "dtype": arguments.dtype, "results": results,
                "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")})


if __name__ == "__main__":
    main()
