# SPDX-License-Identifier: Apache-2.0
"""Times the CPU target's scores, masks and dropout against plain attention: same q, k and v, default configs, one
process, interleaved.

    python3 tests/bench/cpu/cpu_scores.py --out OUT/cpu_scores.json [--threads 1] [--dtype fp32] [--only d64]

Prints microseconds and the share of plain attention's speed, counted over visible elements if the feature hides some.
Documents are also compared with plain attention over one batch entry per document, whose small triangles are the same
work.
"""
import argparse
import datetime
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import cpu_sdpa  # noqa: E402
import timing  # noqa: E402

HEADS, DOCUMENTS, WINDOW = 8, 4, 256


def features(seqlen):
    """Returns (name, keywords of attention(), visible elements of a causal head, or None for all) per feature."""
    document = seqlen // DOCUMENTS
    ids = (torch.arange(seqlen) // document).to(torch.int32)[None]
    windowed = WINDOW * (WINDOW + 1) // 2 + (seqlen - WINDOW) * WINDOW
    yield "softcap", {"softcap": 50.0}, None
    yield "alibi", {"alibi_slopes": torch.tensor(attune.alibi_slopes(HEADS), dtype=torch.float32)}, None
    yield "sinks", {"sinks": torch.randn(HEADS)}, None
    yield "relative_bias", {"relative_bias": torch.randn(HEADS, 2 * seqlen - 1)}, None
    yield "bias", {"bias": torch.randn(1, HEADS, seqlen, seqlen)}, None
    yield "bias bf16", {"bias": torch.randn(1, HEADS, seqlen, seqlen).to(torch.bfloat16)}, None
    yield "mask_tensor", {"mask_tensor": torch.rand(1, HEADS, seqlen, seqlen) < 0.9}, None
    yield "documents", {"documents": ids}, DOCUMENTS * document * (document + 1) // 2
    yield "dropout", {"dropout_p": 0.1, "seed": 1}, None
    yield "window", {"window": (WINDOW - 1, 0)}, windowed


def run_case(context, dtype, head_dim, seqlen, arguments, rng):
    q, k, v = (torch.randn(1, seqlen, HEADS, head_dim).to(cpu_sdpa.DTYPES[dtype]) for _ in range(3))
    o = torch.empty_like(q)
    visible = {"plain": 1.0}
    runners = {"plain": lambda: attune.attention(q, k, v, is_causal=True, out=o, context=context)}
    for name, given, elements in features(seqlen):
        visible[name] = elements / (seqlen * (seqlen + 1) / 2) if elements else 1.0
        runners[name] = lambda given=given: attune.attention(q, k, v, is_causal=True, out=o, context=context, **given)
    entries = [x.view(DOCUMENTS, seqlen // DOCUMENTS, HEADS, head_dim) for x in (q, k, v, o)]
    runners["batch"] = lambda: attune.attention(*entries[:3], is_causal=True, out=entries[3], context=context)
    timings = timing.interleaved_us(
        {name: timing.host_sampler(run, arguments.sample_us)
         for name, run in runners.items()}, arguments.rounds, rng)
    plain = timings["plain"]["median_us"]
    return {
        "case": f"{dtype} d{head_dim} causal {seqlen}", "timings": timings, "share_of_plain": {
            name: plain * visible[name] / row["median_us"]
            for name, row in timings.items() if name in visible and name != "plain"},
        "documents_of_batch": timings["batch"]["median_us"] / timings["documents"]["median_us"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="", choices=["", *sorted(cpu_sdpa.DTYPES)])
    parser.add_argument("--only", default="", help="substring of the case's name")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--sample-us", type=float, default=30000)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    rng = random.Random(1)
    torch.manual_seed(1)
    context = attune.Context(f"cpu:{arguments.threads}", store="")
    rows = []
    for dtype in [arguments.dtype] if arguments.dtype else ["fp32", "bf16"]:
        for head_dim in (64, 128):
            if arguments.only not in f"{dtype} d{head_dim}":
                continue
            rows.append(row := run_case(context, dtype, head_dim, 1024, arguments, rng))
            print(row["case"], " ".join(f"{name} {share:.2f}" for name, share in row["share_of_plain"].items()),
                  f"documents {row['documents_of_batch']:.2f} of as many batch entries", flush=True)
    lowest = min(share for row in rows for share in row["share_of_plain"].values())
    print(f"lowest share {lowest:.3f}")
    if arguments.out:
        timing.write_result(
            arguments.out, {
                "schema": "attune.bench.cpu_scores.1", "command": timing.command(), "processor": cpu_sdpa.processor(),
                "threads": arguments.threads, "torch": torch.__version__, "attune": attune.version(), "rows": rows,
                "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")})


if __name__ == "__main__":
    main()
