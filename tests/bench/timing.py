# SPDX-License-Identifier: Apache-2.0
"""Interleaved timing of several runners in one process, and the facts every result file of a CUDA device names."""
import datetime
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch


def device_us(run, launches: int) -> float:
    """Microseconds a call of `launches` calls, by CUDA events."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(launches):
        run()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) * 1000.0 / launches


def host_us(run, calls: int) -> float:
    """Microseconds a call of `calls` calls that return when their work is done."""
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) * 1e6 / calls


def interleaved_us(runners: dict, rounds: int, sample_us: float, rng: random.Random, once=device_us) -> dict:
    """Median, lowest and highest of `rounds` samples per runner, in random order within each round."""
    calls = {}
    for name, run in runners.items():
        once(run, 1)
        calls[name] = max(1, min(200, int(sample_us / max(once(run, 2), 1e-3))))
    samples = {name: [] for name in runners}
    for _ in range(rounds):
        order = list(runners)
        rng.shuffle(order)
        for name in order:
            samples[name].append(once(runners[name], calls[name]))
    return {name: {"median_us": statistics.median(values), "min_us": min(values), "max_us": max(values), "samples": len(values)}
            for name, values in samples.items()}


def gemm_tflops() -> float:
    """An 8192^3 bf16 product on N(0,1) data: what the board gives at this moment."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        a @ b
    return 2 * 8192**3 / statistics.median(device_us(lambda: a @ b, 5) for _ in range(3)) / 1e6


def command() -> str:
    """This program's command line without the folders of the machine it ran on."""
    words = [Path(word).name if word.startswith("/") else word for word in sys.argv[1:]]
    return " ".join(["tests/bench/" + Path(sys.argv[0]).name, *words])


def write_result(path, result: dict) -> None:
    """Puts JSON in the place of `path` whole: a run that is cut short leaves what stood there."""
    part = Path(str(path) + ".part")
    part.write_text(json.dumps(result, indent=1) + "\n")
    part.replace(path)


def facts() -> dict:
    driver = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, check=False)
    return {"device": torch.cuda.get_device_name(), "driver": driver.stdout.strip(), "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
