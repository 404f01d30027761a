#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune devices`.
load contract

@test "devices lists the CPU with its identity" {
  need_cpu_target
  attune devices
  expect 0
  [[ $output == *cpu:* ]]
  attune devices --json
  expect 0
  json 'any(d["target"] == "cpu" and len(d["identity"]) == 32 and d["sm_count"] >= 1 for d in o["devices"])'
}

@test "devices is stable: twice the same identities" {
  need_cpu_target
  attune devices --json
  local first=$output
  attune devices --json
  [ "$first" = "$output" ]
}

@test "devices says why there is no GPU" {
  has_gpu && skip "a GPU is here"
  attune devices --json
  json 'any("libcuda" in sentence for sentence in o["missing"])'
}

@test "a CPU plugin that does not exist" {
  ATTUNE_CPU_PLUGIN=/nosuch.so attune compile --arch cpu --problem $problem --out "$BATS_TEST_TMPDIR/kernels"
  refused 4 "ATTUNE_CPU_PLUGIN is /nosuch.so, and there is no such file; must be the path of libattune_clang.so"
}
