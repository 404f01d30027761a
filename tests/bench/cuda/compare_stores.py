# SPDX-License-Identifier: Apache-2.0
"""Times the kernels that two tuned stores choose for the same problems, interleaved in one process. Shows how
repeatable a tune is, or how far `normal` stays behind `exhaustive`.

    python3 tests/bench/cuda/compare_stores.py --first A/store.db --second B/store.db --out FILE (--set SET | --problem
        dtype=bf16,... ...)

Prints per problem the median over rounds of first / second within a round; above 1 the second store's kernel is faster.
If both stores chose one config, the ratio only measures noise. The summary gives both groups.
"""
import argparse
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import cases  # noqa: E402
import timing  # noqa: E402

WARM_ROUNDS = 20  # two samples each, until clocks settle under sustained load
DTYPES = {0: torch.float32, 1: torch.bfloat16, 2: torch.float16}


def tensors(problem):
    def draw(seqlen, heads, width):
        return torch.randn(problem.batch, seqlen, heads, width, device="cuda", dtype=DTYPES[problem.dtype])
    q = draw(problem.seqlen_q, problem.num_heads_q, problem.head_dim_qk)
    k = draw(problem.seqlen_kv, problem.num_heads_kv, problem.head_dim_qk)
    v = draw(problem.seqlen_kv, problem.num_heads_kv, problem.head_dim_v)
    return q, k, v, draw(problem.seqlen_q, problem.num_heads_q, problem.head_dim_v)


def compare(contexts, text, arguments, rng):
    plans = {name: context.plan(text) for name, context in contexts.items()}
    operands = tensors(plans["first"].problem)
    torch.cuda.synchronize()
    samplers = {
        name: timing.graph_sampler(plan.launcher(*operands, stream=timing.stream().cuda_stream), arguments.sample_us)
        for name, plan in plans.items()}
    for _ in range(WARM_ROUNDS):
        for sample in samplers.values():
            sample()
    samples = timing.interleaved_samples(samplers, arguments.rounds, rng)
    return {
        "problem": text, "timings": timing.medians_us(samples), "first_over_second": timing.paired_ratio(
            samples["first"], samples["second"]), "configs": {name: plan.config
                                                              for name, plan in plans.items()},
        "rungs": {name: plan.rung
                  for name, plan in plans.items()}, "same_config": plans["first"].config == plans["second"].config}


def summary(rows):
    """Returns the largest distance from 1 among problems with different configs, and among the other problems."""
    def worst(same):
        return max((max(r["first_over_second"], 1 / r["first_over_second"]) - 1
                    for r in rows if r["same_config"] == same), default=0.0)

    return {
        "problems": len(rows), "same_config": sum(r["same_config"] for r in rows), "worst_other_config": worst(False),
        "worst_same_config": worst(True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", required=True)
    parser.add_argument("--second", required=True)
    parser.add_argument("--problem", action="append", default=[])
    parser.add_argument("--set", choices=sorted(cases.SETS), help="the problems of cases.py")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    rng = random.Random(1)
    contexts = {
        "first": attune.Context("cuda", store=arguments.first), "second": attune.Context(
            "cuda", store=arguments.second)}
    rows = []
    problems = arguments.problem + [case.problem for case in (cases.SETS[arguments.set]() if arguments.set else [])]
    if not problems:
        parser.error("give --problem or --set")
    for text in problems:
        rows.append(compare(contexts, text, arguments, rng))
        print(
            f"{rows[-1]['first_over_second']:.4f} {'same config' if rows[-1]['same_config'] else 'other config'}  "
            f"{text}",
            flush=True)
    totals = summary(rows)
    print(
        f"{totals['problems']} problems, {totals['same_config']} with one config; worst difference "
        f"{100 * totals['worst_other_config']:.2f} % "
        f"(copies of one kernel: {100 * totals['worst_same_config']:.2f} %)")
    result = {
        "schema": "attune.bench.compare_stores.2", "command": timing.command(),
        **timing.facts(), "attune": attune.version(), "summary": totals, "rows": rows}
    timing.write_result(arguments.out, result)


if __name__ == "__main__":
    main()
