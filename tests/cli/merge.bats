#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The op merge under every command that takes a problem.
load contract

merge=op=merge,dtype=fp32,dtype_kv=bf16,head_dim=64,heads=4,batch=2,seqlen=700
narrow=op=merge,dtype=fp16,head_dim=40,heads=3,seqlen=333

@test "check holds o and lse against float64" {
  need_cpu_target
  attune check --target cpu --problem $merge --problem $narrow --json
  expect 0
  json 'len(o["rows"]) == 2 and all(r["status"] == "ok" and 0 < r["error_max"] <= 1 for r in o["rows"])'
}

@test "tune finds a winner, and bench reports bytes" {
  need_cpu_target
  attune tune --target cpu --problem $narrow --effort quick --budget 60 --json
  expect 0
  attune explain --target cpu --problem $narrow --json
  json 'o["template"] == "merge_cpu" and o["rung"] == "exact"'
  attune bench --target cpu --problem $narrow --time 0.2 --json
  expect 0
  json 'o["rows"][0]["bytes_per_s"] > 0 and o["rows"][0]["flops"] == 0'
}

@test "arguments that the op does not have are refused by name" {
  attune explain --problem $narrow,mask=causal_bottom_right
  refused 1 "mask is causal_bottom_right" "op merge has no mask"
  attune explain --problem $narrow,softcap=30
  refused 1 "softcap is given"
  attune explain --problem op=merge,dtype=e4m3,head_dim=64,heads=4,seqlen=8
  refused 2 "e4m3" "bf16, fp16 and fp32"
  attune explain --problem op=merge,dtype=bf16,head_dim=64,heads=8/2,seqlen=8
  refused 1 "num_heads_kv is 2" "num_heads_q, 8"
}
