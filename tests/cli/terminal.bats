#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Output on a terminal fits its width. Output to a file has one line per row, of any width.
load contract

narrow_ones() {
  local columns=$1 command
  shift
  for command in "$@"; do
    # shellcheck disable=SC2086
    run_on_terminal "$columns" $command
    [ -n "$output" ] || { echo "attune $command showed nothing"; return 1; }
    fits "$columns" || { echo "attune $command"; return 1; }
  done
}

@test "tables and sentences fit 80 and 50 columns" {
  tuned
  local long=dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=32/8,batch=1,seqlen_q=20,seqlen_kv=70,mask=causal_top_left,window=40:-
  for columns in 80 50; do
    narrow_ones $columns "db ls" "db show --problem $problem" "db stats" doctor devices version --help "tune --help" \
      "db show --help" "check --target cpu --problem $problem --problem $long" "explain --target cpu --problem $long" \
      "bench --target cpu --problem $problem --problem $long --time 0.05 --no-standard" "db ls --store /nonexistent/$long" \
      "tune --target cpu --problem $problem" "compile --arch cpu --problem $long --out $dir/kernels-$columns"
  done
}

@test "a table on a narrow terminal loses nothing" {
  tuned
  attune db ls --json
  local config
  config=$("${PYTHON:-python3}" -c 'import json, sys; print(json.loads(sys.argv[1])["winners"][0]["config"])' "$output")
  run_on_terminal 80 db ls
  [ "$status" -eq 0 ]
  local whole=${output//[[:space:]]/}
  [[ $whole == *"$problem"* && $whole == *"config$config"* ]]
}

@test "a file gets one line a row" {
  tuned
  attune db ls
  expect 0
  [ "$(wc -l <<<"$output")" -eq 3 ]
  [[ ${output##*$'\n'} == "$problem "* ]]
}

@test "the progress of a tune fits 80 and 40 columns and keeps count and time" {
  need_cpu_target
  run_on_terminal 80 tune --target cpu --problem $problem --effort quick --budget 20
  fits 80
  [[ $output == *"1/1, "*" tried, "*" s left, "* ]]
  run_on_terminal 40 tune --target cpu --problem ${problem/seqlen=128/seqlen=160} --effort quick --budget 20
  fits 40
  [[ $output == *"1/1, "*" tried, "*" s left, fp32 d64"* ]]
}
