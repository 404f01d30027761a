# SPDX-License-Identifier: Apache-2.0
"""Times what two tuned stores choose for the same problems, interleaved in one process: how repeatable a tune is, or how far `normal`
stays behind `exhaustive`.

    python3 tests/bench/compare_stores.py --first A/store.db --second B/store.db --out FILE --problem dtype=bf16,... [--problem ...]

Prints first / second per problem (above 1: the second store's kernel is faster); equal configs are timed too: that is the noise.
"""
import argparse
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parent))
import attune  # noqa: E402
import timing  # noqa: E402

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
    samplers = {name: timing.graph_sampler(plan.launcher(*operands, stream=timing.stream().cuda_stream), arguments.sample_us)
                for name, plan in plans.items()}
    timings = timing.interleaved_us(samplers, arguments.rounds, rng)
    return {"problem": text, "timings": timings, "first_over_second": timings["first"]["median_us"] / timings["second"]["median_us"],
            "configs": {name: plan.config for name, plan in plans.items()}, "rungs": {name: plan.rung for name, plan in plans.items()},
            "same_config": plans["first"].config == plans["second"].config}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", required=True)
    parser.add_argument("--second", required=True)
    parser.add_argument("--problem", action="append", required=True)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--out", required=True)
    arguments = parser.parse_args()
    rng = random.Random(1)
    contexts = {"first": attune.Context("cuda", store=arguments.first), "second": attune.Context("cuda", store=arguments.second)}
    rows = []
    for text in arguments.problem:
        rows.append(compare(contexts, text, arguments, rng))
        print(f"{rows[-1]['first_over_second']:.4f} {'same config' if rows[-1]['same_config'] else 'other config'}  {text}", flush=True)
    result = {"schema": "attune.bench.compare_stores.1", "command": timing.command(), **timing.facts(), "attune": attune.version(), "rows": rows}
    timing.write_result(arguments.out, result)


if __name__ == "__main__":
    main()
