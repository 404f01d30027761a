# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of several runners in one process, and the facts every result file of a CUDA device names.

On a device a runner is timed as a captured graph of its launches, so that what a call costs on the host hides nothing
of a kernel and adds nothing to it; host costs stand beside it (enqueue_us)."""
import datetime
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from publish import write_result  # noqa: F401  (the benchmarks take it from here)

MAX_LAUNCHES = 200  # of one graph
_stream = None


def stream():
    """The stream on which everything is warmed up and captured; runners that are bound to a stream are made for this
    one."""
    global _stream
    if _stream is None:
        _stream = torch.cuda.Stream()
    return _stream


def replay_us(graph, launches: int) -> float:
    """Microseconds a launch of a graph that holds `launches` of them, by CUDA events."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.cuda.stream(stream()):
        start.record()
        graph.replay()
        stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1000.0 / launches


def capture(run, launches: int):
    """A graph of `launches` calls, whose results are dropped, so that one result's memory serves all of them."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream()):
        for _ in range(launches):
            run()
    return graph


def graph_sampler(run, sample_us: float):
    """A function that takes one sample of about `sample_us`: microseconds a call of `run`, captured."""
    with torch.cuda.stream(stream()):
        for _ in range(2):  # compiles, allocates, sets attributes: all that a capture refuses
            run()
    torch.cuda.synchronize()
    single = capture(run, 1)
    replay_us(single, 1)
    launches = max(1, min(MAX_LAUNCHES, round(sample_us / max(replay_us(single, 1), 1e-3))))
    graph = capture(run, launches)
    replay_us(graph, launches)
    return lambda: replay_us(graph, launches)


def host_sampler(run, sample_us: float):
    """Like graph_sampler, for calls that return when their work is done."""
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
    """`rounds` samples of each, in random order within each round."""
    samples = {name: [] for name in samplers}
    for _ in range(rounds):
        order = list(samplers)
        rng.shuffle(order)
        for name in order:
            samples[name].append(samplers[name]())
    return samples


def paired_ratio(over: list, under: list) -> float:
    """The median over rounds of over / under: what slows a round down cancels out, which medians of each alone keep."""
    return statistics.median(a / b for a, b in zip(over, under))


def interleaved_us(samplers: dict, rounds: int, rng: random.Random) -> dict:
    """Median, lowest and highest of interleaved_samples."""
    return medians_us(interleaved_samples(samplers, rounds, rng))


def medians_us(samples: dict) -> dict:
    return {
        name: {
            "median_us": statistics.median(values), "min_us": min(values), "max_us": max(values),
            "samples": len(values)}
        for name, values in samples.items()}


def gemm_tflops() -> float:
    """An 8192^3 bf16 product on N(0,1) data: what the board gives at this moment."""
    a, b, c = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    sample = graph_sampler(lambda: torch.mm(a, b, out=c), 8000)
    return 2 * 8192**3 / statistics.median(sample() for _ in range(3)) / 1e6


def command() -> str:
    """This program's command line without the folders of the machine it ran on."""
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    return " ".join(["tests/bench/" + Path(sys.argv[0]).name, *words])


def first_line(error: Exception) -> str:
    """Returns a result's text for a case or a peer that failed."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def facts() -> dict:
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True,
                            text=True, check=False)
    return {"device": torch.cuda.get_device_name(), "driver": driver.stdout.strip(), "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
