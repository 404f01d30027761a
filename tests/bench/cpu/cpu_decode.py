# SPDX-License-Identifier: Apache-2.0
"""Times op attention_kvcache on the CPU target (default configs) beside a copy of as many bytes as the cache has: one
process, interleaved.

    python3 tests/bench/cpu/cpu_decode.py --out OUT/cpu_decode.json [--threads 1,2] [--dtype bf16] [--page-size 16]
        [--rounds 100]

Prints GB/s of K and V that are read, and of what the copy reads and writes, each of its fastest round, and the share of
the one in the other. Outputs are compared with PyTorch's before anything is timed. Caches are larger than the last
level of any cache of a common CPU.
"""
import argparse
import datetime
import os
import random
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # PyTorch's idle threads must not spin while attune is timed

import torch  # noqa: E402
import torch.nn.functional as functional  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import attune  # noqa: E402
import timing  # noqa: E402
from cpu_sdpa import DTYPES, TOLERANCE, processor  # noqa: E402

BATCH, HEADS, HEADS_KV, HEAD_DIM = 4, 32, 8, 128
LENGTHS = {"fp32": 4096, "bf16": 8192, "fp16": 8192}  # 134 MB of K and V


def torch_runner(q, k, v):
    """Returns a callable that returns attention over slots, as [batch, 1, heads, head_dim]."""
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    return lambda: functional.scaled_dot_product_attention(*heads_first, enable_gqa=True).transpose(1, 2)


def paged(k, v, page_size):
    """Returns k, v and the keywords of attention_kvcache() for the same keys on pages in random order."""
    batch, length, heads_kv, head_dim = k.shape
    pages = batch * length // page_size
    order = torch.randperm(pages)
    places = torch.argsort(order).to(torch.int32).view(batch, -1)
    k, v = (x.view(pages, page_size, heads_kv, head_dim)[order] for x in (k, v))
    return k, v, {"page_table": places, "kv_lengths": torch.full((batch,), length, dtype=torch.int32)}


def make_case(context, dtype, page_size, length):
    """The call, and the tensors of the copy."""
    shape = (BATCH, length, HEADS_KV, HEAD_DIM)
    k, v = (torch.randn(shape).to(DTYPES[dtype]) for _ in range(2))
    q = torch.randn(BATCH, 1, HEADS, HEAD_DIM).to(DTYPES[dtype])
    want = torch_runner(q, k, v)()
    keywords = {}
    if page_size:
        k, v, keywords = paged(k, v, page_size)
    o = torch.empty_like(q)

    def run():
        attune.attention_kvcache(q, k, v, out=o, context=context, **keywords)

    run()
    distance = (o.float() - want.float()).abs().max().item()
    if not distance < TOLERANCE[dtype]:
        raise SystemExit(f"{dtype}, pages of {page_size}: attune and PyTorch differ by {distance:.3g}")
    source, to = k.flatten(), torch.empty_like(k.flatten())
    return {"decode": run, "copy": lambda: to.copy_(source)}, 2 * k.nbytes


def run_case(context, dtype, page_size, arguments, rng):
    runners, nbytes = make_case(context, dtype, page_size, LENGTHS[dtype] // arguments.shorten)
    least = {name: float("inf") for name in runners}
    for _ in range(arguments.rounds):
        for name in rng.sample(sorted(runners), len(runners)):
            start = time.perf_counter()
            runners[name]()
            least[name] = min(least[name], time.perf_counter() - start)
    rates = {name: nbytes / seconds / 1e9
             for name, seconds in least.items()}  # the copy reads K's bytes and writes as many
    return {
        "dtype": dtype, "page_size": page_size,
        "seqlen_kv": LENGTHS[dtype] // arguments.shorten, "bytes": nbytes, "least_us": {
            name: seconds * 1e6
            for name, seconds in least.items()}, "gb_per_s": rates, "share_of_copy": rates["decode"] / rates["copy"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{len(os.sched_getaffinity(0))}")
    parser.add_argument("--dtype", default="", choices=["", *sorted(DTYPES)])
    parser.add_argument("--page-size", type=int, default=None,
                        help="0: slots; slots and pages of 16 if it is not given")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--shorten", type=int, default=1, help="divides the length of requests, for a try")
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    rng = random.Random(1)
    torch.manual_seed(1)
    rows = []
    for threads in sorted({int(count) for count in arguments.threads.split(",")}):
        torch.set_num_threads(threads)
        context = attune.Context(f"cpu:{threads}", store="")
        for dtype in [arguments.dtype] if arguments.dtype else ["fp32", "bf16"]:
            for page_size in (0, 16) if arguments.page_size is None else (arguments.page_size,):
                rows.append(row := {"threads": threads, **run_case(context, dtype, page_size, arguments, rng)})
                print(
                    f"{threads} threads, {dtype}, {f'pages of {page_size}' if page_size else 'slots'}: decode "
                    f"{row['gb_per_s']['decode']:.1f} GB/s, "
                    f"copy {row['gb_per_s']['copy']:.1f}, share {row['share_of_copy']:.2f}", flush=True)
    print(f"lowest share {min(row['share_of_copy'] for row in rows):.3f}")
    if arguments.out:
        timing.write_result(
            arguments.out, {
                "schema": "attune.bench.cpu_decode.1", "command": timing.command(), "processor": processor(),
                "batch": BATCH, "heads": [HEADS, HEADS_KV], "head_dim": HEAD_DIM, "torch": torch.__version__,
                "attune": attune.version(), "rows": rows, "date": datetime.datetime.now(
                    datetime.timezone.utc).isoformat(timespec="seconds")})


if __name__ == "__main__":
    main()
