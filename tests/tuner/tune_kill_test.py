#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kills tunes and their workers at random moments, three tunes on one store at a time, two of them on the same problem.

After a kill, the store still has every row that a reader saw before, and the file is sound. No worker outlives its
tune, a tune outlives its worker, and the next tune continues from the store. Run by CTest. Without a CPU target, it
says so and skips.
"""
import argparse
import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
# One kernel serves all lengths of such a problem, so a tune writes a trial, a winner and an image several times a
# second.
PROBLEMS = [f"op=quantise,dtype=fp32,dtype_o=e4m3,heads=2,seqlen=1,head_dim={head_dim}" for head_dim in (32, 32, 16)]
KEYS = {"trial": "problem_id, shape_id, device_id, policy, toolchain_id, arch, config",
        "winner": "problem_id, shape_id, device_id, policy, toolchain_id, pinned",
        "image": "problem_id, toolchain_id, arch, config"}


def rows(store):
    """Returns the keys of all rows; none before the store has its tables."""
    if not store.exists() or store.stat().st_size == 0:
        return set()
    connection = sqlite3.connect(store, timeout=60)
    try:
        tables = {name for name, in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return {(table, *row) for table, key in KEYS.items() if table in tables
                for row in connection.execute(f"SELECT {key} FROM {table}")}
    finally:
        connection.close()


def is_sound(store):
    if not store.exists() or store.stat().st_size == 0:
        return True
    connection = sqlite3.connect(store, timeout=60)
    try:
        return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        connection.close()


def children(pid):
    try:
        return [int(text) for text in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


class Attack:
    def __init__(self, attune, folder, seed):
        self.attune = attune
        self.folder = folder
        self.store = folder / "store.db"
        self.random = random.Random(seed)
        self.tunes = self.workers = self.seen = 0

    def start(self, number, lengths):
        locks = self.folder / f"locks{number}"  # one each: all three are to measure, and write, at the same time
        locks.mkdir(mode=0o700, exist_ok=True)
        environment = dict(os.environ, ATTUNE_STORE=str(self.store), ATTUNE_LOCKS=str(locks))
        return subprocess.Popen(self.command(number, lengths), env=environment, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def command(self, number, lengths):
        return [
            self.attune, "tune", "--target", "cpu:1", "--effort", "quick", "--jobs", "1", "--problem", PROBLEMS[number],
            "--seqlen", ",".join(map(str, lengths))]

    def kill_worker(self, tune):
        for worker in children(tune.pid):
            os.kill(worker, signal.SIGKILL)
            self.workers += 1
            time.sleep(0.1)
            assert tune.poll() in (None, 0), f"a tune ended with {tune.returncode} when its worker was killed"

    def round(self):
        before = len(rows(self.store))
        lengths = self.random.sample(range(1, 2000), 100)  # more than a round has time for
        tunes = [self.start(number, lengths) for number in range(3)]
        if self.random.random() < 0.8:
            wait_until(lambda: len(rows(self.store)) > before + 5 or all(tune.poll() is not None for tune in tunes), 10)
        time.sleep(self.random.random() * 0.5)
        self.kill_worker(self.random.choice(tunes))
        time.sleep(self.random.random() * 0.3)
        self.random.shuffle(tunes)
        for tune in tunes:
            workers = children(tune.pid)
            seen = rows(self.store)
            tune.kill()
            tune.wait()
            self.tunes += 1
            orphans = [worker for worker in workers if not wait_until(lambda w=worker: not lives(w), 10)]
            assert not orphans, f"workers {orphans} outlive their tune"
            lost = seen - rows(self.store)
            assert not lost, f"{len(lost)} of {len(seen)} rows are lost: {sorted(lost)[:3]}"
            self.seen = max(self.seen, len(seen))
            self.lengths = lengths
            assert is_sound(self.store), "the store is damaged"

    def goes_on(self):
        done = subprocess.run(
            self.command(0, self.lengths[:1]) + ["--json"], text=True, capture_output=True, check=False, timeout=120,
            env=dict(os.environ, ATTUNE_STORE=str(self.store), ATTUNE_LOCKS=str(self.folder)))
        assert done.returncode == 0, done.stderr
        verified = subprocess.run(
            [self.attune, "db", "verify", "--store", str(self.store)], capture_output=True, text=True, check=False)
        assert verified.returncode == 0, verified.stdout + verified.stderr
        left = [path.name for path in self.folder.iterdir() if ".corrupt-" in path.name]
        assert not left, f"a kill was mistaken for damage: {left}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attune", required=True)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    doctor = subprocess.run([arguments.attune, "doctor", "--json"], text=True, capture_output=True, check=False).stdout
    if '"cpu_target_found": false' in doctor:
        print("skipped: there is no CPU target")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="attune-kill-") as folder:
        attack = Attack(arguments.attune, pathlib.Path(folder), arguments.seed)
        began = time.monotonic()
        for _ in range(arguments.rounds):
            attack.round()
        attack.goes_on()
        print(f"{attack.tunes} tunes and {attack.workers} workers killed in {time.monotonic() - began:.0f} s; "
              f"0 of {attack.seen} rows lost, no orphan")
        assert attack.workers >= arguments.rounds / 2 and attack.seen > 3 * arguments.rounds, "too few kills or rows"
    return 0


if __name__ == "__main__":
    sys.exit(main())
