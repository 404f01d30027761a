#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the default kernels of two builds beside each other, for a change that alters machine code but no algorithm.

    python3 tests/bench/cuda/two_builds.py OLD_ATTUNE NEW_ATTUNE [--problems FILE] [--rounds 5] [--out FILE]

OLD_ATTUNE and NEW_ATTUNE are the programs `attune` of the two builds. They take turns, in random order within a round;
each times all problems in its turn. Prints, for each problem, the median over rounds of old time / new time: above 1,
the new build is faster. FILE holds a problem a line; without it, two_builds_problems.txt."""
import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import timing  # noqa: E402


def words_of(problems):
    return [word for problem in problems for word in ("--problem", problem)]


def run(program, words):
    done = subprocess.run([program, *words], capture_output=True, text=True, timeout=900, check=False)
    spills = words[0] == "compile" and done.returncode == 4  # a default kernel that spills is timed too
    if done.returncode != 0 and not spills:
        sys.exit(f"{program} {words[0]} failed: {done.stderr.strip()}")
    return done.stdout


def times_us(program, problems, store, seconds):
    """Returns microseconds of each problem's default kernel."""
    words = ["bench", "--json", "--no-standard", "--store", store, "--time", str(seconds), *words_of(problems)]
    return [row["default"]["time_s"] * 1e6 for row in json.loads(run(program, words))["rows"]]


def compare(builds, problems, rounds, seconds, rng):
    """Returns the times of each build: a list per round, with a number per problem."""
    samples = [[], []]
    with tempfile.TemporaryDirectory() as folder:
        stores = [str(Path(folder) / f"{number}.db") for number in range(2)]
        for program, store in zip(builds, stores):
            run(program, ["compile", "--store", store, *words_of(problems)])
        for _ in range(rounds):
            for number in rng.sample(range(2), 2):
                samples[number].append(times_us(builds[number], problems, stores[number], seconds))
    return samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--problems", default=str(Path(__file__).with_name("two_builds_problems.txt")))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--time", type=float, default=0.2, help="seconds per problem and turn")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    lines = Path(arguments.problems).read_text(encoding="utf-8").splitlines()
    problems = [line for line in lines if line and not line.startswith("#")]
    samples = compare([arguments.old, arguments.new], problems, arguments.rounds, arguments.time, random.Random(1))
    rows = []
    for number, problem in enumerate(problems):
        old, new = ([turn[number] for turn in turns] for turns in samples)
        rows.append({"problem": problem, "old_us": statistics.median(old), "new_us": statistics.median(new),
                     "ratio": timing.paired_ratio(old, new)})
        print(f"{rows[-1]['ratio']:.3f}  {rows[-1]['old_us']:10.1f}  {rows[-1]['new_us']:10.1f}  {problem}", flush=True)
    ratios = [row["ratio"] for row in rows]
    print(f"median {statistics.median(ratios):.3f}, lowest {min(ratios):.3f}, of {len(ratios)} problems")
    if arguments.out:
        Path(arguments.out).write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
