# SPDX-License-Identifier: Apache-2.0
"""Times attention over one sequence on several GPUs of one host: attune.distributed, PyTorch's context_parallel, as a
share of N times one GPU.

    python3 tests/bench/cuda/group.py --world 2 --out OUT/group.json [--store FILE] [--budget-s 480] [--parts ...]

Each part runs in processes of its own: a part that fails or hangs is recorded, and the rest goes on. The result is
written after each part. Times are medians of the slowest rank, in ms. NVLink multicast stays off."""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1", NVSHMEM_DISABLE_NVLS="1")
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

HEAD_DIM, MARK = 128, "GROUP-RESULT "
# name: (kind, seqlen, heads of q, heads of k and v, seconds that the part may take)
PARTS = {
    "check": ("check", 4096, 8, 2, 240), "64k": ("attune", 65536, 32, 8, 120), "16k": ("attune", 16384, 32, 8, 90),
    "64k, 32/32": ("attune", 65536, 32, 32, 120), "decode": ("decode", 131072, 32, 8, 120),
    "invariant 16k": ("invariant", 16384, 32, 8, 90), "invariant 64k": ("invariant", 65536, 32, 8, 120),
    "torch 16k": ("torch", 16384, 32, 8, 90),
    "torch 64k": ("torch", 65536, 32, 8, 120)}


LARGEST_ERROR = 2e-2  # of the part "check", over the largest value: bf16


# ---- One part, on each rank ----


def timed(run, samples):
    """Returns the median over samples of the slowest rank's time, in ms."""
    import torch
    import torch.distributed as dist
    found = []
    for sample in range(samples + 2):
        dist.barrier()
        torch.cuda.synchronize()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        slowest = torch.tensor([start.elapsed_time(end)], device="cuda")
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if sample >= 2:
            found.append(slowest.item())
    return statistics.median(found)


def host_us(run):
    """Returns the median host time of a call that only enqueues, in us."""
    import torch
    found = []
    for _ in range(12):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(found)


def draw(seqlen, heads, seed):
    import torch
    generator = torch.Generator(device="cuda").manual_seed(seed)
    return torch.randn(1, seqlen, heads, HEAD_DIM, device="cuda", dtype=torch.bfloat16, generator=generator)


def operands(seqlen, heads, kv_heads):
    """Returns q, k, v and dout of the whole, alike on all ranks."""
    return [draw(seqlen, number, seed) for seed, number in enumerate((heads, kv_heads, kv_heads, heads))]


def difference(found, wanted):
    """Returns the largest difference of any rank, over the largest value."""
    import torch
    import torch.distributed as dist
    pair = torch.stack([(found.float() - wanted.float()).abs().max(), wanted.float().abs().max()])
    dist.all_reduce(pair, dist.ReduceOp.MAX)
    return (pair[0] / pair[1]).item()


def gradients(run, inputs, dout):
    """Returns o, and a function that computes the gradients again."""
    import torch
    o = run(*inputs)
    return o, lambda: torch.autograd.grad(o, inputs, dout, retain_graph=True)


def attune_part(seqlen, heads, kv_heads):
    """Yields pairs of a name and a value; the names are those of the result."""
    import torch
    import torch.distributed as dist

    import attune
    import attune.distributed as ad
    samples, world = (5 if seqlen > 20000 else 15), dist.get_world_size()
    *whole, dout = operands(seqlen, heads, kv_heads)
    alone = lambda q, k, v: attune.attention(q, k, v, mask="causal")
    with torch.no_grad():
        yield "one_forward_ms", timed(lambda: alone(*whole), samples)
        reference = alone(*whole)
    leaves = [x.detach().requires_grad_() for x in whole]
    o, again = gradients(alone, leaves, dout)
    yield "one_backward_ms", timed(again, samples)
    wanted = again()
    del o, again, leaves
    group = ad.Group()
    layout = group.layout(seqlen, mask="causal")
    mine, my_dout = [layout.shard(x) for x in whole], layout.shard(dout)
    my_wanted = [layout.shard(x) for x in (reference, *wanted)]
    del whole, reference, wanted, dout
    torch.cuda.empty_cache()
    for algorithm in ("gather", "exchange"):
        run = lambda q, k, v: ad.attention(q, k, v, group=group, layout=layout, mask="causal", algorithm=algorithm)
        with torch.no_grad():
            yield f"{algorithm}_forward_ms", timed(lambda: run(*mine), samples)
            yield f"{algorithm}_forward_host_us", host_us(lambda: run(*mine))
            yield f"{algorithm}_forward_error", difference(run(*mine), my_wanted[0])
        leaves = [x.detach().requires_grad_() for x in mine]
        o, again = gradients(run, leaves, my_dout)
        yield f"{algorithm}_backward_ms", timed(again, samples)
        yield f"{algorithm}_backward_error", max(difference(x, y) for x, y in zip(again(), my_wanted[1:]))
        del o, again, leaves
    yield from transfers_alone(group, layout, mine, samples)
    yield "peak_memory_gb", torch.cuda.max_memory_allocated() / 1e9
    yield "world", world


def transfers_alone(group, layout, mine, samples):
    """Times what attune.distributed gathers, and NCCL's own all-gather of the same shards."""
    import torch
    import torch.distributed as dist

    from attune.distributed import run as steps
    q, k, v = mine
    attention = sys.modules["attune.distributed.attention"]
    with torch.no_grad():
        call, *_ = attention._run_of(q, k, v, group, layout, "gather", False, {"mask": "causal"})
        received = call.plan.forward.received
        yield "gather_received_mb", max(received) / 1e6
        yield "gather_alone_ms", timed(lambda: steps._with_keys(call, call.plan.forward, k, v), samples)
        outs = [x.new_empty((group.world * x.shape[1], *x.shape[2:])) for x in (k, v)]
        whole = lambda: [dist.all_gather_into_tensor(out, x[0]) for out, x in zip(outs, (k, v))]
        if len(set(layout.lengths)) == 1:
            yield "nccl_all_gather_ms", timed(whole, samples)


def torch_part(seqlen, heads, kv_heads):
    """context_parallel over cuDNN, with heads of k repeated, which its ring needs."""
    import torch
    import torch.distributed as dist
    import torch.nn.functional as F
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import context_parallel
    from torch.distributed.tensor.experimental._attention import set_rotate_method
    from torch.nn.attention import SDPBackend, sdpa_kernel
    samples = 5 if seqlen > 20000 else 15
    mesh = init_device_mesh("cuda", (dist.get_world_size(),), mesh_dim_names=("cp",))
    for rotation in ("allgather", "alltoall"):
        set_rotate_method(rotation)
        q, k, v, _ = operands(seqlen, heads, kv_heads)
        k, v = (x.repeat_interleave(heads // kv_heads, 2) for x in (k, v))
        q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
        spread = context_parallel(mesh, buffers=(q, k, v), buffer_seq_dims=(2, 2, 2), no_restore_buffers={q, k, v})
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION), spread:
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            run = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
            yield f"torch_{rotation}_forward_ms", timed(lambda: run(*leaves), samples)
            o = run(*leaves)
            dout = torch.randn_like(o)
            yield f"torch_{rotation}_backward_ms", timed(
                lambda: torch.autograd.grad(o, leaves, dout, retain_graph=True), samples)
            del o, dout, leaves
        del q, k, v
        torch.cuda.empty_cache()


def check_part(seqlen, heads, kv_heads):
    """Errors over the largest value, against one GPU in fp32 terms, for cases that the timed parts lack."""
    import torch
    import torch.distributed as dist

    import attune
    import attune.distributed as ad
    group = ad.Group()
    *whole, dout = operands(seqlen, heads, kv_heads)
    cases = {
        "no mask": {}, "window": {"window": (300, 50)}, "causal window": {"mask": "causal", "window": (700, None)},
        "odd length": {"mask": "causal"}, "sinks": {"mask": "causal", "sinks": torch.ones(heads, device="cuda")},
        "documents": {"mask": "causal", "documents": (0, 100, 2500, 2501, seqlen)}}
    for name, choices in cases.items():
        length = seqlen - 37 if name == "odd length" else seqlen
        cut = [x[:, :length] for x in (*whole, dout)]
        documents = choices.pop("documents", None)
        kwargs = {} if documents is None else {"documents": torch.bucketize(
            torch.arange(length, device="cuda"), torch.tensor(documents[1:], device="cuda"), right=True).int()[None]}
        one = [x.detach().contiguous().requires_grad_() for x in cut[:3]]
        wanted, again = gradients(lambda *x: attune.attention(*x, **choices, **kwargs), one, cut[3])
        wanted = [wanted.detach(), *again()]
        for kind in ("contiguous", "zigzag", "auto"):
            for algorithm in ("gather", "exchange"):
                layout = group.layout(length, mask=choices.get("mask"), window=choices.get("window"),
                                      documents=documents, kind=kind)
                mine = [layout.shard(x.detach()).requires_grad_() for x in one]
                o, again = gradients(lambda *x: ad.attention(*x, group=group, layout=layout, algorithm=algorithm,
                                                             **choices), mine, layout.shard(cut[3]))
                found = [o.detach(), *again()]
                yield f"{name}, {kind}, {algorithm}", max(
                    difference(x, layout.shard(y)) for x, y in zip(found, wanted))
    layout = group.layout(seqlen, mask="causal")
    import group_decode
    yield from group_decode.checks(difference, heads, kv_heads)
    yield "verify", ad.verify(*(layout.shard(x) for x in whole), group=group, layout=layout, mask="causal")
    yield "world", dist.get_world_size()


def decode_part(seqlen, heads, kv_heads):
    import group_decode
    yield from group_decode.times(timed, host_us, difference, seqlen, heads, kv_heads)


def invariant_part(seqlen, heads, kv_heads):
    import group_invariant
    *whole, dout = operands(seqlen, heads, kv_heads)
    yield from group_invariant.times(timed, gradients, seqlen, whole, dout)


def run_part(name, rank, world, port):
    """Runs a part on this rank. Rank 0 prints each value as soon as it is known."""
    import datetime

    import torch
    import torch.distributed as dist
    kind, seqlen, heads, kv_heads, limit = PARTS[name]
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=limit), device_id=torch.device("cuda", rank))
    part = {"attune": attune_part, "torch": torch_part, "check": check_part, "decode": decode_part,
            "invariant": invariant_part}[kind]
    for key, value in part(seqlen, heads, kv_heads):
        if dist.get_rank() == 0:
            print(MARK + json.dumps([key, value]), flush=True)
    if dist.get_rank() == 0:
        print(MARK + json.dumps(["complete", True]), flush=True)
    dist.barrier()
    dist.destroy_process_group()


# ---- All parts, in processes of their own ----


def wait_for(ranks, limit):
    """Returns how the ranks ended. Ends all of them when one failed, or after `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        codes = [rank.poll() for rank in ranks]
        if all(code == 0 for code in codes):
            return "all done"
        if any(codes):
            end = min(end, time.monotonic() + 5)  # the others may say more
        if None not in codes:
            break
        time.sleep(0.2)
    codes = [rank.poll() for rank in ranks]
    for rank in ranks:
        if rank.poll() is None:
            os.killpg(rank.pid, signal.SIGKILL)
        rank.wait()
    return f"after {limit:.0f} s at most, ranks had status {codes} (None: still running)"


def start_part(name, world, limit, port):
    """Runs a part on `world` processes. Returns its values, with "failure" and the end of the output if it did not
    complete."""
    with tempfile.TemporaryDirectory() as folder:
        logs, ranks = [Path(folder) / f"{rank}.log" for rank in range(world)], []
        for rank, log in enumerate(logs):
            command = [sys.executable, __file__, "--part", name, "--rank", str(rank), "--world", str(world), "--port",
                       str(port)]
            with log.open("w") as output:
                ranks.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True))
        ended = wait_for(ranks, limit)
        texts = [log.read_text(errors="replace") for log in logs]
    lines = [line for line in texts[0].splitlines() if line.startswith(MARK)]
    values = dict(json.loads(line[len(MARK):]) for line in lines)
    if not values.pop("complete", False):
        rest = ["\n".join(line for line in text.splitlines() if not line.startswith(MARK))[-1200:] for text in texts]
        values["failure"] = f"{ended}: " + "\n".join(f"rank {rank}: {text}" for rank, text in enumerate(rest))
    elif name == "check":
        wrong = [case for case, error in values.items() if case != "world" and not error <= LARGEST_ERROR]
        if wrong:
            values["failure"] = f"errors above {LARGEST_ERROR}: {', '.join(wrong)}"
    return values


def add_shares(parts, world):
    """Adds shares of N times one GPU, with the one GPU of the part of the same length and heads of q."""
    for name, values in parts.items():
        one = values if "one_forward_ms" in values else parts.get(name.removeprefix("torch "), {})
        for key in [key for key in values if key.endswith("ward_ms") and not key.startswith("one_")]:
            alone = one.get("one_" + ("forward" if "forward" in key else "backward") + "_ms")
            if alone and values[key]:
                values[key[:-3] + "_share"] = alone / world / values[key]


def facts(world):
    """Returns the facts of the result; fewer if they cannot be had."""
    found = {"gpus": world, "head_dim": HEAD_DIM, "dtype": "bf16", "mask": "causal", "layout": "zigzag"}
    try:
        import publish
        import timing
        import torch
        found |= {"commit": publish.commit(), **timing.facts(), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    except Exception as error:  # the times are worth more than the facts
        found["facts"] = f"{type(error).__name__}: {error}"
    return found


def write(path, result):
    if path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(result, indent=1) + "\n")


def table(parts):
    for name, values in parts.items():
        print(f"\n{name}")
        for key, value in values.items():
            if key != "failure":
                print(f"  {key:34} {value:.4g}" if isinstance(value, (int, float)) else f"  {key:34} {value}")
        if "failure" in values:
            print("  FAILED", values["failure"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=int, default=2, help="how many GPUs")
    parser.add_argument("--out", help="file for the result as JSON")
    parser.add_argument("--store", help="a store with tuned kernels; by default none: default configs")
    parser.add_argument("--budget-s", type=float, default=480, help="seconds for all parts together")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--part", choices=PARTS, help="one part on one rank; the parent gives these three")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.part:
        run_part(given.part, given.rank, given.world, given.port)
        return 0
    import torch
    if torch.cuda.device_count() < given.world:
        print(f"SKIP: {torch.cuda.device_count()} GPUs here; --world is {given.world}")
        return 77
    started, parts = time.monotonic(), {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ATTUNE_STORE"] = str(Path(given.store).resolve()) if given.store else f"{folder}/store.db"
        for number, name in enumerate(given.parts):
            left = given.budget_s - (time.monotonic() - started)
            if left < 20:
                parts[name] = {"failure": "not begun: the budget is used up"}
                continue
            begun = time.monotonic()
            parts[name] = start_part(name, given.world, min(left, PARTS[name][4]), 29540 + number)
            parts[name]["wall_s"] = time.monotonic() - begun
            add_shares(parts, given.world)
            table({name: parts[name]})
            sys.stdout.flush()
            write(given.out, {"gpus": given.world, "parts": parts})
    write(given.out, {**facts(given.world), "parts": parts})
    return 1 if any("failure" in values for values in parts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
