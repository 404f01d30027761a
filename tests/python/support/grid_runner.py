# SPDX-License-Identifier: Apache-2.0
"""Runs points of grids in several processes within a time budget. A seed shuffles the kernels; all points of a kernel
run in one process, one after the other, so that each kernel is compiled once. A failed point is printed as one command
that repeats it. A point that ends its process or hangs costs only that point. Used by published_grids_test.py;
grid_runner_test.py tests the rules."""
import json
import random
import subprocess
import sys
import threading
import time
import traceback

GRACE = 60  # seconds that a point may run past the end
SPENT = 3   # exit status of a worker whose device is lost
MOST_TOLD = 200


def in_order(points, kernel_of, seed):
    """Returns a list of points per kernel, in the seed's order; `points`: (grid, index) pairs."""
    groups = {}
    for point in points:
        groups.setdefault(kernel_of(*point), []).append(point)
    found = [groups[kernel] for kernel in sorted(groups, key=repr)]
    random.Random(seed).shuffle(found)
    return found


def work(check, is_alive=lambda: True):
    """Runs in a worker: checks the points in each line of its input, until the end time in that line."""
    for line in sys.stdin:
        job = json.loads(line)
        for point in job["points"]:
            if time.monotonic() >= job["end"]:
                break
            _say(at=point)
            try:
                check(*point)
            except Exception as error:
                _say(failed=point, why=_words(error))
                if not is_alive():
                    sys.exit(SPENT)
            _say(ran=point)
        _say(done=True)


def _say(**what):
    print(json.dumps(what), flush=True)


def _words(error):
    """Returns the place in the repository that raised, and the first line of the message."""
    text = str(error).strip().splitlines() or [""]
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "unittest" not in frame.filename]
    place = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno} " if frames else ""
    return f"{place}{type(error).__name__}: {text[0][:300]}"


class Run:
    """One run of `groups`; `command` starts a worker."""

    def __init__(self, command, groups, seconds, jobs, start=0):
        self.command, self.groups, self.next = command, groups, start
        self.end = time.monotonic() + seconds
        self.lock, self.jobs = threading.Lock(), jobs
        self.ran, self.failures, self.unfinished, self.workers = 0, [], [], {}

    def left(self):
        return sum(map(len, self.groups[self.next:])) + sum(count for _, count in self.unfinished)

    def next_start(self):
        """Returns the first group with points left, or None."""
        found = [number for number, _ in self.unfinished] + list(range(self.next, len(self.groups)))
        return min(found, default=None)

    def go(self, tell=print, every=30):
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(self.jobs)]
        for thread in threads:
            thread.start()
        begun = told = time.monotonic()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.05)
            now = time.monotonic()
            if now - told >= every:
                told = now
                tell(
                    f"{now - begun:.0f} s: {self.ran} points ran, {self.left()} left, {self.next} of "
                    f"{len(self.groups)} kernels begun, {len(self.failures)} failed"
                )
            if now > self.end + GRACE:
                for worker in list(self.workers.values()):
                    worker.kill()
        return self

    def _take(self):
        with self.lock:
            if self.next >= len(self.groups) or time.monotonic() >= self.end:
                return None
            self.next += 1
            return self.next - 1

    def _serve(self):
        worker = None
        while (number := self._take()) is not None:
            points = list(self.groups[number])
            while points and (time.monotonic() < self.end):
                worker = worker or self._start()
                worker, points = self._give(worker, points)
            if points:
                with self.lock:
                    self.unfinished.append((number, len(points)))
        if worker is not None:
            _status_of(worker)

    def _start(self):
        worker = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.workers[threading.get_ident()] = worker
        return worker

    def _give(self, worker, points):
        """Returns the worker (None if it ended) and the points that are left."""
        at, failed = None, False
        try:
            worker.stdin.write(json.dumps({"points": points, "end": self.end}) + "\n")
            worker.stdin.flush()
        except OSError:
            pass  # the worker ended, and its output with it
        for line in worker.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                print(line, end="", file=sys.stderr)  # output of a library
                continue
            if "at" in said:
                at, failed = tuple(said["at"]), False
            elif "failed" in said:
                failed = True
                self._note(at, said["why"])
            elif "ran" in said:
                points = points[1:]
                with self.lock:
                    self.ran += 1
            else:
                return worker, points
        status = _status_of(worker)
        if at is None and points and not failed:  # the worker ended before its first point
            self._note(tuple(points[0]), f"the process ended with status {status} before its first point")
            return None, points[1:]
        if status != SPENT or not failed:
            self._note(
                at, "it did not return" if time.monotonic() > self.end +
                GRACE else f"its process ended with status {status}")
        with self.lock:
            self.ran += 1
        return None, points[1:]

    def _note(self, point, why):
        with self.lock:
            self.failures.append((point, why))


def _status_of(worker):
    """Ends a worker that hangs or has no more points."""
    with worker:
        worker.stdin.close()
    return worker.returncode


def report(run, line_of, tell=print):
    """Returns the exit status: 1 if a point failed. `line_of` returns the command that repeats a point."""
    for point, why in sorted(run.failures)[:MOST_TOLD]:
        tell(f"{line_of(point)}  # {why}")
    if len(run.failures) > MOST_TOLD:
        tell(f"and {len(run.failures) - MOST_TOLD} more that failed")
    start = run.next_start()
    tell(f"{run.ran} points ran, {run.left()} left, {len(run.failures)} failed"
         + ("" if start is None else f"; --start {start} goes on where this ended"))
    return 1 if run.failures else 0
