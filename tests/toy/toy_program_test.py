#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program `attune` with the toy op linked in: check, tune, explain, bench, capture and the store treat it as any
op.

Usage: toy_program_test.py PROGRAM
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROBLEM = "op=toy,dtype=fp32,head_dim=64,heads=3/3,batch=2,seqlen=129,mask=none"


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, ATTUNE_STORE=str(pathlib.Path(folder) / "store/store.db"), ATTUNE_LOCKS=folder)

        def run(*words, code=0):
            done = subprocess.run([program, *words], env=environment, capture_output=True, text=True, timeout=200,
                                  check=False)
            if done.returncode != code:
                sys.exit(f"{words} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
            return json.loads(done.stdout) if "--json" in words else done.stdout + done.stderr

        about = ("--target", "cpu", "--problem", PROBLEM)

        rows = run("check", *about, "--sample", "9", "--json")["rows"]
        assert {row["template"] for row in rows} == {"toy_cpu"} and len(rows) == 3, rows
        assert all(row["status"] == "ok" and row["error_max"] <= 1 for row in rows), rows

        run("tune", *about, "--effort", "quick", "--budget", "60", "--json")
        chosen = run("explain", *about, "--json")
        assert chosen["rung"] == "exact" and chosen["template"] == "toy_cpu", chosen
        assert [one["name"] for one in chosen["templates"] if one["serves"]] == ["toy_cpu"], chosen
        shown = run("db", "show", "--problem", PROBLEM)
        assert "toy_cpu" in shown and "winner" in shown, shown

        row = run("bench", *about, "--time", "0.2", "--json")["rows"][0]
        assert row["bytes"] == 4 * 2 * 129 * 3 * 64 * 4 and row["bytes_per_s"] > 0 and row["flops"] == 0, row
        assert row["standard"] is None and "op toy" in row["standard_note"], row
        assert "GB/s" in run("bench", *about, "--time", "0.2")

        refused = run("explain", "--target", "cpu", "--problem", PROBLEM + ",window=3:3", code=2)
        assert "window is 3:3; this template serves no window" in refused, refused
    print("check, tune, explain, db, bench: the toy op passes")


if __name__ == "__main__":
    main()
