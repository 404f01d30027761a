#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune check`: numerics against the oracle.
load contract

@test "check holds the runtime's choice against the oracle" {
  need_cpu_target
  attune check --target cpu --problem $problem --json
  expect 0
  json 'o["schema"] == "attune.check/1" and len(o["rows"]) == 1'
  json 'o["rows"][0]["status"] == "ok" and 0 < o["rows"][0]["error_max"] <= 1 and 0 < o["rows"][0]["error_mean"] <= 1'
}

@test "check --sample takes random configs of the space, the same for the same seed" {
  need_cpu_target
  attune check --target cpu --problem dtype=bf16,head_dim=40,heads=3/1,seqlen_q=33,seqlen_kv=65,mask=none --sample 4 --seed 7 --json
  expect 0
  json 'len(o["rows"]) == 4 and all(r["status"] == "ok" for r in o["rows"])'
  local first=$output
  attune check --target cpu --problem dtype=bf16,head_dim=40,heads=3/1,seqlen_q=33,seqlen_kv=65,mask=none --sample 4 --seed 7 --json
  [ "$first" = "$output" ]
}

@test "rows that see no key" {
  need_cpu_target
  attune check --target cpu --problem dtype=fp32,head_dim=64,heads=2,seqlen_q=64,seqlen_kv=16,mask=causal_bottom_right
  expect 0
}

@test "check --config takes any config" {
  need_cpu_target
  attune check --target cpu --problem $problem --config block_n=128 --json
  expect 0
  json '"block_n=128" in o["rows"][0]["config"]'
}

@test "unknown knob" {
  need_cpu_target
  attune check --target cpu --problem $problem --config frob=1
  refused 1 '"frob"'
}

@test "a template that does not serve this" {
  need_cpu_target
  attune check --target cpu --problem $problem --template prefill_sm80
  refused 2 prefill_sm80
}

@test "a negative sample" {
  attune check --target cpu --problem $problem --sample -3
  refused 1 --sample -3
}
