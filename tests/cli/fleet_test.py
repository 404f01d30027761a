#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shards of a tune as a fleet runs them: fleet_test.py --attune PROGRAM --library LIBRARY PART. Parts: kills (plain
processes, killed at random moments: nothing is lost, and every order of merges gives the same pins), glue
(examples/fleet by stand-ins for Slurm and Kubernetes), torchrun, ray, dask (the real ones). Skips aloud (status 77)
without the CPU target or the part's package."""
import argparse
import importlib.util
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FLEET = ROOT / "examples/fleet"
SKIPPED = 77
# Kernels that compile and run in no time.
PROBLEMS = [
    f"op=quantise,dtype=fp32,dtype_o=e4m3,heads=2,seqlen={seqlen},head_dim=16" for seqlen in (1, 3, 9, 20, 40, 100)]
WORKLOAD = [word for problem in PROBLEMS
            for word in ("--problem", problem)] + ["--target", "cpu:1", "--effort", "quick", "--jobs", "1"]


class Fleet:
    def __init__(self, attune, library, folder):
        self.attune, self.folder = attune, folder
        self.stores = folder / "stores"
        self.stores.mkdir(mode=0o700)
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "attune").symlink_to(attune)
        self.environment = dict(os.environ, PATH=f"{bin_folder}:{os.environ['PATH']}", ATTUNE_LOCKS=str(folder),
                                ATTUNE_SITE_STORES="", ATTUNE_STORE="", ATTUNE_LIBRARY=library, PYTHONPATH=str(
                                    ROOT / "runtime/python"))
        for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "JOB_COMPLETION_INDEX"):
            self.environment.pop(name, None)

    def run(self, *command, status=0, **variables):
        done = subprocess.run([str(word) for word in command], text=True, capture_output=True, check=False, timeout=500,
                              env=dict(self.environment, **variables))
        assert done.returncode == status, f"{command[:4]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def pins(self, store):
        return self.run(self.attune, "pin", "-", "--store", store)

    def joined(self, problems=len(PROBLEMS)):
        """Checks that examples/fleet/join.sh pins every problem of the stores, and that a problem runs from the pin
        file."""
        self.run("bash", FLEET / "join.sh", self.stores)
        pin = self.stores / "site.pin"
        lines = [line for line in pin.read_text().splitlines() if line.startswith("op=")]
        assert len(lines) == problems, pin.read_text()
        explained = json.loads(self.run(self.attune, "explain", "--target", "cpu:1", "--problem", PROBLEMS[0], "--json",
                                        ATTUNE_PIN=str(pin)))
        assert explained["rung"] == "pinned", explained
        self.run(self.attune, "pin", "--check", pin, "--target", "cpu:1", "--store", self.stores / "site.db")
        return pin


def trials(store):
    """Checks that a store is sound. Returns (shape, arch, config) of each of its trials."""
    connection = sqlite3.connect(store, timeout=60)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)], store
        return set(connection.execute("SELECT s.text, t.arch, t.config FROM trial t JOIN shape s ON s.id = t.shape_id"))
    finally:
        connection.close()


def trials_so_far(store):
    """Returns the trials of a store that may be written meanwhile, or has no tables yet."""
    if not (store.exists() and store.stat().st_size > 0):
        return set()
    try:
        return trials(store)
    except sqlite3.OperationalError:
        return set()


def kills(fleet, seed=3, shards=3, lengths=range(1, 91)):
    """Kills shards and starts them again until they end by themselves. Every second kill comes at any moment, the
    others only after the shard has stored a trial since its start."""
    draw = random.Random(seed)

    def start(index):
        locks = fleet.folder / f"locks{index}"
        locks.mkdir(mode=0o700, exist_ok=True)
        return subprocess.Popen([
            fleet.attune, "tune", *WORKLOAD[-6:], "--problem", PROBLEMS[0], "--seqlen", ",".join(map(str, lengths)),
            "--shard", f"{index}/{shards}", "--replicate", "2", "--store",
            str(fleet.stores / f"{index}.db")], env=dict(fleet.environment, ATTUNE_LOCKS=str(locks)),
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    running = {index: start(index) for index in range(shards)}
    killed, seen = 0, {index: set() for index in range(shards)}
    while running:
        time.sleep(draw.uniform(0.05, 1.2))
        for index, process in list(running.items()):
            store = fleet.stores / f"{index}.db"
            if process.poll() is not None:
                errors = process.stderr.read().decode()
                assert process.returncode == 0, errors
                del running[index]
            elif killed < 8 and draw.random() < 0.6 and (killed % 2 == 0 or seen[index] < trials_so_far(store)):
                process.kill()
                process.wait()
                killed += 1
                now = trials_so_far(store)
                assert seen[index] <= now, "a kill lost trials"
                seen[index] = now
                running[index] = start(index)
    assert killed >= shards, f"only {killed} were killed"
    stores = [fleet.stores / f"{index}.db" for index in range(shards)]
    every = set().union(*(trials(store) for store in stores))
    texts = set()
    for number, order in enumerate(itertools.permutations(stores)):
        site = fleet.folder / f"site{number}.db"
        fleet.run(fleet.attune, "db", "merge", *order, "--store", site)
        assert trials(site) == every, "a merge lost trials"
        texts.add(fleet.pins(site))
        fleet.run(fleet.attune, "db", "merge", *order, site, "--store", site)  # all again, and itself
        texts.add(fleet.pins(site))
    assert len(texts) == 1, "pins depend on the order of merges"
    fleet.joined(len(lengths))
    assert any(0 < len(rows) < len(every) for rows in seen.values()), "no kill came between two trials"
    print(f"{shards} shards, {killed} killed, {len(every)} trials, the same pins in every order")


def check_failures(fleet):
    """Checks that scripts end with the worst exit status of their shards, even if other shards succeed."""
    programs = fleet.folder / "failing"
    programs.mkdir()
    program = programs / "attune"
    program.write_text("#!/bin/bash\n[[ $* == *--shard\\ 1/* ]] && exit ${SECOND:-0}\nexit ${FIRST:-0}\n")
    program.chmod(0o755)
    path, folder = f"{programs}:{fleet.environment['PATH']}", fleet.folder / "failed"
    for first, second, status in ((0, 0, 0), (5, 5, 5), (4, 0, 4), (0, 6, 6), (4, 6, 6), (6, 4, 6)):
        fleet.run("bash", FLEET / "node.sh", folder, 2, *WORKLOAD, PATH=path, FIRST=str(first), SECOND=str(second),
                  status=status)
    assert "NUM_GPUS is 0; must be at least 1" in fleet.run("bash", FLEET / "node.sh", folder, 0, *WORKLOAD, status=1)
    fleet.run("bash", FLEET / "slurm.sh", folder, *WORKLOAD, PATH=path, FIRST="4", SLURM_ARRAY_TASK_ID="0", status=4)
    fleet.run("bash", FLEET / "join.sh", folder, PATH=path, FIRST="5", status=5)


def glue(fleet):
    folder = fleet.folder / "array"
    for task in (1, 2):  # sbatch --array=1-2
        fleet.run("bash", FLEET / "slurm.sh", folder, *WORKLOAD, SLURM_ARRAY_TASK_ID=str(task),
                  SLURM_ARRAY_TASK_COUNT="2", SLURM_ARRAY_TASK_MIN="1", SLURM_PROCID="0", SLURM_NTASKS="1")
    fleet.stores = folder
    by_slurm = fleet.joined().read_text()
    fleet.stores = fleet.folder / "nodes"
    fleet.run("bash", FLEET / "node.sh", fleet.stores, 2, *WORKLOAD)
    fleet.joined()
    check_failures(fleet)
    job = (FLEET / "kubernetes.yaml").read_text()
    pods = int(re.search(r"completions: (\d+)", job).group(1))
    command = json.loads(re.search(r"command: (\[.*\])", job).group(1))
    assert f"--shard env/{pods} " in command[-1], command
    fleet.stores = fleet.folder / "pods"
    fleet.stores.mkdir(mode=0o700)
    command[-1] = command[-1].replace(f"env/{pods}", "env/2").replace("/stores", str(fleet.stores))
    for pod in range(2):
        fleet.run(*command, JOB_COMPLETION_INDEX=str(pod), WORKLOAD=" ".join(WORKLOAD))
    fleet.joined()
    print(f"Slurm, node and Kubernetes glue ran; {by_slurm.count('op=')} problems each")


def torchrun(fleet):
    program = shutil.which("torchrun") or str(pathlib.Path(sys.executable).with_name("torchrun"))
    if not os.access(program, os.X_OK):
        skip("there is no torchrun here")
    fleet.environment["PATH"] = f"{pathlib.Path(program).parent}:{fleet.environment['PATH']}"
    fleet.run("bash", FLEET / "torchrun.sh", fleet.stores, 2, *WORKLOAD)
    pin = fleet.joined()
    fleet.run(program, "--nproc-per-node", 2, FLEET / "ranks.py", ATTUNE_PIN=str(pin))
    other = pin.with_name("other.pin")
    other.write_text(fleet.run(fleet.attune, "pin", "-", "--store", fleet.stores / "0.db"))
    differ = ("import os, runpy, sys\nos.environ['ATTUNE_PIN'] = sys.argv[1 + int(os.environ['RANK'])]\n"
              "runpy.run_path(sys.argv[3])\n")
    script = fleet.folder / "differ.py"
    script.write_text(differ)
    told = fleet.run(program, "--nproc-per-node", 2, script, pin, other, FLEET / "ranks.py", status=1)
    assert "ranks would run different kernels" in told, told
    print("torchrun tuned two shards, and two ranks compared their pins")


def by_package(fleet, package, script, *words):
    if importlib.util.find_spec(package) is None:
        skip(f"there is no {package} here")
    fleet.run(sys.executable, FLEET / script, fleet.stores, 2, *words, *WORKLOAD)
    fleet.joined()
    print(f"{package} tuned two shards")


def dask(fleet):
    if importlib.util.find_spec("distributed") is None:
        skip("there is no dask.distributed here")
    address_file = fleet.folder / "scheduler.json"
    commands = [["scheduler", "--port", "0", "--scheduler-file",
                 str(address_file), "--no-dashboard"],
                [
                    "worker", "--scheduler-file",
                    str(address_file), "--nthreads", "1", "--nworkers", "1", "--no-dashboard"]]
    cluster = [
        subprocess.Popen([sys.executable, "-m", "dask", *command], env=fleet.environment, cwd=fleet.folder,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for command in commands]
    try:
        end = time.monotonic() + 60
        while not (address_file.exists() and address_file.stat().st_size) and time.monotonic() < end:
            time.sleep(0.2)
        by_package(fleet, "distributed", "dask_shards.py", json.loads(address_file.read_text())["address"])
    finally:
        for process in cluster:
            process.terminate()
            process.wait()


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(SKIPPED)


PARTS = {"kills": kills, "glue": glue, "torchrun": torchrun, "dask": dask,
         "ray": lambda fleet: by_package(fleet, "ray", "ray_shards.py", 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attune", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("part", choices=sorted(PARTS))
    arguments = parser.parse_args()
    doctor = subprocess.run([arguments.attune, "doctor", "--json"], text=True, capture_output=True, check=False).stdout
    if '"cpu_target_found": false' in doctor:
        skip("libattune_clang cannot be opened: built without LLVM and clang 19")
    with tempfile.TemporaryDirectory(prefix="attune-fleet-") as folder:
        PARTS[arguments.part](Fleet(os.path.abspath(arguments.attune), os.path.abspath(arguments.library),
                                    pathlib.Path(folder)))


if __name__ == "__main__":
    main()
