#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The league: speed over the best peer on problems that nobody tuned to. Draws problems from the model table of attune
(league_draw.py, league_strata.py), times attune and every live peer that serves them, and adds the results to a file.

    python3 tests/bench/league.py BUILD/bin/attune --tune normal --defaults --out OUT/league.json [--kinds forward,...]
        [--budget SECONDS] [--commit HASH] [--device cpu] [--threads 2] [--count 40]
    python3 tests/bench/league.py BUILD/bin/attune --problems      prints the draw's problems, one a line

--tune tunes every problem from an empty store; --defaults times default configs; give both for the share of the one in
the other. The seed is SHA-256 of the commit's id and the date. The first run of a commit counts, and the file keeps
every run (league_record.py). A call that ends by --budget leaves the rest to the same command, called again with the
same FILE; the folder beside it (FILE without .json, and _stores) keeps tuned kernels and must be kept with it.

Prints, for each kind, geomean, 5 % quantile and lowest of the speed over the best peer, points below 1.00, tuning's
seconds, and errors against float64. Exit status: 0; 1 if a point failed; 6 if points are left.
"""
import argparse
import contextlib
import dataclasses
import datetime
import gc
import importlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import league_bench
import league_draw
import league_record
import league_strata

HERE = Path(__file__).resolve().parent
PARTIAL = 6
TUNED_AT_ONCE = 8  # problems of one call of attune tune, which compiles for the next while it measures
FIRST_POINT_S, FIRST_TUNE_S, FIRST_COMPILE_S = 20, 90, 60  # expected seconds before one was measured
REPEATED = 10  # points that are timed again on another device


class Clock:
    """Says whether there is time for one more piece of work of a kind that took some seconds so far."""

    def __init__(self, budget_s, now=time.monotonic):
        self.now, self.end, self.taken = now, now() + budget_s if budget_s else None, {}

    def left(self):
        return None if self.end is None else self.end - self.now()

    def allows(self, work, first_s):
        taken = self.taken.get(work)
        expected = 2 * statistics.median(taken) if taken else first_s
        return self.end is None or self.now() + expected <= self.end

    @contextlib.contextmanager
    def timed(self, work):
        start = self.now()
        yield
        self.taken.setdefault(work, []).append(self.now() - start)


def commit_of_tree():
    """Returns the full id of the tree's commit; None without git or with uncommitted changes."""
    def git(*words):
        return subprocess.run(["git", "-C", str(HERE), *words], capture_output=True, text=True, check=False)
    found, changes = git("rev-parse", "HEAD"), git("status", "--porcelain")
    return found.stdout.strip() if found.returncode == 0 and not changes.stdout.strip() else None


def device_module(device):
    """Returns league_cuda or league_cpu, which import PyTorch and attune."""
    sys.path[:0] = [str(HERE), str(HERE / device)]
    return importlib.import_module(f"league_{device}")


def draw_missing(run, kinds, layers_of, count):
    """Draws the points of kinds that the run does not have yet. layers_of() reads the model table."""
    missing = [kind for kind in kinds if kind not in run["draw"]]
    layers = layers_of() if missing else []
    strata, limits = league_strata.kinds_of(run["target"]), league_draw.LIMITS[run["target"]]
    for kind in missing:
        points = league_draw.draw(league_strata.drawn_as(kind), strata[kind], layers, count, run["seed"], limits)
        run["draw"][kind] = [dataclasses.asdict(dataclasses.replace(point, kind=kind)) for point in points]


def tune(program, run, kind, problems, store, target, clock):
    """Tunes the problems that the run has not tuned, a few a call. Returns False if the time ended first. A tune that
    fails is noted with its reason; its points then run default kernels."""
    done = run["tunes"].setdefault(kind, {})
    waiting = [problem for problem in dict.fromkeys(problems) if problem not in done]
    while waiting:
        if not clock.allows("tune", FIRST_TUNE_S):
            return False
        chunk, waiting = waiting[:TUNED_AT_ONCE], waiting[TUNED_AT_ONCE:]
        words = [program, "tune", "--json", "--store", str(store), "--target", target, "--effort",
                 run["options"]["tune"]]
        with clock.timed("tune"):
            found = subprocess.run(words + [word for one in chunk for word in ("--problem", one)], capture_output=True,
                                   text=True, check=False)
        done.update(tuned(found, chunk))
    return True


def compile_defaults(program, problems, store):
    """Compiles the default kernels of a kind on all cores, into a store that has no tuned kernels. Kernels that this
    leaves out are compiled at their first call, one after the other."""
    subprocess.run([program, "compile", "--store", str(store), *(
        word for one in dict.fromkeys(problems) for word in ("--problem", one))], capture_output=True, check=False)


def tuned(found, chunk):
    """Returns what one call of attune tune says of its problems. time_s is the call's time over its problems."""
    if found.returncode not in (0, PARTIAL):
        lines = found.stderr.strip().splitlines() or [f"exit status {found.returncode}"]
        print(f"attune tune failed: {lines[-1][:300]}", file=sys.stderr, flush=True)
        return {problem: {"time_s": 0, "note": lines[-1][:300]} for problem in chunk}
    answer = json.loads(found.stdout)
    share, shapes = answer["time_s"] / len(chunk), answer["shapes"]
    if len(shapes) != len(chunk):  # two texts of one problem
        return {problem: {"time_s": share, "note": f"one of {len(shapes)} problems of a call"} for problem in chunk}
    return {problem: {"time_s": share, "shape_s": shape["time_s"], "trials": shape["trials"], "note": shape["note"]}
            for problem, shape in zip(chunk, shapes)}


def measure_point(device, run, point, contexts, names, rounds):
    """Returns the row of a point: its times and ratios, or the reason for which it failed."""
    rng = league_draw.generator(run["seed"], point["kind"], point["name"], "data")
    device.torch.manual_seed(rng.getrandbits(63))
    order = random.Random(rng.getrandbits(63))
    try:
        bench = device.BUILDERS[point["kind"]](point, contexts, names, rng)
        return league_bench.measured(
            bench, lambda samplers, count: device.timing.interleaved_samples(samplers, count, order), rounds)
    except Exception as error:  # attune's failure on a point is a result
        return {"problem": problem_text(device, point), "failed": league_bench.first_line(error)}


def problem_text(device, point):
    try:
        return device.problem_of(point)
    except Exception as error:  # a wrong case is that point's failure
        return league_bench.first_line(error)


def print_row(point, row):
    ratios = " ".join(f"{label} x{ratio:.3f} of {row['best_peer'][label]}"
                      for label, ratio in row.get("over_best_peer", {}).items())
    times = " ".join(f"{name} {one['median_us']:.1f}" for name, one in row.get("timings", {}).items())
    print(f"{point['kind']} {point['name']}: {ratios or row.get('failed', 'no peer')}  [{times} us]  {row['problem']}",
          flush=True)


class League:
    """One call of the league: the run that it adds to, its device and its clock."""

    def __init__(self, arguments, record, run, device, names, clock):
        self.arguments, self.record, self.run, self.device = arguments, record, run, device
        self.names, self.clock, self.unusable = names, clock, False
        path = Path(arguments.out).resolve()
        folder = path.with_name(f"{path.stem}_stores")
        folder.mkdir(mode=0o700, exist_ok=True)  # attune reads no store that others can write
        self.store = folder / f"run{run['number']}.db"
        self.defaults = folder / f"run{run['number']}_defaults.db"
        if self.store.exists() and len(run["calls"]) == 1:
            raise SystemExit(f"{self.store} exists before the run's first call; must be moved away")
        if any(run["tunes"].values()) and not self.store.exists():
            raise SystemExit(f"{self.store} is missing; must be kept beside the result file")
        self.target = "cuda" if arguments.device == "cuda" else f"cpu:{arguments.threads}"

    def save(self):
        league_record.save(self.arguments.out, self.record)

    def contexts(self):
        stores = {**({"tuned": str(self.store)} if self.arguments.tune else {}),
                  **({"default": str(self.defaults) if self.defaults.exists() else ""}
                     if self.arguments.defaults else {})}
        return {label: self.device.attune.Context(self.target, store=store) for label, store in stores.items()}

    def measure(self, kind):
        """Measures the points of a kind. Returns False if the time, or the device, ended first."""
        problems = [problem_text(self.device, point) for point in league_record.left_of(self.run, kind)]
        if self.arguments.defaults and self.arguments.device == "cuda" and kind not in self.run["compiled"]:
            if not self.clock.allows("compile", FIRST_COMPILE_S):
                return False
            with self.clock.timed("compile"):
                compile_defaults(self.arguments.attune, problems, self.defaults)
            self.run["compiled"].append(kind)
            self.save()
        if self.arguments.tune:
            ended = not tune(self.arguments.attune, self.run, kind, problems, self.store, self.target, self.clock)
            self.save()
            if ended:
                return False
        contexts = self.contexts()
        for point in league_record.left_of(self.run, kind):
            if not self.clock.allows("point", FIRST_POINT_S):
                return False
            if league_record.begin(self.run, point):
                self.save()  # a point that ends the process is known to the next call
                with self.clock.timed("point"):
                    row = self.measured(point, contexts)
                league_record.add(self.run, point, {**row, "call": len(self.run["calls"])})
                print_row(point, row)
            self.save()
            if self.unusable:
                return False
        return True

    def measured(self, point, contexts):
        try:
            row = measure_point(self.device, self.run, point, contexts, self.names, self.arguments.rounds)
        except KeyboardInterrupt:  # Ctrl-C, or the signal of a time limit
            league_record.forget(self.run, point)
            self.save()
            raise
        gc.collect()
        try:
            self.device.release()
        except Exception as error:  # an illegal access leaves no usable device to this process
            self.unusable = True
            row.setdefault("failed", league_bench.first_line(error))
        return row

    def repeat_on_other_device(self, kinds):
        """Times some measured points again, if this call has another GPU than the calls before."""
        uuids = [call["facts"].get("gpu_uuid") for call in self.run["calls"]]
        if len(set(uuids)) == 1 or uuids[-1] in uuids[:-1]:
            return
        rows = [(kind, row) for kind in kinds for row in self.run["rows"].get(kind, []) if "timings" in row]
        contexts = self.contexts()
        for kind, row in rows[::max(1, len(rows) // REPEATED)][:REPEATED]:
            point = next(one for one in self.run["draw"][kind] if one["name"] == row["point"])
            again = self.measured(point, contexts)
            self.run["repeats"].append({"kind": kind, "point": row["point"], "call": len(uuids), **{
                key: again[key] for key in ("timings", "over_best_peer", "failed") if key in again}})
            self.save()


def arguments_of(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("attune", help="the program attune of the build; its library is taken from ../lib")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--kinds", default="", help="kinds separated by commas (default: all of the device)")
    parser.add_argument("--count", type=int, default=40, help="points of a kind")
    parser.add_argument("--tune", default="", choices=("", "quick", "normal", "exhaustive"), metavar="EFFORT")
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--budget", type=float, help="seconds of this call")
    parser.add_argument("--commit", help="id of the measured commit (default: the tree's, if it has no changes)")
    parser.add_argument("--peers", help="peers separated by commas (default: all)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of the CPU")
    parser.add_argument("--rounds", type=int, default=9, help="samples per runner")
    parser.add_argument("--problems", action="store_true", help="print the problems and exit")
    parser.add_argument("--out", help="the result file; it is added to")
    arguments = parser.parse_args(words)
    known = list(league_strata.kinds_of(arguments.device))
    arguments.kinds = [kind for kind in arguments.kinds.split(",") if kind] or known
    for kind in arguments.kinds:
        if kind not in known:
            parser.error(f"--kinds has {kind!r}; must be of {', '.join(known)}")
    for name in ("count", "rounds", "threads"):
        if getattr(arguments, name) < 1:
            parser.error(f"--{name} is {getattr(arguments, name)}; must be at least 1")
    if not arguments.problems and not (arguments.tune or arguments.defaults):
        parser.error("neither --tune nor --defaults is given; must be at least one of them")
    if not arguments.problems and not arguments.out:
        parser.error("--out is missing; must be the result file")
    arguments.commit = arguments.commit or commit_of_tree()
    if not arguments.commit:
        parser.error("--commit is missing; must be given where the tree has changes or no git")
    return arguments


def options_of(arguments):
    """Returns what two calls of one run must have in common."""
    return {"count": arguments.count, "tune": arguments.tune, "defaults": arguments.defaults,
            "rounds": arguments.rounds, **({"threads": arguments.threads} if arguments.device == "cpu" else {})}


def restart(arguments, clock, words):
    """Replaces this process by a fresh one, which goes on with the run in the time that is left."""
    left = [] if clock.left() is None else ["--budget", str(max(1.0, clock.left()))]
    os.execv(sys.executable, [sys.executable, str(HERE / "league.py"), *words, *left, "--commit", arguments.commit])


def main(words):
    arguments = arguments_of(words)
    clock = Clock(arguments.budget)
    os.environ.setdefault("ATTUNE_LIBRARY", str(Path(arguments.attune).resolve().parents[1] / "lib" / "libattune.so"))
    now = datetime.datetime.now(datetime.timezone.utc)
    date = now.date().isoformat()
    record = league_record.load(arguments.out) if arguments.out else {"runs": []}
    run = league_record.open_run(record, arguments.commit, date, league_draw.seed_of(arguments.commit, date),
                                 arguments.device, options_of(arguments), arguments.kinds)
    draw_missing(run, arguments.kinds, lambda: league_draw.layers_of_table(arguments.attune), arguments.count)
    device = device_module(arguments.device)
    if arguments.problems:
        print("\n".join(device.problem_of(point) for kind in arguments.kinds for point in run["draw"][kind]))
        return 0
    if arguments.device == "cpu":
        device.torch.set_num_threads(arguments.threads)
    names, missing = device.usable_peers(arguments.peers.split(",") if arguments.peers else device.PEERS)
    run["calls"].append({"date": now.isoformat(timespec="seconds"), "command": device.timing.command(),
                         "facts": device.facts(names, missing)})
    league = League(arguments, record, run, device, names, clock)
    league.save()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    league.repeat_on_other_device(arguments.kinds)
    finished = all(league.measure(kind) for kind in arguments.kinds)
    if league.unusable:
        restart(arguments, clock, words)
    for kind in arguments.kinds:
        rows = run["rows"].get(kind, [])
        print("\n".join(league_record.summary_lines(kind, league_record.summary(rows, run["tunes"].get(kind)))))
    failed = [row for kind in arguments.kinds for row in run["rows"].get(kind, []) if "failed" in row]
    return PARTIAL if not finished else int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
