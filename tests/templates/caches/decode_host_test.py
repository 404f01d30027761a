#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kernels of decode_sm80 on the host, where each thread is a fiber. decode_host.cpp compares them with float64.

  decode_host_test.py ATTUNE CXX LIBRARY      the program, a C++ compiler, and libattune_core

decode_host.hpp has the functions of cuda/ptx for the host.
"""
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "host"))
from host_kernel import run_on_host  # noqa: E402

KEYS, LIST = 300, 70


class DecodeHost(unittest.TestCase):

    def check(self, problem, config, rows=1):
        problem = f"op=attention_kvcache,batch=3,seqlen_q={rows},seqlen_kv={KEYS},{problem}"
        if "key_indices" in problem:
            problem += f",listed_keys={LIST}"
        command = [ATTUNE, "emit", "--problem", problem, "--arch", "sm_80", "--template", "decode_sm80",
                   "--config", "loads=0," + config]
        rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        values = {"KEYS": KEYS, "ROWS": rows, "LIST": LIST, "WORKSPACE": 16 << 20}
        if "key_indices" in problem:
            values["LISTS"] = 1
        if "kv_factors" in problem:
            values["NIBBLES"] = 1
        ran = run_on_host(rendered, "caches/decode_host.cpp", "DECODE", values, CXX, CORE)
        self.assertEqual(ran.returncode, 0, f"{problem} {config}\n{ran.stdout}{ran.stderr}")

    def test_narrow_heads(self):
        self.check("dtype=bf16,head_dim=64,heads=8/2,page_size=16", "warps=4,team=2,heads=2,min_tiles=2")

    def test_caches_of_4_bits(self):
        config = "warps=4,team=2,kv_slots=2,min_tiles=2,waits=0"
        few, many = config + ",rows=8", config + ",rows=16"
        self.check("dtype=bf16,dtype_kv=int4,kv_factors=columns16,head_dim=128,heads=8/2,page_size=16", few)
        self.check("dtype=fp16,dtype_kv=e2m1,kv_factors=columns16,head_dim=128,heads=8/2,page_size=16", many, 3)
        self.check("dtype=fp16,dtype_kv=int4,kv_factors=columns32,head_dim=64,heads=2/2,page_size=3,"
                   "mask=causal_bottom_right", "warps=4,team=2,heads=2,keys=32,kv_slots=3,min_tiles=2,waits=1,rows=8",
                   11)
        self.check("dtype=bf16,dtype_kv=e2m1,kv_factors=columns32,head_dim_qk=192,head_dim_v=96,heads=6/2,window=40:0",
                   many, 5)
        listed = ("dtype=bf16,dtype_kv=e2m1,kv_factors=columns16,head_dim_qk=256,head_dim_v=192,heads=6/2,page_size=1,"
                  "key_indices=positions")
        self.check(listed, few, 2)
        self.check(listed, many, 2)

    def test_wide_heads(self):
        self.check("dtype=bf16,head_dim=512,heads=16/2", "warps=8,team=2,kv_slots=2,min_tiles=2,waits=0")
        self.check("dtype=fp16,head_dim=512,heads=4/2,page_size=16,window=40:0",
                   "warps=8,team=1,heads=2,kv_slots=2,min_tiles=2,waits=1", 3)

    def test_shares_of_unequal_columns(self):
        self.check("dtype=bf16,head_dim_qk=320,head_dim_v=272,heads=6/2,page_size=3,mask=causal_bottom_right",
                   "warps=4,team=1,keys=32,kv_slots=2,min_tiles=2,waits=0", 7)
        self.check("dtype=bf16,head_dim_qk=464,head_dim_v=464,heads=6/2,page_size=3",
                   "warps=4,team=1,kv_slots=2,waits=0")

    def test_values_in_keys(self):
        self.check("dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=32/2,v_in_k=1,page_size=1",
                   "warps=8,team=2,kv_slots=2,min_tiles=2,waits=1")
        self.check("dtype=fp16,head_dim_qk=512,head_dim_v=320,heads=2/2,v_in_k=1,page_size=64,mask=causal_bottom_right",
                   "warps=4,team=1,keys=32,kv_slots=2,waits=0", 20)

    def test_lists(self):
        self.check("dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=20/2,v_in_k=1,page_size=16,key_indices=positions",
                   "warps=8,team=2,kv_slots=3,min_tiles=2,waits=0", 3)
        self.check("dtype=bf16,head_dim=512,heads=20/2,key_indices=positions", "warps=4,team=1,kv_slots=2,waits=0", 2)


if __name__ == "__main__":
    ATTUNE, CXX, CORE = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
