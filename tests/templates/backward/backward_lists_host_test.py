#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the kernels of backward_lists_sm80 on the host, where each thread is a fiber. backward_lists_host.cpp compares
them with float64.

  backward_lists_host_test.py ATTUNE CXX LIBRARY      the program, a C++ compiler, and libattune_core
"""
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "host"))
from host_kernel import run_on_host  # noqa: E402

KEYS, LIST = 90, 70


class BackwardListsHost(unittest.TestCase):

    def check(self, problem, config, arch="sm_90a", keys=KEYS, round_rows=None, apart=False):
        problem = f"op=attention_backward,batch=2,seqlen_q=3,seqlen_kv={keys},listed_keys={LIST},{problem}"
        command = [ATTUNE, "emit", "--problem", f"{problem},key_indices=positions", "--arch", arch, "--template",
                   "backward_lists_sm80", "--config", f"blocks_per_sm=1,apart={int(apart)},{config}"]
        rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        values = {"KEYS": keys, "LIST": LIST, "WORKSPACE": 4 << 20}
        if round_rows is not None:
            values["ROUND"] = round_rows
        ran = run_on_host(rendered, "backward/backward_lists_host.cpp", "LISTS", values, CXX, CORE)
        self.assertEqual(ran.returncode, 0, f"{problem} {config}\n{ran.stdout}{ran.stderr}")

    def test_plain_keys(self):
        self.check("dtype=bf16,head_dim=64,heads=10/2", "heads=16,keys=64,warps=4", "sm_80")
        self.check("dtype=fp16,head_dim_qk=72,head_dim_v=40,heads=34/2", "heads=32,keys=16,warps=4")

    def test_columns_that_warps_do_not_share_evenly(self):
        self.check("dtype=bf16,head_dim_qk=136,head_dim_v=88,heads=6/2", "heads=16,keys=32,warps=8", "sm_80")

    def test_values_in_keys(self):
        self.check("dtype=fp16,head_dim_qk=64,head_dim_v=48,heads=10/2,v_in_k=1", "heads=16,keys=64,warps=4")
        self.check("dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=40/2,v_in_k=1", "heads=32,keys=64,warps=8")

    def test_parts_in_rounds(self):
        """Rounds end inside a batch entry and after its last row; keys of one block of the join, and of several."""
        self.check("dtype=bf16,head_dim=64,heads=36/2,deterministic=1", "heads=16,keys=64,warps=4", round_rows=2)
        self.check("dtype=fp16,head_dim_qk=72,head_dim_v=40,heads=6/2,v_in_k=1,deterministic=1",
                   "heads=16,keys=32,warps=4", "sm_80", 300, 4)

    def test_scores_by_half_of_the_warps(self):
        self.check("dtype=bf16,head_dim_qk=72,head_dim_v=40,heads=100/2", "heads=64,keys=64,warps=8", apart=True)
        self.check("dtype=fp16,head_dim_qk=64,head_dim_v=48,heads=34/2,v_in_k=1", "heads=32,keys=32,warps=8",
                   apart=True)

    def test_heads_of_several_blocks(self):
        self.check("dtype=bf16,head_dim=32,heads=140/2", "heads=64,keys=64,warps=8")


if __name__ == "__main__":
    ATTUNE, CXX, CORE = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
