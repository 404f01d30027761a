#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Problems that a program asked for, written down by ATTUNE_CAPTURE and tuned from there.
load contract

quick() { attune tune --target cpu --effort quick "$@"; }
@test "captured problems" {
  need_cpu_target
  printf '{"problem": "%s"}\n' $problem >"$dir/captured.jsonl"
  quick --captured "$dir/captured.jsonl" --budget 120 --json
  expect 0
  json 'len(o["shapes"]) == 1'
}

@test "captured problems bring their programs" {
  need_cpu_target
  printf '// capture ids: int32[1]\nreturn ids[q_idx] == ids[kv_idx];' >"$dir/mask.txt"
  ATTUNE_CAPTURE="$dir/captured.jsonl" attune bench --target cpu --problem dtype=fp32,head_dim=16,heads=1,seqlen=64 --mask-mod "$dir/mask.txt" --time 0.05
  expect 0
  grep -q '"mask_mod":"' "$dir/captured.jsonl"
  quick --captured "$dir/captured.jsonl" --budget 120 --json
  expect 0
  json 'len(o["shapes"]) == 1 and "mask_mod=" in o["shapes"][0]["problem"]'
  printf '{"problem": "%s", "score_mod": 7}\n' $problem >"$dir/captured.jsonl"
  attune tune --target cpu --captured "$dir/captured.jsonl"
  refused 1 "score_mod is not a string"
}

@test "captured problems have counts of calls, and lengths of a bucket are one problem" {
  need_cpu_target
  local keys
  for keys in 40 48 56 64; do
    ATTUNE_CAPTURE="$dir/captured.jsonl" attune bench --target cpu:1 --problem op=attention_kvcache,dtype=fp32,head_dim=16,heads=1,batch=1,seqlen_q=1,seqlen_kv=$keys --time 0.02 --no-standard
    expect 0
  done
  grep -q '"calls":' "$dir/captured.jsonl"
  attune tune --target cpu --captured "$dir/captured.jsonl" --dry-run --json
  expect 0
  json 'len(o["problems"]) == 1 and "4 shapes" in list(o["remarks"].values())[0] and "calls" in list(o["remarks"].values())[0]'
  json 'o["notes"][-1].startswith("0.0 % of the calls ran a tuned kernel (default_config ")'
  attune tune --target cpu --captured "$dir/captured.jsonl" --dry-run
  [[ $output == *"4 shapes, "*"100.0 % of the time"* ]]
  attune tune --target cpu --problem $problem --top 3 --dry-run
  refused 1 "--top is given without --captured"
}

@test "a damaged captured file" {
  printf '{"problem": "%s"}\nnot json\n' $problem >"$dir/captured.jsonl"
  attune tune --target cpu --captured "$dir/captured.jsonl"
  refused 1 captured.jsonl
}
