#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the host cost of calls from Python: a prepared launcher, Plan.run(), attune.attention() (plain, causal, with
two features), attention_kvcache() and append_kv() of one token (pages and lengths on CUDA), with PyTorch also by
torch.ops and known signatures. "checked" is attention() on the Python path. Calls of the tensors' own library are timed
for comparison. On the CPU target the tensors are empty, so nothing is computed; on CUDA the problem is small.

    python3 tests/bench/host/python_overhead.py [--target cuda] [--library torch] [--out OUT/python_overhead.json]

On CUDA the bare driver's launch is timed too (driver_floor.py), and the cost of launcher, plan.run and attention above
it, round by round.

Columns are us per call: `loop` in bursts of 200, as in a model's forward; `idle` alone on an idle device (CUDA). Shows
the median and lowest of rounds in a process of their own. Fails if known calls do not run in the C module. Fails
without --unlimited if, with NumPy on the CPU, the lowest cost is more than LIMITS times a ctypes call without
arguments. Status 77 if the library or the target is missing."""
import argparse
import ctypes
import datetime
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import driver_floor

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "runtime" / "python"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import publish  # noqa: E402

LIMITS = {"launcher": 4, "plan.run": 30, "attention": 50, "attention, causal": 50, "attention, two features": 60}
CALLS = 200
OURS = (*LIMITS, "attention_kvcache", "append_kv")
LAUNCHING = ("launcher", "plan.run", "attention", "torch.ops")


class Numpy:
    def __init__(self, _):
        import numpy
        self.numpy, self.version = numpy, f"NumPy {numpy.__version__}"

    def tensor(self, *shape, dtype="float32"):
        return self.numpy.zeros(shape, dtype)

    def surfaces(self, attune, q, k, v):
        return {}

    def peers(self, q):
        return {"numpy.empty": lambda: self.numpy.empty(q.shape, q.dtype), "numpy.add": lambda: self.numpy.add(q, q, q)}

    def wait(self):
        pass


class Torch:
    def __init__(self, target):
        import torch
        if target == "cuda" and not torch.cuda.is_available():
            raise ImportError("there is no CUDA device here")
        self.torch, self.version, self.target = torch, f"PyTorch {torch.__version__}", target
        self.wait = torch.cuda.synchronize if target == "cuda" else lambda: None

    def tensor(self, *shape, dtype=None):
        default = "bfloat16" if self.target == "cuda" else "float32"
        return self.torch.zeros(shape, dtype=getattr(self.torch, dtype or default), device=self.target)

    def surfaces(self, attune, q, k, v):
        import attune.flash, attune.sdpa, attune.torch
        op, spec = self.torch.ops.attune.attention.default, attune.torch.spec(mask="causal")
        views = [x.transpose(1, 2) for x in (q, k, v)]
        compiled = self.torch.compile(lambda q, k, v: attune.attention(q, k, v, mask="causal"), fullgraph=True,
                                      backend="aot_eager")
        return {
            "torch.ops": lambda: op(q, k, v, spec=spec, return_lse=False),
            "torch.ops, with lse": lambda: op(q, k, v, spec=spec),
            "attune.sdpa": lambda: attune.sdpa.scaled_dot_product_attention(*views),
            "attune.flash": lambda: attune.flash.flash_attn_func(q, k, v, causal=True),
            "compiled (aot_eager)": lambda: compiled(q, k, v),
            **self.training("attune", attune.sdpa.scaled_dot_product_attention, q, k, v)}

    def training(self, label, sdpa, q, k, v):
        """Runs forward and backward of a call that autograd records; with dropout, draws a seed too."""
        views = [x.detach().transpose(1, 2).requires_grad_() for x in (q, k, v)]
        dout = self.torch.zeros_like(views[0])
        step = lambda rate: self.torch.autograd.grad(sdpa(*views, dropout_p=rate), views, dout)
        return {
            f"{label}.sdpa, forward and backward": lambda: step(0.0),
            f"{label}.sdpa, forward and backward, dropout": lambda: step(0.1)}

    def peers(self, q):
        sdpa, view, out = self.torch.nn.functional.scaled_dot_product_attention, q.transpose(
            1, 2), self.torch.empty_like(q)
        return {
            "torch.empty": lambda: self.torch.empty(q.shape, dtype=q.dtype, device=q.device),
            "torch.add": lambda: self.torch.add(q, q), "torch.add, out": lambda: self.torch.add(q, q, out=out),
            "torch.sdpa": lambda: sdpa(view, view, view), **self.training("torch", sdpa, q, q, q)}


def runners(arguments, library, attune):
    """Returns the timed calls by name."""
    batch, rows = (1, 128) if arguments.target == "cuda" else (0, 128)
    q, k, v, o = (library.tensor(batch, rows, 8, 64) for _ in range(4))
    lengths, slopes = library.tensor(batch, dtype="int32"), library.tensor(8, dtype="float32")
    try:
        context = attune.Context("cpu:1" if arguments.target == "cpu" else "cuda:0")
    except attune.Error as error:
        raise ImportError(f"no target: {error}") from error
    plan = context.plan(attune.problem_text(q, k, v), layout=(q, k, v, o))
    ctypes_call = ctypes.CDLL(os.environ["ATTUNE_LIBRARY"]).attune_abi_version
    return {
        "launcher": plan.launcher(
            q, k, v, o), "plan.run": lambda: plan.run(q, k, v, o), "attention": lambda: attune.attention(q, k, v),
        "attention, causal": lambda: attune.attention(q, k, v, mask="causal"),
        "attention, two features": lambda: attune.attention(q, k, v, key_lengths=lengths, alibi_slopes=slopes),
        "attention, out": lambda: attune.attention(q, k, v, out=o),
        "attention, a Context": lambda: attune.attention(q, k, v, context=context), **of_caches(
            arguments, library, attune, context), "checked": lambda: attune.ops.attention._checked(
                q, k, v), "ctypes call": ctypes_call, **library.surfaces(attune, q, k, v),
        **library.peers(q), **(floor() if arguments.target == "cuda" else {})}


def of_caches(arguments, library, attune, context):
    """Returns calls with one token of one request. On a CPU each call reads the lists and computes."""
    q, row, cache = library.tensor(1, 1, 8, 64), library.tensor(1, 1, 2, 64), library.tensor(2, 16, 2, 64)
    lists = {"page_table": library.tensor(1, 1, dtype="int32")} if arguments.target == "cuda" else {}
    lengths = library.tensor(1, dtype="int32")
    read = {"kv_lengths": lengths, **lists} if lists else {}
    k, v = (cache, library.tensor(2, 16, 2, 64)) if lists else (cache[:1], cache[1:])
    return {"attention_kvcache": lambda: attune.attention_kvcache(q, k, v, **read, context=context),
            "append_kv": lambda: attune.append_kv(row, row, k, v, lengths, **lists, context=context)}


def floor():
    """Returns the driver's runners; {} if it does not compile PTX."""
    try:
        return driver_floor.runners()
    except OSError as error:
        print(f"the driver's launch is not measured: {error}", file=sys.stderr)
        return {}


def loop_us(run, library):
    library.wait()
    start = time.perf_counter()
    for _ in range(CALLS):
        run()
    taken = time.perf_counter() - start
    library.wait()
    return taken * 1e6 / CALLS


def idle_us(run, library):
    library.wait()
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e6


def check_hits(name, run, module):
    """Raises SystemExit unless the module counts ten calls as hits (a launcher's: as neither hits nor misses)."""
    before = module.counters()
    for _ in range(10):
        run()
    after = module.counters()
    wanted = 0 if name == "launcher" else 10
    if (after["hits"] - before["hits"], after["misses"] - before["misses"]) != (wanted, 0):
        raise SystemExit(
            f"{name}: of 10 known calls {after['hits'] - before['hits']} ran in the C module and "
            f"{after['misses'] - before['misses']} did not"
        )


def beyond_driver(row):
    """Returns the costs above the driver's launch."""
    if "driver launch" not in row:
        return {}
    floors = {
        kind: driver_floor.launch_us({name: costs[kind]
                                      for name, costs in row.items()})
        for kind in ("loop", "idle")}
    return {
        "the driver's launch": floors, **{
            f"{name}, beyond the driver": {kind: row[name][kind] - floor
                                           for kind, floor in floors.items()}
            for name in LAUNCHING if name in row}}


def measure(arguments):
    """Runs in a child: prints a line of JSON with facts, then one line with the cost of each call per line of input."""
    os.environ["ATTUNE_STORE"] = ""  # do not read or write the user's store
    import attune
    library = {"numpy": Numpy, "torch": Torch}[arguments.library](arguments.target)
    found = runners(arguments, library, attune)
    module = attune.core.library.module
    for name, run in found.items():
        for _ in range(30):
            run()
        if name in OURS:
            check_hits(name, run, module)
    gc.disable()  # collections would add random times
    facts = {"library": library.version}
    if arguments.target == "cuda":
        import timing
        facts.update(timing.facts())
    print(json.dumps(facts), flush=True)
    for _ in sys.stdin:
        row = {name: {"loop": loop_us(run, library)} for name, run in found.items()}
        if arguments.target == "cuda":
            for name, run in found.items():
                row[name]["idle"] = statistics.median(idle_us(run, library) for _ in range(30))
            row.update(beyond_driver(row))
        print(json.dumps(row), flush=True)


def start(arguments):
    command = [sys.executable, __file__, "--child", "--target", arguments.target, "--library", arguments.library]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    first = child.stdout.readline()
    if not first:
        raise SystemExit(child.wait())
    return child, json.loads(first)


def rounds(arguments):
    child, facts = start(arguments)
    samples = {}
    for _ in range(arguments.rounds):
        child.stdin.write("\n")
        child.stdin.flush()
        for what, costs in json.loads(child.stdout.readline()).items():
            for kind, cost in costs.items():
                samples.setdefault(what, {}).setdefault(f"module, {kind}", []).append(cost)
    child.stdin.close()
    child.wait()
    return facts, {
        what: {
            kind: {"median_us": round(statistics.median(costs), 3), "min_us": round(min(costs), 3)}
            for kind, costs in kinds.items()}
        for what, kinds in samples.items()}


def over_limits(summary):
    unit = summary["ctypes call"]["module, loop"]["min_us"]
    for name, limit in LIMITS.items():
        times = summary[name]["module, loop"]["min_us"] / unit
        if times > limit:
            yield f"{name} costs {times:.1f} times a ctypes call of no arguments, at most {limit}"


def show(summary):
    kinds = list(next(iter(summary.values())))
    print(f"{'us a call, median (lowest)':30s}" + "".join(f"{kind:>22s}" for kind in kinds))
    for what, costs in summary.items():
        print(f"{what:30s}" + "".join(f"{costs[kind]['median_us']:12.2f} ({costs[kind]['min_us']:7.2f})"
                                      for kind in kinds))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--library", default=None, choices=("numpy", "torch"),
                        help="by default NumPy on the CPU, PyTorch on CUDA")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--unlimited", action="store_true", help="do not check LIMITS, for a shared machine")
    parser.add_argument("--out", default=None)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.library = arguments.library or ("torch" if arguments.target == "cuda" else "numpy")
    if arguments.child:
        try:
            return measure(arguments)
        except ImportError as error:
            print(f"SKIP: {error}", file=sys.stderr)
            return 77
    facts, summary = rounds(arguments)
    show(summary)
    if arguments.out:
        date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        result = {
            "schema": "attune.bench.python_overhead.1",
            "command": f"tests/bench/host/python_overhead.py --target {arguments.target} --library {arguments.library}",
            "python": platform.python_version(), "date": date, **facts, "rounds": arguments.rounds, "costs": summary}
        publish.write_result(arguments.out, result)
    found = [] if arguments.unlimited or (arguments.library, arguments.target) != ("numpy", "cpu") else list(
        over_limits(summary))
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
