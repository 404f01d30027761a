#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times a store after long tuning: 10,000 winners and 100,000 trials.

    python3 tests/bench/host/long_store.py BUILD_DIR --out OUT/long_store.json [--winners 10000]

Tunes one problem on the CPU target, repeats its rows for other lengths with times in proportion, and imports them into
a new store. Then times, each in a separate process, the best of several: opening a context and finding a plan's winner,
`db ls`, `db stats`, `explain` and `report`. The store is deleted at the end.
"""
import argparse
import copy
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import publish  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
PROBLEM = "dtype=fp32,head_dim=64,heads=4/2,seqlen=128"
TRIALS = 10  # per winner

# Prints the seconds from the call to the context, and from the context to the plan of a tuned length.
OPENING = """
import sys, time
import attune
begin = time.perf_counter()
context = attune.Context("cpu", store=sys.argv[1])
opened = time.perf_counter()
plan = context.plan("dtype=fp32,head_dim=64,heads=4/2,seqlen=77")
print(opened - begin, time.perf_counter() - opened, plan.rung)
"""


def run(program, *words, **options):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def best(count, work):
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def scaled(timing, factor):
    return {key: value * factor if key.endswith("_us") else value for key, value in timing.items()}


def rows_of(attune, folder, winners):
    """Yields the lines of an export: a winner and TRIALS trials per length."""
    run(attune, "tune", "--target", "cpu", "--problem", PROBLEM, "--effort", "quick", "--budget", 30, "--store",
        folder / "one.db")
    lines = [json.loads(line) for line in run(attune, "db", "export", "-", "--store", folder / "one.db").splitlines()]
    winner = next(line for line in lines if line["kind"] == "winner")
    trials = [line for line in lines if line["kind"] == "trial"]
    trials = [copy.deepcopy(trials[i % len(trials)]) for i in range(TRIALS)]
    for number, trial in enumerate(trials):  # each trial has a different config
        trial["config"] = trial["config"].replace("block_m=", f"block_m={1 + number}",
                                                  1) if number >= len(lines) - 2 else trial["config"]
    yield {**lines[0], "rows": winners * (TRIALS + 1)}
    for length in range(1, winners + 1):
        for row in (winner, *trials):
            row = dict(row, shape=f"batch=1,seqlen_q={length},seqlen_kv={length},heads=4/2")
            for key in ("timing", "default_timing"):
                if row.get(key):
                    row[key] = scaled(row[key], length / 128)
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--winners", type=int, default=10000)
    parser.add_argument("--out", default=None)
    arguments = parser.parse_args()
    attune = arguments.build.resolve() / "bin/attune"
    environment = {
        **os.environ, "ATTUNE_STORE": "", "ATTUNE_LIBRARY": str(arguments.build.resolve() / "lib/libattune.so"),
        "PYTHONPATH": str(ROOT / "runtime/python")}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "rows.jsonl", "w") as file:
            for row in rows_of(attune, folder, arguments.winners):
                file.write(json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n")
        store = folder / "long.db"
        imported = best(1, lambda: run(attune, "db", "import", folder / "rows.jsonl", "--store", store))
        stats = json.loads(run(attune, "db", "stats", "--json", "--store", store))
        opening = [run(sys.executable, "-c", OPENING, store, env=environment).split() for _ in range(7)]
        measured = {
            "import_s": imported, "open_context_s": min(float(one[0]) for one in opening), "first_plan_s": min(
                float(one[1]) for one in opening), "rung": opening[0][2], "db_ls_s": best(
                    5, lambda: run(attune, "db", "ls", "--store", store)), "db_stats_s": best(
                        5, lambda: run(attune, "db", "stats", "--store", store)), "explain_s": best(
                            5,
                            lambda: run(attune, "explain", "--target", "cpu", "--problem", PROBLEM, "--store", store)),
            "report_s": best(
                2, lambda: run(attune, "report", "--target", "cpu", "--store", store, "--out", folder / "report.html")),
            "report_bytes": (folder / "report.html").stat().st_size}
        result = {
            "command": f"tests/bench/host/long_store.py BUILD --winners {arguments.winners}", "device": next(
                (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                platform.machine()), "cores": os.cpu_count(),
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "attune": json.loads(
                run(attune, "version", "--json")).get("version"), "winners": stats["winners"],
            "trials": stats["trials"], "file_bytes": stats["file_bytes"], **measured}
    print(json.dumps(result, indent=1))
    if arguments.out:
        publish.write_result(arguments.out, result)


if __name__ == "__main__":
    main()
