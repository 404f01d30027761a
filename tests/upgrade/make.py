#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what one version of attune keeps of a tune, as data for upgrade_test.py: store.sql, bundle.json, pin.txt.

Usage: make.py PROGRAM FOLDER    PROGRAM: `attune` of that version, built with LLVM, on x86-64. FOLDER: its data.

The kernels are tuned on this CPU. Then they are compiled for ARCH, and the rows name a device of ARCH, because the test
runs them on other CPUs too. store.sql is a dump without images and views. bundle.json is a manifest whose kernels have
their file under "image", compressed by LZMA, in base64.
"""
import base64
import json
import lzma
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile

ARCH = "cpu:x86-64-v2"
DEVICE = {
    "arch": ARCH, "sm_count": 2, "shared_bytes_per_block": 0, "registers_per_sm": 0, "l2_bytes": 1 << 20,
    "memory_bus_bits": 0, "memory_clock_khz": 0, "slice": "", "name": "a CPU of another machine"}
# The calls of script.py.
PROBLEMS = (
    "dtype=fp32,head_dim=64,heads=4/2,batch=1,seqlen=128,mask=causal_bottom_right",
    "op=attention_kvcache,dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen_q=1,seqlen_kv=256,page_size=16,num_pages=32")
# Configs that are legal for vectors of 16, 32 and 64 bytes.
LEGAL = re.compile(r"block_m=(32|64),block_n=\d+,rows=6,vectors=2,|keys=")


def dump(path):
    """Returns SQL that makes the store again, one statement a line."""
    with sqlite3.connect(path) as store:
        pragmas = (f"PRAGMA {name} = {store.execute(f'PRAGMA {name}').fetchone()[0]};"
                   for name in ("application_id", "user_version"))
        lines = [" ".join(line.split()) for line in store.iterdump()]
        left_out = ('INSERT INTO "image"', "CREATE VIEW")
        return "\n".join([*pragmas, *(line for line in lines if not line.startswith(left_out))])


def main():
    program, target = sys.argv[1], pathlib.Path(sys.argv[2])
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        environment = dict(os.environ, ATTUNE_LOCKS=name)

        def attune(store, *words):
            done = subprocess.run([program, *words, "--store", str(folder / store), "--json"], env=environment,
                                  check=True, stdout=subprocess.PIPE, timeout=600)
            return json.loads(done.stdout)

        for problem in PROBLEMS:
            about = ("--problem", problem)
            attune("tuned.db", "tune", "--target", "cpu", *about, "--effort", "quick", "--budget", "60")
            config = attune("tuned.db", "explain", "--target", "cpu", *about)["config"]
            if not LEGAL.match(config):
                sys.exit(f"the winner for {problem} is {config}, which is not legal on every CPU; repeat when idle")
            attune("store.db", "compile", "--arch", ARCH, *about, "--config", config)
        with sqlite3.connect(folder / "store.db") as store:
            (options,) = store.execute("SELECT DISTINCT options FROM toolchain").fetchone()
        attune("tuned.db", "db", "export", str(folder / "tuned.jsonl"))
        head, *rows = map(json.loads, (folder / "tuned.jsonl").read_text().splitlines())
        chosen = {row["config"] for row in rows if row["kind"] == "winner"}
        rows = [row for row in rows if row["config"] in chosen or row["is_default"]]
        for row in rows:
            row.update(device=DEVICE, arch=ARCH)
            row["toolchain"]["options"] = options
        head["rows"] = len(rows)
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))
        attune("store.db", "db", "import", str(folder / "rows.jsonl"))
        attune("store.db", "export", str(folder / "bundle"))
        attune("store.db", "pin", str(target / "pin.txt"))
        manifest = json.loads((folder / "bundle/manifest.json").read_text())
        for kernel in manifest["kernels"]:
            image = lzma.compress((folder / "bundle" / kernel["file"]).read_bytes(), preset=9)
            kernel["image"] = base64.b64encode(image).decode()
        (target / "bundle.json").write_text(json.dumps(manifest) + "\n")
        (target / "store.sql").write_text(dump(folder / "store.db") + "\n")


if __name__ == "__main__":
    main()
