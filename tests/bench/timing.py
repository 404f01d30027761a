# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of several runners in one process, and the facts that every result file of a CUDA device names.

On a device a runner is timed as a captured graph of its launches, so that host costs neither hide nor add to a kernel's
time. Host costs are measured separately (enqueue_us)."""
import datetime
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from publish import ROOT, write_result  # noqa: F401  (re-exported for the benchmarks)

MAX_LAUNCHES = 200  # per graph
_stream = None


def stream():
    """Returns the stream for all warm-ups and captures. A runner that is bound to a stream must be built on it."""
    global _stream
    if _stream is None:
        _stream = torch.cuda.Stream()
    return _stream


def replay_us(graph, launches: int) -> float:
    """Returns microseconds per launch of a graph that holds `launches` launches, by CUDA events."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream()):
        start.record()
        graph.replay()
        stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1000.0 / launches


def capture(run, launches: int):
    """Returns a graph of `launches` calls. Results are dropped, so that all calls reuse one result's memory."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream()):
        for _ in range(launches):
            run()
    return graph


def graph_sampler(run, sample_us: float):
    """Returns a function that takes one sample of about `sample_us`: microseconds per captured call of `run`."""
    with torch.cuda.stream(stream()):
        for _ in range(2):  # a capture refuses compiling, allocating and setting attributes
            run()
    torch.cuda.synchronize()
    single = capture(run, 1)
    replay_us(single, 1)
    launches = max(1, min(MAX_LAUNCHES, round(sample_us / max(replay_us(single, 1), 1e-3))))
    graph = capture(run, launches)
    replay_us(graph, launches)
    return lambda: replay_us(graph, launches)


def host_sampler(run, sample_us: float):
    """Like graph_sampler, for calls that block until their work is done."""
    def timed(calls):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        return (time.perf_counter() - start) * 1e6 / calls

    timed(1)
    calls = max(1, min(MAX_LAUNCHES, int(sample_us / max(timed(2), 1e-3))))
    return lambda: timed(calls)


def enqueue_us(run, calls: int = 20) -> float:
    """Returns the host's time of one call: the median over calls on an idle device."""
    costs = []
    with torch.cuda.stream(stream()):
        for _ in range(calls):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            costs.append((time.perf_counter() - start) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(costs)


def interleaved_samples(samplers: dict, rounds: int, rng: random.Random) -> dict:
    """Returns `rounds` samples of each runner, taken in random order within each round."""
    samples = {name: [] for name in samplers}
    for _ in range(rounds):
        order = list(samplers)
        rng.shuffle(order)
        for name in order:
            samples[name].append(samplers[name]())
    return samples


def paired_ratio(over: list, under: list) -> float:
    """Returns the median over rounds of over / under. Slow rounds cancel out, unlike in a ratio of two medians."""
    return statistics.median(a / b for a, b in zip(over, under))


def interleaved_us(samplers: dict, rounds: int, rng: random.Random) -> dict:
    """Returns median, lowest and highest of interleaved_samples."""
    return medians_us(interleaved_samples(samplers, rounds, rng))


def medians_us(samples: dict) -> dict:
    return {
        name: {
            "median_us": statistics.median(values), "min_us": min(values), "max_us": max(values),
            "samples": len(values)}
        for name, values in samples.items()}


def gemm_tflops() -> float:
    """Returns the speed of an 8192^3 bf16 product on N(0,1) data: what the board delivers at this moment."""
    a, b, c = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    sample = graph_sampler(lambda: torch.mm(a, b, out=c), 8000)
    return 2 * 8192**3 / statistics.median(sample() for _ in range(3)) / 1e6


def command() -> str:
    """Returns this program's command line: its path in the tree, and words without folders of this machine."""
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    return " ".join([Path(sys.argv[0]).resolve().relative_to(ROOT).as_posix(), *words])


def first_line(error: Exception) -> str:
    """Returns the text by which a result reports a failed case or peer."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def facts() -> dict:
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True, check=False)
    return {"device": torch.cuda.get_device_name(), "gpu_uuid": str(torch.cuda.get_device_properties(0).uuid),
            "driver": driver.stdout.partition("\n")[0].strip(), "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
