#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that serves through attune.flash's names is captured, tuned from its capture, and then runs tuned kernels.
On the CPU target. Skips aloud (status 77) without PyTorch or the CPU target."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import attune
from attune.core import program
from skips import skip, torch

PROMPTS, DECODED, PAGE = (40, 23), 30, 16


def serve():
    """Two prompts end to end, then decoding over pages, as engines call it."""
    import attune.flash
    attune.flash.install()
    from flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache
    torch.manual_seed(1)
    rows = sum(PROMPTS)
    q, k, v = (torch.randn(rows, heads, 32) for heads in (4, 2, 2))
    starts = torch.tensor([0, PROMPTS[0], rows], dtype=torch.int32)
    flash_attn_varlen_func(q, k, v, starts, starts, max(PROMPTS), max(PROMPTS), causal=True)
    pages = torch.arange(10, dtype=torch.int32).reshape(2, 5)
    k_cache, v_cache = (torch.zeros(10, PAGE, 2, 32) for _ in range(2))
    lengths = torch.tensor(PROMPTS, dtype=torch.int32)
    for _ in range(DECODED):
        q, k, v = (torch.randn(2, 1, heads, 32) for heads in (4, 2, 2))
        flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, block_table=pages, causal=True)
        lengths += 1


def run(*command, **variables):
    done = subprocess.run([str(word) for word in command], env={**os.environ, **variables}, capture_output=True,
                          text=True, timeout=280, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class CapturedEngineTest(unittest.TestCase):
    def test_a_second_run_takes_what_its_capture_tuned(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            store = folder / "private" / "store.db"
            store.parent.mkdir(mode=0o700)
            environment = {"ATTUNE_STORE": str(store), "ATTUNE_LOCKS": name, "OMP_NUM_THREADS": "1"}
            notes = []
            for step in ("before", "after"):
                captured = folder / f"{step}.jsonl"
                run(sys.executable, __file__, "--serve", ATTUNE_CAPTURE=str(captured), **environment)
                calls = sum(json.loads(line).get("calls", 0) for line in captured.read_text().splitlines())
                self.assertGreaterEqual(calls, 2 * DECODED + 1)  # an append and an attention each, and the prompts
                tune = [program.program(), "tune", "--captured", captured, "--target", "cpu", "--json"]
                plan = json.loads(run(*tune, "--dry-run", **environment))
                self.assertLess(len(plan["problems"]), 8, plan["problems"])  # buckets, not lengths
                notes += [note for note in plan["notes"] if "of the calls ran a tuned kernel" in note]
                if step == "before":
                    run(*tune, "--effort", "quick", "--budget", "90", **environment)
            self.assertRegex(notes[0], r"^0\.0 % .*default_config")
            self.assertRegex(notes[1], r"^100\.0 % ", notes)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        serve()
        sys.exit()
    try:
        attune.Context("cpu", store="")
    except attune.Error as error:
        skip(f"no CPU target: {error}")
    unittest.main()
