#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`attune explain` says what a program in the same environment gets: both are asked, over policies, states of the
store, bundles and permission to compile. Explain goes first, on a copy of the store, and must leave it as it was.

Usage: explain_matrix_test.py ATTUNE PROBE        (PROBE: explain_probe.c, built)
"""
import itertools
import json
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

TUNED = "dtype=fp32,head_dim=16,heads=2,seqlen=32"
PROBLEMS = {"tuned": TUNED, "bucket": TUNED.replace("seqlen=32", "seqlen=30"),
            "another shape": TUNED.replace("seqlen=32", "seqlen=900"), "another spec": TUNED + ",mask=causal_top_left"}
EXIT_OF = {
    "invalid argument": 1, "unsupported": 2, "not tuned": 2, "would compile": 4, "compile": 4, "file": 5, "store": 5}


def edit(path, statement):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


# State of the store: what is done to a copy of the tuned one.
STORES = {
    "tuned": lambda path: None,
    "no images": lambda path: edit(path, "DELETE FROM image"),
    "damaged images": lambda path: edit(path, "UPDATE image SET bytes = x'00112233'"),
    "pinned": lambda path: edit(path, "UPDATE winner SET pinned = 1"),
    "tuned by another template": lambda path: edit(path,
                                                   "UPDATE toolchain SET digest = 'none', template_digest = 'none'"),
    "newer": lambda path: edit(path, "PRAGMA user_version = 9999"),
    "of another program": lambda path: edit(path, "PRAGMA application_id = 77"),
    "no database": lambda path: path.write_text("name:x:0:0:no database\n" * 100),
    "others may write": lambda path: path.chmod(0o666),
    "missing": lambda path: path.unlink(), }


class Machine:
    def __init__(self, attune, probe, folder):
        self.attune, self.probe, self.folder = attune, probe, folder
        self.base = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE")}
        self.tuned = folder / "tuned" / "store.db"
        self.bundles = {
            "none": None, "good": folder / "good", "damaged": folder / "damaged", "missing": folder / "nowhere"}

    def call(self, command, **environment):
        return subprocess.run([str(word) for word in command], env={**self.base, **environment}, capture_output=True,
                              text=True, timeout=200, check=False)

    def prepare(self):
        """False when there is no CPU target."""
        if '"cpu_target_found": false' in self.call([self.attune, "doctor", "--json"]).stdout:
            return False
        for command in ([
                self.attune, "tune", "--target", "cpu", "--problem", TUNED, "--effort", "quick", "--budget", "60",
                "--store", self.tuned], [self.attune, "export", self.bundles["good"], "--store", self.tuned]):
            done = self.call(command)
            if done.returncode not in (0, 6):
                sys.exit(f"{command}: {done.stderr}")
        shutil.copytree(self.bundles["good"], self.bundles["damaged"])
        for image in self.bundles["damaged"].glob("*.o"):
            image.write_bytes(image.read_bytes() + b"x")
        return True

    def store(self, state):
        if state == "off":
            return ""
        path = self.folder / "case" / "store.db"
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir(mode=0o700)
        shutil.copy2(self.tuned, path)
        STORES[state](path)
        return str(path)


def lines_of(text, head):
    return [line[11:] for line in text.splitlines() if line.startswith(head.ljust(11))]


def program_answer(done):
    if done.returncode != 0:
        return {"crashed": done.returncode, "stderr": done.stderr}
    fields = dict(line.split(" ", 1) for line in done.stdout.splitlines()[:4])
    if fields["status"] != "ok":
        return {"exit": EXIT_OF[fields["status"]], "message": fields["message"]}
    # A program may warn when it keeps the kernel that it compiled; explain keeps none.
    warnings = [
        text for text in lines_of(done.stdout, "warning") if "is not kept" not in text and "was renamed" not in text]
    return {
        "exit": 0, "rung": fields["rung"], "template": fields["template"], "config": fields["config"], "image": re.sub(
            ", when.*", "",
            lines_of(done.stdout, "image")[0]), "passed_over": lines_of(done.stdout, "not taken"), "warnings": warnings}


def explain_answer(done):
    if done.returncode != 0:
        return {"exit": done.returncode, "message": done.stderr.splitlines()[-1].removeprefix("attune: ")}
    said = json.loads(done.stdout)
    return {"exit": 0, "rung": said["rung"], "template": said["template"], "config": said["config"],
            "image": f"from the {said['image_from']}", "passed_over": said["passed_over"], "warnings": said["warnings"]}


def cases():
    policies = [None, "nearest", "strict"]
    for policy, store, no_jit, problem in itertools.product(policies, ["off", *STORES], [None, "1"], PROBLEMS):
        if problem == "bucket" and store != "tuned":
            continue
        yield policy, store, no_jit, "none", problem
    for policy, store, no_jit, bundle in itertools.product([None, "strict"], ["off", "tuned", "damaged images"],
                                                           [None, "1"], ["good", "damaged", "missing"]):
        yield policy, store, no_jit, bundle, "tuned"
        yield policy, store, no_jit, bundle, "another shape"
    for policy, no_jit in ((word, None) for word in ("", "default", "tune_on_miss", "fastest")):
        yield policy, "tuned", no_jit, "none", "tuned"
    yield None, "tuned", "yes", "none", "tuned"


def main():
    attune, probe = sys.argv[1:]
    seen, wrong = set(), 0
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(attune, probe, pathlib.Path(folder))
        if not machine.prepare():
            print("SKIP: no CPU target")
            sys.exit(77)
        count = 0
        for policy, store, no_jit, bundle, problem in cases():
            environment = {"ATTUNE_STORE": machine.store(store)}
            for name, value in (("POLICY", policy), ("NO_JIT", no_jit), ("BUNDLE", machine.bundles[bundle])):
                if value is not None:
                    environment[f"ATTUNE_{name}"] = str(value)
            text = PROBLEMS[problem]
            before = pathlib.Path(environment["ATTUNE_STORE"] or os.devnull)
            bytes_before = before.read_bytes() if before.is_file() else None
            explained = explain_answer(
                machine.call([attune, "explain", "--target", "cpu", "--problem", text, "--json"], **environment))
            if (before.read_bytes() if before.is_file() else None) != bytes_before:
                sys.exit(f"explain changed the store: {environment}")
            got = program_answer(machine.call([probe, text], **environment))
            count += 1
            seen.add((got.get("exit"), got.get("rung"), got.get("image", "").split(" ")[-1], bool(got.get("warnings"))))
            if got != explained:
                wrong += 1
                print(
                    f"policy {policy}, store {store}, no_jit {no_jit}, bundle {bundle}, problem {problem}:\n  program "
                    f"{got}\n"
                    f"  explain {explained}")
    print(f"{count} environments, {len(seen)} kinds of answer, {wrong} told apart")
    if len(seen) < 8:  # the matrix must reach what it is for
        sys.exit(f"only {sorted(map(str, seen))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
