#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Contract of `attune bench`: tuned against default against standard attention, as table and as JSON; the regression exit code.
load contract

@test "bench prints a table and a geomean" {
  need_cpu_target
  attune bench --target cpu --problem $problem --time 0.2
  expect 0
  [[ $output == *" ±"*" %"* && $output == *"not tuned"* && $errors != *AT302* ]]
  [[ $output == *tuned*default*standard* && $output == *"geomean over standard"* ]]
}

@test "bench --json gives times with intervals in seconds" {
  need_cpu_target
  attune bench --target cpu --problem $problem --time 0.2 --json
  expect 0
  json 'o["schema"] == "attune.bench/1" and len(o["rows"]) == 1'
  json 'all(0 < o["rows"][0][k]["lo_s"] <= o["rows"][0][k]["time_s"] <= o["rows"][0][k]["hi_s"] < 1 for k in ("tuned", "default", "standard"))'
  json 'all(o["rows"][0][k]["noisy"] == (o["rows"][0][k]["hi_s"] - o["rows"][0][k]["lo_s"] > 0.2 * o["rows"][0][k]["time_s"]) for k in ("tuned", "default", "standard"))'
  json 'o["rows"][0]["rung"] == "default_config" and o["geomean_speedup_over_default"] == 1'
}

@test "bench of 8-bit operands against standard attention on their values" {
  need_cpu_target
  attune bench --target cpu --problem $problem --dtype e4m3 --accuracy fast --scale-block 64 --time 0.2 --json
  expect 0
  json 'o["rows"][0]["problem"].endswith("accuracy=fast,scale_block_q=64,scale_block_kv=64")'
  json 'o["rows"][0]["standard"]["time_s"] > 0 and o["rows"][0]["standard_note"] == ""'
}

@test "bench of fp32 in another mode of accuracy" {
  need_cpu_target
  attune bench --target cpu --problem $problem --accuracy split --time 0.2 --json
  expect 0
  json 'o["rows"][0]["problem"].endswith("accuracy=split") and o["rows"][0]["rung"] == "default_config"'
}

@test "bench uses the tuned config" {
  tuned
  attune bench --target cpu --problem $problem --time 0.2 --json --no-standard
  expect 0
  json 'o["rows"][0]["rung"] == "exact" and o["rows"][0]["standard"] is None'
}

@test "bench --fail-if-slower: the reference kernel is a regression" {
  need_cpu_target
  attune bench --target cpu --problem ${problem/seqlen=128/seqlen=512} --template reference_cpu --fail-if-slower 5 --time 0.5 --no-standard
  expect 7
  [[ $errors == *"slower than default"* ]]
}

@test "a tune that found noise alone is measured anew" {
  tuned
  spread 0.5 "$ATTUNE_STORE"
  attune tune --target cpu --effort quick --problem $problem --json
  expect 0
  json 'not o["shapes"][0]["already_tuned"] and o["shapes"][0]["measured"] > 0'
}

@test "unknown knob" {
  need_cpu_target
  attune bench --target cpu --problem $problem --config tile=3
  refused 1 '"tile"' block_m
}

@test "a time that is not a number" {
  attune bench --target cpu --problem $problem --time long
  refused 1 --time long
  for wrong in nan inf 0; do
    attune bench --target cpu --problem $problem --time $wrong
    refused 1 --time
    [ "${#errors}" -lt 120 ]
  done
  refused 1 "0 is too small; must be above 0"
  for wrong in nan -3 inf; do
    attune bench --target cpu --problem $problem --fail-if-slower=$wrong
    refused 1 --fail-if-slower
  done
}

@test "a seed is an integer of 64 bits, decimal or 0x" {
  for wrong in -1 18446744073709551616 1.5 0x 1k; do
    attune check --target cpu --problem $problem --seed=$wrong
    refused 1 --seed
  done
}

@test "head dim 100" {
  attune bench --target cpu --problem dtype=fp32,head_dim=100,heads=4,seqlen=64
  refused 1 head_dim 100
}

@test "a lock that another process keeps delays a tune by --wait, and no longer" {
  : >"$dir/attune-cpu.lock"
  flock "$dir/attune-cpu.lock" sh -c 'echo $$ >"$1"; exec sleep 300' sh "$dir/held" 3>&- &
  until [ -s "$dir/held" ]; do sleep 0.05; done
  for command in "tune --effort quick --budget 20" "bench --time 0.1"; do
    # shellcheck disable=SC2086 # words of a command
    attune $command --target cpu --problem $problem --wait 0.3
    expect 0
    [[ $errors == *"waiting for pid "*" of user "*"at most 0.3 s"* ]]
    [[ $errors == *"AT502: "*"has held it for 0.3 s): another tune on this device would disturb this one"* ]]
  done
  attune tune --target cpu --problem $problem --wait -1
  refused 1 --wait
  kill "$(<"$dir/held")"
}
