#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The op quantise under every command that takes a problem: its own oracle, GB/s in place of GFLOP/s.
load contract

quantise=op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=4,seqlen=300,scale_block=64,rotation=hadamard
turned=op=quantise,dtype=fp32,dtype_o=e5m2,head_dim=40,heads=3,batch=2,seqlen=333,v_layout=transposed

@test "explain names the kernel of the op, and why no other serves it" {
  need_cpu_target
  attune explain --target cpu --problem $quantise --json
  expect 0
  json 'o["template"] == "quantise_cpu" and [t["name"] for t in o["templates"] if t["serves"]] == ["quantise_cpu"]'
}

@test "quantize is quantise" {
  need_cpu_target
  attune explain --target cpu --problem ${quantise/op=quantise/op=quantize} --json
  expect 0
  json 'o["template"] == "quantise_cpu" and o["problem"].startswith("op=quantise,")'
}

@test "check holds codes and factors against float64" {
  need_cpu_target
  attune check --target cpu --problem $quantise --problem $turned --sample 4 --json
  expect 0
  json 'len(o["rows"]) >= 4 and all(r["status"] == "ok" and r["error_max"] <= 1 and r["error_mean"] <= 1 for r in o["rows"])'
}

@test "tune finds a winner, and bench reports bytes" {
  need_cpu_target
  attune tune --target cpu --problem $turned --effort quick --budget 60 --json
  expect 0
  attune explain --target cpu --problem $turned --json
  json 'o["rung"] == "exact"'
  attune bench --target cpu --problem $turned --time 0.2 --json
  expect 0
  json 'o["rows"][0]["bytes_per_s"] > 0 and o["rows"][0]["flops"] == 0 and o["rows"][0]["standard"] is None'
  attune bench --target cpu --problem $turned --time 0.2
  [[ $output == *"GB/s"* ]]
}

@test "a rotation of a head dim that is not a power of two" {
  attune explain --problem op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=80,heads=4,seqlen=8,rotation=hadamard
  refused 2 "head_dim_qk is 80" "powers of two"
}
