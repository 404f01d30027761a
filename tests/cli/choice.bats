#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The ops index_scores and top_k under every command that takes a problem.
load contract

top=op=top_k,dtype=fp32,heads=1,seqlen_q=33,seqlen_kv=5001,listed_keys=300
index=op=index_scores,dtype=bf16,dtype_o=fp32,head_dim=64,heads=6/2,seqlen=70,mask=causal_bottom_right

@test "check holds lists and scores against the oracles" {
  need_cpu_target
  attune check --target cpu --problem $top --problem ${top/fp32/bf16},batch=2,mask=causal_bottom_right --problem $index \
    --problem ${index/bf16/e4m3} --problem ${index/bf16/fp32} --json
  expect 0
  json 'len(o["rows"]) == 5 and all(r["status"] == "ok" and r["error_max"] <= 1 for r in o["rows"])'
  json 'all(r["error_max"] > 0 for r in o["rows"][2:])'
}

@test "tune finds a winner, and bench reports bytes and flops" {
  need_cpu_target
  attune tune --target cpu --problem $top --problem $index --effort quick --budget 60 --json
  expect 0
  attune explain --target cpu --problem $top --json
  json 'o["template"] == "top_k_cpu" and o["rung"] == "exact"'
  attune bench --target cpu --problem $top --problem $index --time 0.2 --json
  expect 0
  json 'o["rows"][0]["bytes_per_s"] > 0 and o["rows"][0]["flops"] == 0 and o["rows"][1]["flops"] > 0'
}

@test "kernels for GPUs need none" {
  attune explain --arch h100 --problem $top --json
  json 'o["template"] == "top_k_cuda"'
  attune explain --arch h100 --problem $index --json
  json 'o["template"] == "index_scores_sm80"'
  attune emit --arch sm_80 --problem $index
  expect 0
}

@test "arguments that the ops do not have are refused by name" {
  attune explain --problem $top,window=9:9
  refused 1 "window_left is 9" "op top_k has no window"
  attune explain --problem $top,softcap=30
  refused 1 "softcap is given"
  attune explain --problem $top,head_dim=64
  refused 1 "head_dim_qk is 64" "128"
  attune explain --problem ${top/fp32/e4m3}
  refused 2 "dtype is e4m3" "fp32, bf16 or fp16"
  attune explain --problem ${index/dtype_o=fp32/dtype_o=bf16}
  refused 2 "dtype_o is bf16" "writes fp32"
  attune explain --problem $index,listed_keys=3
  refused 1 "listed_keys is 3"
}
