#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune explain`: rung, reason, and why not another template; compiles nothing.
load contract

@test "untuned: the default config, and why other templates do not serve" {
  need_cpu_target
  attune explain --target cpu --problem $problem --json
  expect 0
  json 'o["rung"] == "default_config" and o["template"] == "prefill_cpu" and o["winner"] is None'
  json 'any(t["name"] == "prefill_sm80" and not t["serves"] and t["reason"] for t in o["templates"])'
}

@test "tuned: exact for the shape, nearest for another" {
  tuned
  attune explain --target cpu --problem $problem
  expect 0
  [[ $output == *"exact"* ]]
  attune explain --target cpu --problem ${problem/seqlen=128/seqlen=200} --json
  json 'o["rung"] in ("bucket", "nearest", "default_config") and o["why"]'
}

@test "policy strict refuses what is not tuned" {
  need_cpu_target
  attune explain --target cpu --problem $problem --policy strict
  refused 2 tuned
}

@test "a problem that nothing serves here" {
  need_cpu_target
  attune explain --target cpu --problem dtype=e5m2,head_dim=64,heads=4,seqlen=64
  refused 2 "dtype_q is e5m2" e4m3
  attune explain --target cpu --problem $problem,window=2000000000:-
  refused 2 "window_left is 2000000000"
}

@test "unknown policy" {
  attune explain --target cpu --problem $problem --policy fastest
  refused 1 --policy fastest
}

@test "a newer store is read but said so" {
  tuned
  "${PYTHON:-python3}" - "$ATTUNE_STORE" <<'END'
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("pragma user_version = 9999")
connection.commit()
END
  attune explain --target cpu --problem $problem
  expect 0
  attune tune --target cpu --problem $problem
  refused 5 9999
}

@test "a model: every problem by kind of layer, with its rung" {
  need_cpu_target
  attune explain "$models/Gemma-2-9B" --target cpu --dtype fp32 --seqlen 64
  expect 0
  [[ $output == *"causal, window 4096: 21 layers"* && $output == *"default_config, prefill_cpu"* ]]
  [[ $output == *"not supported, tuned without it: softcap 50"* ]]
  attune explain "$models/Gemma-2-9B" --target cpu --dtype fp32 --seqlen 64 --json
  json 'len(o["problems"]) == 2 and all(p["rung"] == "default_config" for p in o["problems"])'
  json 'o["layer_kinds"][0]["not_supported"] and len(o["notes"]) == 2'
  attune explain "$models/Gemma-2-9B" --target cpu --problem $problem
  refused 1 MODEL --problem
  attune explain --target cpu
  refused 1 MODEL --problem
}
