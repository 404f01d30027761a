# SPDX-License-Identifier: Apache-2.0
"""Times attention with and without dropout, forward and backward, on attune and on PyTorch's flash kernels.

    python3 tests/bench/cuda/dropout.py --problems               problems for attune tune, one a line
    python3 tests/bench/cuda/dropout.py --store FILE --out OUT/dropout.json

Every runner is a captured graph. All runners of a case are interleaved in one process. "share" is the time without
dropout over the time with dropout.
"""
import argparse
import json
import random
import sys
from pathlib import Path

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import timing  # noqa: E402

CASES = [
    (d, causal, 4, 4096, 16) for d in (64, 128) for causal in (False, True)]  # head dim, mask, batch, length, heads


def problem(d, causal, batch, length, heads, dropout, backward):
    return (
        f"{'op=attention_backward,' if backward else ''}dtype=bf16,head_dim={d},heads={heads},batch={batch},"
        f"seqlen={length},"
        f"mask={'causal_bottom_right' if causal else 'none'}" + (f",dropout={dropout}" if dropout else ""))


def runners(case, dropout, context):
    """Returns forward and backward runners by name. Seeds are fixed, since they do not change the time."""
    d, causal, batch, length, heads = case
    q, k, v, dout = (torch.randn(batch, length, heads, d, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    given = dict(mask="causal_bottom_right" if causal else "none", context=context)
    made = {}
    for name, p in (("without", 0.0), ("with", dropout)):
        drops = dict(given, dropout_p=p, seed=3, offset=0) if p else given
        out = torch.empty_like(q)
        attune.prepare(attune.attention, q, k, v, out=out, return_lse=True, **drops)
        made["forward", "attune",
             name] = lambda drops=drops, out=out: attune.attention(q, k, v, out=out, return_lse=True, **drops)
        o, lse = attune.attention(q, k, v, return_lse=True, **drops)
        made["backward", "attune",
             name] = lambda drops=drops, o=o, lse=lse: attune.attention_backward(dout, q, k, v, o, lse, **drops)
        flat = [x.transpose(1, 2).detach().requires_grad_() for x in (q, k, v)]

        def sdpa(p=p, flat=flat):
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(*flat, is_causal=causal, dropout_p=p)

        def forward(sdpa=sdpa):
            with torch.no_grad():
                return sdpa()

        made["forward", "flash2", name] = forward
        with torch.cuda.stream(timing.stream()):
            result = sdpa()
        torch.cuda.synchronize()
        made["backward", "flash2", name] = lambda result=result, flat=flat: torch.autograd.grad(
            result, flat, dout.transpose(1, 2), retain_graph=True)
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", action="store_true")
    parser.add_argument("--store", default=None)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sample-us", type=float, default=3000)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    if arguments.problems:
        print("\n".join(
            problem(*case, p, backward) for case in CASES for backward in (False, True)
            for p in (0, arguments.dropout)))
        return
    torch.manual_seed(1)
    rng, rows = random.Random(1), []
    context = attune.Context(target="cuda", store=arguments.store or "")
    for case in CASES:
        samplers = {
            name: timing.graph_sampler(run, arguments.sample_us)
            for name, run in runners(case, arguments.dropout, context).items()}
        timings = timing.interleaved_us(samplers, arguments.rounds, rng)
        us = {name: row["median_us"] for name, row in timings.items()}
        for pass_name in ("forward", "backward"):
            share = {who: us[pass_name, who, "without"] / us[pass_name, who, "with"] for who in ("attune", "flash2")}
            rows.append({
                "pass": pass_name, "problem": problem(*case, arguments.dropout, pass_name == "backward"), "us": {
                    who: {kind: us[pass_name, who, kind]
                          for kind in ("without", "with")}
                    for who in share}, "share": share,
                "over_flash2_with_dropout": us[pass_name, "flash2", "with"] / us[pass_name, "attune", "with"]})
            print(
                f"{pass_name:8s} d{case[0]} {'causal' if case[1] else 'full':6s} " + "  ".join(
                    f"{who} {us[pass_name, who, 'without']:.0f} us, with dropout {us[pass_name, who, 'with']:.0f} "
                    f"({share[who]:.2f})"
                    for who in share), flush=True)
    if arguments.out:
        timing.write_result(arguments.out, {"command": timing.command(), **timing.facts(), "rows": rows})
    print(json.dumps({"lowest_share": min(row["share"]["attune"] for row in rows)}))


if __name__ == "__main__":
    main()
